/*
 * parent.h - the process that has started dlock, which --with-parent ends with.
 *
 * A pidfd tells of its end.  A parent-death signal would come at the end of the thread that has
 * forked us, and runners in Go or Java end threads at any time.
 */
#ifndef DLOCK_PARENT_H
#define DLOCK_PARENT_H

#include "cmd/params.h"

#include <stdbool.h>
#include <sys/types.h>

struct parent {
	pid_t pid; /* 0: it is not watched, or its end has been seen */
	/* readable when it has ended; -1: it is not watched, or there are no pidfds here */
	int fd;
};

/* Begins to watch it, for --with-parent.  RC_USAGE: its end cannot be seen. */
enum rc parent_watch(struct parent *, const struct params *, struct fault *);

/* Watches it no longer. */
void parent_forget(struct parent *);

/* Has it ended, while it is watched?  True once: from then on it is not. */
bool parent_ends(struct parent *);

/* When to look, while it is watched, whatever a poll of fd says. */
instant parent_wake(const struct parent *);

#endif
