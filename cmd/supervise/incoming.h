/*
 * incoming.h - what may come to the keeper while it waits, as events for step().
 *
 * The keeper waits in one place only: incoming_wait() hears its children, the front, the
 * process for which a hold is, and those at the door, and hands each event to `react` at
 * once, for what comes next may depend on it.
 */
#ifndef DLOCK_INCOMING_H
#define DLOCK_INCOMING_H

#include "child.h"
#include "door.h"
#include "lock.h"
#include "loop.h"

struct incoming {
	const struct run *run;
	const struct keep *keep; /* what step() knows */
	struct fault *fault;     /* says why, where an event decides the ending */
	const struct lock *lock; /* which those at the door may join */
	void (*react)(const struct event *);
	struct news news; /* to the front, and the link from there */
	struct loop loop;
	struct child child;
	struct door door;
	bool answered; /* somebody wanted the lock released, and knows how that ended */
};

/*
 * Sleeps once, until `fd` is ready, something has happened, or `until`; deals
 * with what came.  Was it `fd`?
 */
bool incoming_wait(struct incoming *, int fd, short events, instant until);

/* To a front that stopped because the command did: the command goes on, or is gone. */
void incoming_wake_front(const struct incoming *);

/* Tells all that have asked for the release of a hold how it has ended. */
void incoming_answer_release(struct incoming *);

#endif
