/*
 * guard.h - what wakes a front that is suspended, when the keeper can no longer keep the lock.
 *
 * A front that Ctrl-Z suspends leaves a child behind, which watches the keeper in its place.
 * The child ends when the front is needed, and the kernel continues the front then
 * (loop_suspend_guarded): the keeper is late, or dead, or has had its last word.
 *
 * SIGSTOP leaves the front no time for that.  A keeper that finds it so sets the guard:
 * keeper_job.c.
 */
#ifndef DLOCK_GUARD_H
#define DLOCK_GUARD_H

#include "page.h"

struct guard {
	pid_t pid; /* a child of ours; 0: there is none */
	int fd;    /* a pipe that it alone keeps open, and that continues us; -1: none */
};

/*
 * Begins one.  Where there is no room for a process or a pipe the front is suspended without.
 * `link` is the front's end.
 */
struct guard guard_begin(
    const struct page *, const struct watch *, pid_t keeper, int link);

void guard_end(struct guard *);

/* Closes an end that continues us; whoever has it as well sees that it no longer does. */
void guard_refuse(int fd);

#endif
