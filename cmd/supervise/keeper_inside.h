/*
 * keeper_inside.h - the keeper's state, for its two halves and nobody else.
 *
 *	keeper_hear.c    what has happened, for step()
 *	keeper.c         what step() has decided, carried out
 */
#ifndef DLOCK_KEEPER_INSIDE_H
#define DLOCK_KEEPER_INSIDE_H

#include "child.h"
#include "door.h"
#include "lock.h"
#include "loop.h"
#include "news.h"
#include "run.h"

/* What step() wants of the main line, and of the call that it is in. */
struct keeper_todo {
	unsigned calls; /* DO_ACQUIRE, DO_RENEW, DO_RELEASE, DO_EXIT */
	instant until;  /* of the call to be made */
	instant wake;   /* for the next EV_TICK */
	bool stop;      /* the call in flight is to return */
};

struct keeper {
	struct host host; /* first: the backend's way back to us */
	const struct run *run;
	const struct plan *plan;
	struct shared *shared;
	struct news news; /* to the front */
	struct loop loop;
	struct child child;
	struct door door;
	struct lock lock;
	char record[RECORD_BYTES]; /* with --min-hold: ours, not the front's */
	struct fault fault;        /* of the call that decided the ending */
	struct keep keep;
	struct keeper_todo todo;
	bool for_ancestor; /* what we would wait for ends only after us */
	bool for_script;   /* the user was told that our own script has it */
	bool answered; /* somebody wanted the lock released, and knows how that ended */
};

/*
 * Sleeps once, until `fd` is ready, something has happened, or `until`; deals
 * with what came.  Was it `fd`?
 */
bool keeper_hear(struct keeper *, int fd, short events, instant until);

/* Tells step() what has happened, and carries out what it says. */
void keeper_react_to(struct keeper *, const struct event *);
void keeper_react(struct keeper *, enum event_kind, int value);

/* To a front that stopped because the command did: the command goes on, or is gone. */
void keeper_wake_front(struct keeper *);

/* Tells all who have asked for the release of a hold how it has ended. */
void keeper_answer_release(struct keeper *);

#endif
