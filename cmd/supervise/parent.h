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
	int fd; /* readable when it has ended; -1: this kernel or sandbox has no pidfds */
};

/* Begins to watch it, if --with-parent is given.  RC_USAGE: its end cannot be seen. */
enum rc parent_watch(struct parent *, const struct params *, struct fault *);

/* Watches it no longer. */
void parent_forget(struct parent *);

/* Has it ended?  True once. */
bool parent_ends(struct parent *);

/* What to poll for its end, and when to look whatever the poll says. */
int parent_fd(const struct parent *);
instant parent_wake(const struct parent *);

#endif
