/*
 * step.h - the keeper's state machine: what has happened, what to do next.
 *
 * step() is pure: it looks at its state, the time and one event, changes its
 * state and says what to do.  So tests/model/simulate.c can drive it through a hundred
 * thousand schedules of delays, losses, pauses and late answers.
 *
 * It promises:
 *
 *  1. From grant to end, DO_TERM is asked for no later than the first step at
 *     or after term_at (unless the front has asked: EV_OVERTAKEN), DO_KILL no
 *     later than the first one at or after kill_at, and DO_KILL again every
 *     KILL_AGAIN until nothing is left of the tree.
 *  2. At most one backend call is in flight.  After DO_RELEASE no renewal is
 *     ever asked for; DO_RELEASE only when the command (with --wait-tree, or
 *     when it is being stopped: its whole tree) is gone.
 *  3. DO_GO at most once, only on a grant whose deadlines leave time to run.
 *  4. One DO_REPORT, one ending; DO_EXIT is the last action.
 *  5. A lease that was lost stays lost: an answer that comes at or after
 *     term_at changes nothing, and the server's "not yours" is final.  So is
 *     what is not known to have ended before term_at: an end that is seen
 *     later may be the work of the front's TERM, and the whole tree must go.
 *  6. A keeper that is asked for the lock back (EV_REVOKED) goes on renewing while the
 *     command stops, TERM first and KILL after grace, and then releases.
 *  7. DO_KILL no later than the first step at or after kill_after from EV_ASKED.
 *  8. A release that nobody answers is asked for again, after the report, until
 *     the lease has surely ended at the server.
 */
#ifndef DLOCK_STEP_H
#define DLOCK_STEP_H

#include "cmd/supervise/lease.h"

#include "backends/common/alert.h"

#define KILL_AGAIN (10 * NS_PER_MS)     /* pause between two sweeps of a dying tree */
#define KILL_PATIENCE (5 * NS_PER_S)    /* after which a tree counts as beyond us */
#define RELEASE_PATIENCE (2 * NS_PER_S) /* for the answer to a release */
#define RELEASE_AGAIN (500 * NS_PER_MS) /* least pause before the next; at most twice */
/* the same when nothing was granted, it was lost, or a person pressed Ctrl-C */
#define WITHDRAW_PATIENCE (800 * NS_PER_MS)

enum event_kind {
	EV_TICK, /* time has passed */
	/* acquire: sent, lease, pace, soon; value: the enum rc by which it is refused after all */
	EV_GRANTED,
	EV_REFUSED,     /* acquire ended without a grant: value is the enum rc */
	EV_RENEWED,     /* renew: sent, lease, pace, soon */
	EV_UNANSWERED,  /* renew: nothing is known */
	EV_REVOKED,     /* renew: the same; but somebody wants the lock back */
	EV_DISOWNED,    /* renew: the server says not ours */
	EV_ALERT,       /* something has happened to the lock: see what it is */
	EV_RELEASED,    /* release ended: value is the enum rc */
	EV_STARTED,     /* the command has been executed */
	EV_EXEC_FAILED, /* it has not: value is errno; ETIME: too late; 0: not tried */
	EV_ENDED,       /* it was reaped: value is the wait status */
	EV_EMPTY,       /* nothing is left of its tree */
	EV_JOINED,      /* a nested dlock holds along with us */
	EV_PARTED,      /* and no longer does */
	EV_KEEP,        /* one of them wants the lock kept for `lease` from now */
	EV_INTERRUPTED, /* to end the waiting.  value: a signal, or INTERRUPTED_BY_LOOK */
	EV_ASKED,       /* a signal asks us to end: value is its number; --kill-after */
	EV_ORPHANED,    /* the front is gone */
	EV_OVERTAKEN,   /* we were late: the front has sent TERM instead */
	EV_TERMINATED,  /* somebody wants us to end: no --min-hold, no trying on */
};

/* in place of a signal: a switch is frozen, or a newer run has come (before.h) */
enum { INTERRUPTED_BY_LOOK = 0 };

struct event {
	enum event_kind kind;
	int value;
	instant sent;
	int64_t lease, pace, soon;
};

/* How it ended. */
enum ending_kind {
	END_NONE,
	END_COMMAND,     /* value: wait status */
	END_EXEC,        /* value: errno */
	END_REFUSED,     /* value: enum rc of the acquisition */
	END_INTERRUPTED, /* value: signal, or INTERRUPTED_BY_LOOK */
	END_ORPHANED,
	END_MAX_RUN,
	END_KILLED, /* by --kill-after; value: the signal that had asked us */
	END_LOST,
};

/* Why END_LOST. */
enum loss {
	LOSS_NONE,
	LOSS_REVOKED, /* we were asked to give it up, and still hold it */
	LOSS_SILENCE, /* nobody confirmed the lease in time */
	LOSS_TAKEN,   /* the server said so while we held */
	LOSS_FOUND,   /* the server said so at release */
};

/* Why the lock is not free, though all is over for the user. */
enum kept {
	KEPT_NOT,
	KEPT_MIN_HOLD,
	KEPT_OUTSIDE, /* an outer dlock has it */
	KEPT_TRYING,  /* nobody has confirmed the release yet */
};

struct ending {
	enum ending_kind kind;
	int value;
	enum loss loss;
	bool stuck;       /* the tree could not be killed; the lock was not released */
	bool unconfirmed; /* nobody answered the release */
	bool too_late;    /* END_REFUSED: the grant left no time to run */
	enum kept kept;
	/* dlock hold: it was given back before; set where it is told */
	bool returned;
};

enum phase { PH_NEW, PH_ASK, PH_HOLD, PH_LINGER, PH_GIVE_BACK, PH_OVER };
enum call { CALL_NONE, CALL_ACQUIRE, CALL_RENEW, CALL_RELEASE };

/* The lease that counts, and what the server has said of it. */
struct keep_lease {
	instant sent;  /* just before the request left that earned it */
	instant asked; /* when we last asked for one, answered or not */
	int64_t length, pace;
	instant renew_at, term_at, kill_at; /* NEVER until a grant */
	struct alert_pace alerts;
	bool suspect;  /* the last renewal went unanswered */
	bool disowned; /* it is not ours */
	bool revoked;  /* we have been asked to give it up */
};

/* The processes under the lock, and how far stopping them has come. */
struct keep_tree {
	instant started_at;    /* of the command; NEVER: not yet */
	bool gone;             /* the command was reaped (or never lived) */
	bool empty;            /* and so was everything it left behind */
	unsigned joined;       /* nested dlocks that hold along with us */
	bool stopping;         /* TERM has been asked for */
	instant stop_by;       /* KILL what is being stopped, or was asked to; NEVER */
	int asked;             /* the signal that has asked us to end; 0 */
	instant killing_since; /* NEVER: not yet */
};

/* The rest when the command has ended: to keep the lock, to give it back. */
struct keep_after {
	instant keep_until; /* --min-hold, ours or that of one that joined */
	bool checked;       /* lingering: asked the server once more after the command */
	instant release_at; /* again; 0: no release has gone unanswered */
	bool hurry;         /* a release that is not answered is not asked for again */
};

/* The kind of lock; set by the keeper as it learns of it. */
struct keep_lock {
	bool several; /* keys: when one is lost, the others are still to be released */
	bool nested;  /* an outer run has it, and keeps it for min_hold */
	bool tied;    /* it ends with a connection, which no lease outlives */
};

/* The state; all but `terms` and `lock` belongs to step(), others may look. */
struct keep {
	struct terms terms;
	struct keep_lock lock;
	enum phase phase;
	enum call call;     /* in flight */
	instant granted_at; /* 0: not yet */
	struct keep_lease lease;
	struct keep_tree tree;
	struct keep_after after;
	bool orphaned; /* the front is gone */
	struct ending ending;
	bool reported;
	uint64_t jitter;
};

enum {
	/* start this backend call; its result comes back as an event */
	DO_ACQUIRE = 1 << 0,
	DO_RENEW = 1 << 1,
	DO_RELEASE = 1 << 2,
	DO_END_CALL = 1 << 3, /* let the call in flight return at once */
	DO_PUBLISH = 1 << 4,  /* term_at and kill_at have changed */
	DO_GO = 1 << 5,       /* let the command begin */
	DO_TERM = 1 << 6,     /* --signal and CONT to the whole tree */
	DO_KILL = 1 << 7,     /* KILL to the whole tree */
	DO_REPORT = 1 << 8,   /* the ending is final: say it */
	DO_EXIT = 1 << 9,
};

struct actions {
	unsigned set;
	instant until; /* bound of the call that is to be started */
	instant wake;  /* call again with EV_TICK no later than this */
};

/* `seed`: of the jitter between attempts; any number. */
void keep_init(struct keep *, const struct terms *, uint64_t seed);
struct actions step(struct keep *, instant now, const struct event *);

/* Has the lock slipped away?  A lock that we were asked to give up is still ours. */
bool keep_is_lost(const struct keep *);

/*
 * Would EV_ALERT lead to a renewal now?  Otherwise one is under way or about to
 * be tried again anyhow, or could not help, or too many alerts have come to nothing
 * (alert.h), and the descriptor is left alone.
 */
bool keep_wants_alert(const struct keep *, instant now);

/* How long the lock is wanted for --min-hold after an ending like this; 0: no longer. */
instant keep_wanted_until(const struct keep *);

#endif
