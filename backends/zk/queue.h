/*
 * queue.h - who stands where in a lock directory.
 *
 * The children of the directory are the queue.  Their order is Curator's
 * (LockInternals.getSortedChildren, StandardLockInternalsDriver), for whoever
 * orders otherwise does not exclude Curator's users: by what follows the last
 * "lock-" in the name, as strings; names without one by the whole name.  Every
 * child counts, whoever made it.
 *
 * Pure: names in, places out.
 */
#ifndef DLOCK_ZK_QUEUE_H
#define DLOCK_ZK_QUEUE_H

#include <stdbool.h>
#include <stddef.h>

struct place {
	bool found;        /* we are among them */
	size_t before;     /* how many stand in front of us: 0 holds the lock */
	const char *ahead; /* the last of those; NULL if there is none */
	const char *first; /* the holder; NULL without children */
	/*
	 * A child by which we cannot go.  `foreign`: made by a lock whose users
	 * do not wait for ours (kazoo's "__lock__" and "__rlock__", Curator's
	 * "__READ__" and "__WRIT__", the "locks" and "leases" of its semaphores).
	 * `exhausted`: its number is the last one there
	 * is, which all after it get as well, or (before 3.8) negative: after
	 * 2^31 of them numbers order nothing any more.
	 */
	const char *foreign, *exhausted;
};

/*
 * Where `own` (a name, complete) stands among n names.  What *ret points to is in
 * `names`.
 */
void queue_look(struct place *ret, const char *const *names, size_t n, const char *own);

#endif
