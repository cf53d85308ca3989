/*
 * join.h - what passes through the keeper's socket: an inner run joins the hold of an outer
 * one, and `dlock release` asks for the end of a hold.
 *
 *	join_address.h  where the socket is: DLOCK_KEEPER, and the handle of a hold
 *	join_site.h     where the locks are kept, which an inner run takes from the outer one
 *	join_inner.h    the inner run asks, and holds for as long as the connection lasts
 *	join_outer.h    the outer keeper answers
 *	join_release.h  `dlock release` asks, and waits for how the hold ends
 *
 *	join_find.h     `dlock release -k KEY` asks all keepers which locks they have
 *
 * One datagram each way: a struct as it is.  JOIN_VERSION changes with any of them.  With the
 * answer that lets a run join a hold may come a descriptor, which it keeps open for as long as it
 * may have to stop what it runs (join_outer_watch()).  An earlier dlock does not take it, and is not
 * waited for.
 */
#ifndef DLOCK_JOIN_H
#define DLOCK_JOIN_H

#include "backends/common/identity.h"
#include "cmd/params.h"

#define JOIN_VERSION 10
/* a keeper on this machine that needs longer is frozen, or full */
#define JOIN_PATIENCE (10 * NS_PER_S)
/* the same for who does not wait for a lock (-n), or not for so long (-w) */
#define JOIN_PATIENCE_LEAST NS_PER_S
#define JOIN_RETRY (10 * NS_PER_MS) /* pause before a full one is asked again */

/*
 * A keeper sends one byte to those that have joined: they are to ask now.  And one to a
 * process that asks again for a release: the keeper is alive.
 */
enum { JOIN_CALL = 1, JOIN_ALIVE = 1 };

/*
 * A keeper of an earlier version takes JOIN_NAME for a question for no lock, and answers as to
 * JOIN_CHECK, which is another size: so JOIN_VERSION has stayed.
 */
enum join_verb { JOIN_HOLD = 1, JOIN_CHECK, JOIN_RELEASE, JOIN_NAME };

struct join_ask {
	int version;
	enum join_verb verb;
	/* the lock is wanted for so long from now, whatever becomes of the asker */
	int64_t keep;
	/* which locks the keys are; text "": not known */
	struct identity identity;
	/* one after the other, each with its NUL; sent up to the last one */
	char keys[KEYS_MAX * (KEY_BYTES + 1)];
};

/* The grant of one key. */
struct join_part {
	uint64_t token;
	unsigned slot;
};

/* A keeper's hold, as it is offered to runs that may join. */
struct join_hold {
	enum lock_kind kind;
	unsigned limit;
	/*
	 * So long ago the request was sent that has earned it: no instant, for the clock of
	 * another time namespace differs.
	 */
	int64_t age;
	int64_t lease, pace;
	struct join_part parts[KEYS_MAX]; /* in the order of the keys asked for */
};

/* To JOIN_HOLD and JOIN_CHECK. */
struct join_answer {
	int version;
	bool foreign; /* a lock is the same, but the asker none of our descendants */
	bool stops;   /* it is ours still, but wanted back: to be stopped politely */
	bool full;    /* it is ours, but JOIN_HOLDING have joined already */
	unsigned has; /* bits: which of the keys asked for we hold, in that order */
	struct join_hold hold;
};

/* To JOIN_NAME. */
struct join_name {
	int version;
	enum join_has {
		HAS_NOTHING, /* it waits for a lock, or has given it back */
		HAS_RUN,     /* a lock for a command, which nobody can release */
		HAS_HOLD,    /* a lock for a process, or for a time */
		HAS_LOSS,    /* had one, and is to tell that it was lost */
	} has;
	int64_t pid;             /* as status shows it */
	char where[WHERE_BYTES]; /* the server, for people; not cleaned */
	/* one after the other, each with its NUL; sent up to the last one */
	char keys[KEYS_MAX * (KEY_BYTES + 1)];
};

/* To JOIN_RELEASE, when it has ended. */
struct join_outcome {
	int version;
	int status;
	char line[1800]; /* to be said; "": nothing */
};

#endif
