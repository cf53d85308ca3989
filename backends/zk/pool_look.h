/*
 * pool_look.h - who uses the lock as a semaphore of kazoo's (pool.h): the leases in K, and the
 * queue beside it.
 */
#ifndef DLOCK_ZK_POOL_LOOK_H
#define DLOCK_ZK_POOL_LOOK_H

#include "tell.h"

/* Zero: it is no semaphore. */
struct pool_look {
	const char *lock;     /* path of K */
	struct names leases;  /* first those with a slot, by these */
	struct call *queue;   /* as it is listed, */
	struct names waiters; /* and in order */
};

/*
 * Reads what there is, if K, listed, has leases, or `alone`: may have a queue without one.  Then all that is
 * told of this lock is of the semaphore.  `lock` and the list must outlive it; to be ended in any
 * case.
 */
enum rc pool_look_list(struct pool_look *, struct looking *, const char *lock,
    const struct call *list, bool alone, struct fault *);

enum rc pool_look_tell_holders(struct pool_look *, struct looking *, struct fault *);
enum rc pool_look_tell_waiters(struct pool_look *, struct looking *, struct fault *);

void pool_look_end(struct pool_look *);

#endif
