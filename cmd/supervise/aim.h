/*
 * aim.h - a signal, and whom it is for.
 */
#ifndef DLOCK_AIM_H
#define DLOCK_AIM_H

#include "outsider.h"

#include "backends/common/instant.h"

struct aim {
	int sig;       /* 0: only to see which are there */
	bool wake;     /* SIGCONT after it, so that what is suspended can obey */
	pid_t command; /* gets it first; not yet reaped, or 0 */
	bool leads;    /* a process group, which gets it too */
	pid_t but;     /* a process group that has it already, or 0 */
	const struct processes *spared; /* they and theirs are left alone; NULL: nobody */
	struct outsider *outsider;      /* gets it too; NULL: nobody */
	/* tree_kill(): by when who is known is to have got it; 0, or past: it does not matter */
	instant by;
};

/* To a child of ours, or with -pid to its process group. */
void aim_send(pid_t, const struct aim *);

/* False: it has not got it. */
bool aim_send_by(int pidfd, const struct aim *);

/*
 * Is it left to itself?  Where a tree is killed there may be a hold for a process that stands
 * elsewhere.  If both of its guards were killed, that process would go on without its lock.  So the
 * front of the hold is not: it sees the end of its keeper, stops that process, and ends.
 */
bool aim_leaves(const struct process *, const struct aim *);

/*
 * To a process that a look has found.  Never hits another one that has its pid by now, where the
 * kernel has pidfds or /proc allows it: see aim.c.
 */
void aim_at(const struct process *, const struct aim *);

#endif
