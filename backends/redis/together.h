/*
 * together.h - calls that wait, side by side on one thread.
 *
 * Each strand is straight-line code on a stack of its own that waits through its
 * host, as all code of backends does; while it waits the others go on.  All their
 * descriptors are in one epoll descriptor, which is what the real host waits for.
 *
 * A strand runs when it is started, until its first wait, and then only inside
 * together_wait().  One that has not ended stays where it is until the next one.
 */
#ifndef DLOCK_REDIS_TOGETHER_H
#define DLOCK_REDIS_TOGETHER_H

#include "backends/backend.h"

struct strand;

struct together {
	struct host *host; /* the real one */
	int epoll;
	size_t n;
	struct strand *strands;
};

/* For n strands.  RC_OK, or RC_SYSTEM; together_end() in either case. */
enum rc together_begin(struct together *, struct host *, size_t n, struct fault *);

/* What strand i has to wait through; its notice is passed on to nobody. */
struct host *together_host(struct together *, size_t i);

/* It must not be busy. */
void together_start(struct together *, size_t i, void (*run)(void *), void *arg);

bool together_is_busy(const struct together *, size_t i);

/* What it waits for has timed out. */
void together_cut(struct together *, size_t i);

/*
 * Sleeps until a strand has something to do, which it then does, or `until`.  WOKE_STOP:
 * as the real host says; all strands have been told, and have ended.
 */
enum woke together_wait(struct together *, instant until);

/* All have been told to stop, and have ended. */
void together_stop(struct together *);

void together_end(struct together *);

#endif
