/*
 * incoming.h - what may come to the keeper while it waits, as events for step().
 *
 * The keeper waits in one place only: incoming_wait() hears its children, the front, the
 * process for which a hold is, and inner runs, and hands each event to `react` at
 * once, for what comes next may depend on it.
 */
#ifndef DLOCK_INCOMING_H
#define DLOCK_INCOMING_H

#include "child.h"
#include "join_outer.h"
#include "lock.h"
#include "loop.h"
#include "news.h"

struct incoming {
	const struct run *run;
	const struct keep *keep; /* what step() knows */
	struct fault *fault;     /* says why, where an event decides the ending */
	const struct lock *lock; /* which inner runs may join */
	void (*react)(const struct event *);
	struct news news; /* to the front, and the link from there */
	struct loop loop;
	struct child child;
	struct join_outer outer;
	pid_t group;      /* the front's */
	instant leave_at; /* when to leave the session; NEVER: we have, or need not */
	int guard[2];     /* a pipe that continues a stopped front when we end; or -1 */
	instant guard_at; /* when to look whether the front is stopped */
	bool childless;   /* but who was seen below us may live */
	bool answered; /* somebody wanted the lock released, and knows how that ended */
};

/*
 * Takes this process out of the front's process group, and the keeper of a hold out of its
 * session: nothing of the user's terminal may be kept when he has gone home.
 */
void incoming_leave_group(struct incoming *);

/*
 * Takes it out of the session, if it still is in one with a terminal.  There we are what a shell
 * is to the group of front and command, a parent in another group.  The kernel takes that group
 * for a shell's job as long as we live: Ctrl-Z stops it where no shell can continue it, and
 * nobody hangs it up when its shell has ended.  A new session costs a short command a
 * millisecond on a busy machine, where the kernel shares out processor time by sessions; so
 * incoming_wait() does it a little later, and when the command stops.
 */
void incoming_leave_session(struct incoming *);

/*
 * Sleeps once, until `fd` is ready, something has happened, or `until`; deals
 * with what came.  Was it `fd`?
 */
bool incoming_wait(struct incoming *, int fd, short events, instant until);

/* Our end is not to continue a front that was stopped by SIGSTOP. */
void incoming_drop_guard(struct incoming *);

/* To a front that stopped because the command did: the command goes on, or is gone. */
void incoming_wake_front(const struct incoming *);

/* Tells all that have asked for the release of a hold how it has ended. */
void incoming_answer_release(struct incoming *);

#endif
