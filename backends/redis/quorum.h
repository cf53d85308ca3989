/*
 * quorum.h - N independent masters, asked at once, and what more than half of them say.
 *
 * A question is put to all (or some) of them as a round, through fan.h; what is heard later
 * of an earlier round does not count.  Most questions are runs of redlock.lua.  A master that
 * we have not met is also asked for its settings, and met.
 */
#ifndef DLOCK_REDIS_QUORUM_H
#define DLOCK_REDIS_QUORUM_H

#include "backends/common/encode.h"
#include "fan.h"
#include "script.h"

enum {
	MASTER_NAME_BYTES = ENCODED_BYTES + 24,
	/* an owner of ours has a number behind it; what others call themselves is cut */
	VOTER_BYTES = 80,
	CLOCK_BYTES = 96,
	RUN_ID_BYTES = 48,
};

/*
 * A master that restarts may have forgotten to whom it gave its vote.  No lease is longer than
 * the one; so its vote counts when some host has known its process, which a run ID names, for
 * the other.  ms.
 */
extern const int64_t quorum_longest, quorum_enough;

/* Operations of redlock.lua; and to listen, until somebody releases the lock. */
enum asking {
	ASK_ACQUIRE,
	ASK_EXTEND,
	ASK_RELEASE,
	ASK_REVOKE,
	ASK_MEET, /* follows ASK_ACQUIRE, if at all */
	ASK_LOOK,
	ASK_SCAN,
	ASK_LISTEN,
};

/* What redlock.lua says. */
enum verdict { VERDICT_NO, VERDICT_YES, VERDICT_HEALED, VERDICT_ABSENT, VERDICTS };

/* The answer; what an operation does not tell is 0 or "".  Texts are hostile. */
struct vote {
	enum verdict verdict;
	uint64_t token;
	int64_t known;      /* for so long the master has been running, ms */
	int64_t left, held; /* ms; -1: for ever; not known */
	char run[RUN_ID_BYTES];
	char owner[VOTER_BYTES];   /* who has it; "": nobody */
	char record[RECORD_BYTES]; /* of who holds, or asks for the lock back */
	/* Of ASK_LOOK; times are us by its own clock, -1: not known, never. */
	int64_t now, since, until;
	bool revoked, remembers; /* the holder is asked for it; it knows the key */
};

/* One of those that vote on a lock. */
struct master {
	struct peer *peer; /* of the fan: whether it has answered, and with what rc */
	bool asked;        /* in the last round */
	/* What it was asked last, and how. */
	enum asking asking;
	struct manner manner;
	char unmet[RUN_ID_BYTES]; /* the process that is to be met; "": none */
	bool sure;                /* its settings say that it forgets nothing */
	enum { STEP_ASKED, STEP_SETTINGS, STEP_MEET } step;
	/* What it says: */
	bool foreign;      /* the key is no lock any more, which says no, too */
	struct vote vote;  /* with RC_OK */
	redisReply *reply; /* the same for ASK_SCAN; owned */
};

/* What has been heard in the last round. */
struct tally {
	size_t votes[VERDICTS];
	size_t young;    /* of VERDICT_YES, those that do not count: see quorum_enough */
	size_t failed;   /* did not answer as they should */
	size_t foreign;  /* of these, those where the key is no lock any more */
	size_t open;     /* may still answer */
	size_t answered; /* those with a verdict */
	bool repeated;   /* one of these was asked twice */
	uint64_t token;  /* the highest of those who said yes */
};

struct quorum {
	struct host *host;
	const char *where; /* all of them, for people */
	size_t n;          /* masters */
	size_t need;       /* so many are more than half of them */
	struct master *masters;
	struct fan fan;
	/* What the lock is called on each of them, and our clock. */
	char lock[MASTER_NAME_BYTES], data[MASTER_NAME_BYTES], wake[MASTER_NAME_BYTES];
	char clock[CLOCK_BYTES];
	size_t listener; /* the master at which all waiters of the lock listen */
	/* Of the round: */
	enum asking asking;
	struct script_call call;
	struct tally tally;
	bool (*enough)(const struct quorum *);
};

/*
 * Of the hosts of the address, which has their login, and is not copied.  RC_OK, RC_USAGE (one
 * stands there twice) or RC_SYSTEM, and then there is nothing to be ended.
 */
enum rc quorum_begin(struct quorum *, struct host *, const struct address *,
    const char *where, struct fault *);
void quorum_end(struct quorum *);

/* Which lock it is about; `bare`: its key is that name itself, as other clients have it. */
void quorum_name(struct quorum *, const char *key, bool bare);

/*
 * Names the clock of instant_now() among those of all hosts and their boots.  `owner`, of this
 * process alone, is its name where the system does not tell the boot.
 */
void quorum_name_clock(struct quorum *, const char *owner);

/* ---- a round ---- */

/*
 * Begins one; the caller adds what redlock.lua wants to hear behind the owner.  All texts
 * outlive the round.
 */
struct script_call *quorum_say(struct quorum *, enum asking, const char *owner);

/*
 * Puts it to those that `whom` picks (NULL: all) out of what was heard in the round before,
 * until `until`.
 */
void quorum_ask(struct quorum *, instant until, bool (*whom)(const struct master *));

/*
 * The same to one of them.  What ASK_LISTEN hears, by `until` at the latest, does not matter:
 * that there is an answer is reason to ask for the lock.
 */
void quorum_ask_one(struct quorum *, size_t i, instant until);

/*
 * Waits until enough() says so of the tally, all have answered, or `until`; NULL: until
 * all have.  Then the tally is what has been heard so far.  RC_OK or RC_STOP.
 */
enum rc quorum_hear(
    struct quorum *, instant until, bool (*enough)(const struct quorum *));

/* For quorum_hear(): a quorum has said yes, or too few can answer, or nobody else will. */
bool quorum_has_voted(const struct quorum *);

/* ---- what was heard in it ---- */

/* Was it asked, and is that over, with a vote or without? */
static inline bool
master_is_heard(const struct master *m)
{
	return m->asked && !peer_is_busy(m->peer);
}

static inline bool
master_has_vote(const struct master *m)
{
	return master_is_heard(m) && m->peer->rc == RC_OK;
}

/* How many have given their vote to this owner, who is another one than us. */
size_t quorum_votes_of(const struct quorum *, const char *owner);

/*
 * The vote of a master that refused us for who has a quorum, with that one's record if
 * any of these told it; NULL: nobody has a quorum.
 */
const struct vote *quorum_find_holder(const struct quorum *);

/*
 * Does any of them tell who wants it back, or has taken it?  Then *rc is what refuse_broken()
 * makes of it.
 */
bool quorum_is_broken(const struct quorum *, enum rc *, struct fault *);

/*
 * Too few have given a usable answer: RC_AGAIN, or what so many of them have to say that
 * it will stay so.
 */
enum rc quorum_refused(const struct quorum *, struct fault *);

/* RC_CONFIG if two of them are one server; else RC_OK. */
enum rc quorum_check_twins(const struct quorum *, struct fault *);

#endif
