/*
 * link.h - what passes between the front and the keeper.
 *
 * A page of memory that both see, for what must be known even when the other
 * one is frozen or dead: the deadlines.  And a pair of sockets for messages;
 * a message is one datagram, whole or not at all, never blocks its sender
 * (who may be talking to a stopped process), and may be dropped when the
 * receiver has slept through some dozens.  Only the ending must arrive: it
 * stands in the page too.
 *
 * The end of file on the link is how each learns that the other one is gone.
 */
#ifndef DLOCK_LINK_H
#define DLOCK_LINK_H

#include "child.h"
#include "cmd/plan.h"
#include "step.h"

#include <stdatomic.h>
#include <sys/types.h>

/* How far the stub has come. */
enum { EXEC_NOT_CALLED, EXEC_CALLED = -1 };

/* How it ended; written by the keeper. */
struct shared_end {
	/* nothing that needs the lock is running: no deadline counts */
	_Atomic bool finished;
	_Atomic bool told; /* `ending` is final */
	/* and the keeper stays on: for --min-hold, or to release */
	_Atomic bool lingers;
	/* `dlock hold`: who it was held for has given it back, or its time is over */
	_Atomic bool returned;
	_Atomic bool loss_told; /* `dlock hold`: to the script; written by both */
	struct ending ending;
};

/* What the front does that the keeper has to know; written by the front. */
struct shared_front {
	/* the live line is, and must go before the command writes */
	_Atomic bool on_screen;
	_Atomic bool mirrored; /* it has stopped because the command did */
	/* `dlock hold`: whoever has asked for the lock knows that he has it */
	_Atomic bool delivered;
};

/* The page; where nothing else is said, the keeper writes. */
struct shared {
	_Atomic instant term_at, kill_at; /* NEVER until a grant */
	/* when the keeper last woke; it does so every third of the ttl */
	_Atomic instant alive_at;
	/*
	 * its pid, 0 before it is known and after it was reaped; the front reaps it too
	 */
	_Atomic pid_t command;
	_Atomic bool granted; /* the command may have begun */
	/* TERM is being sent, by the one, keeper or front, who has set this */
	_Atomic bool stopping;
	/* EXEC_*, or the errno with which it failed; written by the stub */
	_Atomic int exec;
	_Atomic bool opened;     /* `where` is set */
	char where[WHERE_BYTES]; /* the server, for people */
	struct shared_end end;
	struct shared_front front;
	struct go go; /* `dlock hold`: what a command would be told; set with `granted` */
};

enum msg_kind {
	/* keeper to front */
	MSG_WAITING,  /* number: position; key, holding */
	MSG_RETRYING, /* the server does not answer; key, text: how */
	MSG_SKIPPED,  /* the job has been done; text: by whom */
	/* token, slot; carries the anchors; may be left out: link_tells() */
	MSG_GRANTED,
	MSG_STARTED,  /* number: pid */
	MSG_STOPPED,  /* the command stopped; number: by which signal */
	MSG_RESUMED,  /* it continued */
	MSG_SUSPECT,  /* number: nanoseconds left until TERM, text: why */
	MSG_TRUSTED,  /* the lease was confirmed after all */
	MSG_STOPPING, /* the command is being stopped: number is an enum ending_kind */
	MSG_TRACE,    /* text: for -v */
	MSG_NOTICE,   /* text: what the user should know of the server */
	MSG_ENDED,    /* shared->end is set, text: the backend's words */
	/* front to keeper */
	MSG_SIGNAL, /* number: signal; had, ends */
};

struct msg {
	enum msg_kind kind;
	bool had;     /* MSG_SIGNAL: the command, if it runs, has got this one already */
	bool ends;    /* MSG_SIGNAL: ends the waiting, if we still wait */
	unsigned key; /* which of the plan's keys is waited for */
	int64_t number;
	uint64_t token;
	unsigned slot; /* with --limit */
	union {
		struct holding holding;  /* MSG_WAITING */
		char text[RECORD_BYTES]; /* all others */
	};
};

/* Both ends (close-on-exec), or -1 with errno. */
int link_open(int ends[2]);

/*
 * Descriptors whose being open keeps the lock: one for each key, or none (grant.anchor).
 */
struct anchors {
	int fds[KEYS_MAX];
	size_t n;
};

/* Sends msg, and copies of the anchors unless that is NULL.  Never blocks. */
void link_send(int end, const struct msg *, const struct anchors *);

/*
 * 1: *msg is set, and the anchors, which are ours to close.  0: nothing now.  -1: the
 * other one is gone.
 */
int link_receive(int end, struct msg *, struct anchors *);

/*
 * When MSG_GRANTED is sent.  A front that has nothing to do about a grant is
 * left asleep: waking it would cost the command's start more than all else here.
 *
 * TELL_BEFORE the command begins:
 *  - where there is an anchor, for what keeps the lock must be in two hands;
 *  - where the live line is on the screen, for it must go first;
 *  - where the front would look at the deadlines too late (link_looks_in_time).
 * TELL_AFTER, for whoever wants to hear of it: `awaited`.
 * TELL_NOT: the front finds the grant in the page when it looks.
 */
enum telling { TELL_BEFORE, TELL_AFTER, TELL_NOT };
enum telling link_tells(
    const struct shared *, const struct grant *, int64_t ttl, instant now, bool awaited);

/*
 * Before the grant the front looks again no later than the first deadline of a
 * lease of the ttl that is asked for at that moment (watch.c).  That is in time
 * unless the lease is shorter, or the front has looked since it was asked for.
 * Then it is late by what the answer took at most, which does not matter up to
 * GRANT_QUICK: a front leaves a keeper that is late the SLACK of watch.h, which
 * is more.
 */
#define GRANT_QUICK (20 * NS_PER_MS)
bool link_looks_in_time(const struct grant *, int64_t ttl, instant now);

/* The server's name, not cleaned; "" while it is not known. */
const char *shared_where(const struct shared *);

/* `dlock hold`: does whoever has asked for the lock rely on it? */
bool link_guards(const struct shared *);

/* A fresh shared page, or NULL with errno. */
struct shared *shared_new(void);

#endif
