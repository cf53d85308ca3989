/*
 * ward.h - the ward: what a keeper guards while it has the lock.
 *
 *	command.c  of `dlock run`: a program that the keeper starts, and whose parent it is
 *	script.c   of `dlock hold`: a process that goes on by itself, or nobody for a time
 *
 * Front and keeper do the same for either, and ask it where these differ.
 */
#ifndef DLOCK_WARD_H
#define DLOCK_WARD_H

#include "aim.h"
#include "signals.h"

#include <poll.h>

struct keeper;
struct run;
struct told;

/*
 * `dlock hold`: does the process know that it has the lock?  It counts as DELIVERED before
 * it is told: at no moment a process has a lock for which nobody would stop it.  A lock
 * that is given back undelivered is WITHDRAWN first: no process gets one that has ended.
 * A command has it with its start: NO_DELIVERY.
 */
enum delivery { UNDELIVERED, DELIVERED, WITHDRAWN, NO_DELIVERY };

struct ward {
	const struct ward_ops *ops;
	bool is_hold; /* the lock is delivered to it, and it may give it back */
	/* of a hold: an enum delivery, which all processes of the run share */
	_Atomic int *delivery;
	struct outsider
	    *outsider; /* NULL: it is the keeper's child, or there is nobody */
	instant until; /* its time is over; NEVER */
};

struct ward_ops {
	/* ---- before front and keeper part ---- */

	/* Why it could not be stopped here; NULL: it could, or there is nobody. */
	const char *(*objection)(const struct ward *);

	/* Makes what is new for each keeper; NULL: there is nothing.  False, with errno. */
	bool (*prepare)(struct run *);

	/* ---- in front and keeper ---- */

	/*
	 * Tells its user a line about a loss that threatens, has come, or was averted.  False: it
	 * was not told, and may be tried again.
	 */
	bool (*tell)(const struct run *, const char *text);

	/* ---- in the keeper ---- */

	/*
	 * Does what comes before the keeper parts with all that is the user's; *kept stays open,
	 * unless it is -1.  NULL, or with errno what cannot be done.
	 */
	const char *(*begin)(struct keeper *, int *kept);

	/* The lock is there.  False, with errno: the front cannot be told of it. */
	bool (*start)(struct keeper *, const struct told *);

	/* Ends what was never started: it has the caller's descriptors. */
	void (*dismiss)(struct keeper *);

	/* Fills in what is to be waited for; returns when to look at the latest. */
	instant (*await)(const struct keeper *, struct pollfd *);

	/* Looks what has become of it, and of the rest. */
	void (*look)(struct keeper *, const struct pollfd *);

	/* A child of the keeper has changed: reaps those that have ended, and takes note of a stop. */
	void (*reap)(struct keeper *);

	/* Says what there is to be signalled, while the lock is held. */
	enum signal_state (*state)(const struct keeper *);

	/* Does with a signal what signal_decide() has said. */
	void (*signal)(struct keeper *, enum signal_deed, const struct signal_case *);

	/* Asks all of it to end. */
	void (*stop)(struct keeper *, const struct aim *);
};

#endif
