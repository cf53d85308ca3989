/*
 * pool.h - one of the N leases of kazoo's Semaphore (layout=kazoo with --limit).
 *
 *	K			its data are N; all its children are leases, whatever they are called
 *	K/<owner>-slot-<s>	our lease, which is our node while we hold it; kazoo's: K/<uuid>
 *	K-__lock__		the queue of those who want one: a Lock of kazoo's
 *
 *  1. Whoever is first in the queue is the only one who may make a lease, so that the number
 *     of leases can only fall while we are that.  We wait until there are fewer than N; then one
 *     transaction makes ours and removes our node from the queue, if that is there, and nobody
 *     has frozen the lock or changed N meanwhile.  (kazoo does one after the other, in that
 *     order.)
 *  2. What we go by is not too old: see unit.h, point 3.
 *  3. The token is the lease's czxid, so that tokens grow from grant to grant.
 *  4. The slot stands in the name of the lease.  It is the lowest that no lease of a dlock has, and
 *     by 1 nobody else can take one meanwhile.  kazoo's users have none, so that it may
 *     be any of N.
 *  5. Users of kazoo's locks do not see leases, and take theirs for one, so that no dlock lets
 *     K be both: it is a semaphore if its data are a number, or there are leases; whoever
 *     makes a lease lists K once more after that, as locks do after they have made their node.
 *  6. Whoever is first in the queue says in its node that it waits, until it has a lease: those
 *     behind take it for dead only while one is free that it does not take (wait.h, point 4).
 *  7. N stays in K when the last one has gone, as kazoo has it: its users read it once and
 *     for all.
 */
#ifndef DLOCK_ZK_POOL_H
#define DLOCK_ZK_POOL_H

#include "wait.h"

struct pool {
	struct turn *turn;            /* and our node, and the claim */
	struct lockdir queue, leases; /* our node lies in one of these */
	bool asked; /* there may be a lease of ours that we do not know of */
};

/* Does the claim want such a lease? */
bool pool_is_wanted(const struct lockdir *, const struct claim *);

/* `d` is the lock's, and named; our node is to be in the queue. */
void pool_begin(struct pool *, struct turn *, const struct lockdir *d);

/* Is our node a lease? */
bool pool_has_lease(const struct pool *);

/*
 * Our node is a lease, and it is not certain that we have looked for locks since it was
 * made: RC_PROTOCOL if there is one.
 */
enum rc pool_check(const struct pool *, instant until, struct fault *);

/* Our node is no more: the next one is to be in the queue. */
void pool_forget(struct pool *);

/* Did a transaction whose answer we have not got make our lease?  Then that is our node. */
enum rc pool_find(struct pool *, instant until, struct fault *);

/*
 * It is our turn in the queue: waits for a lease until `until` (0: not at all), and earns
 * the time.  As turn_await.
 */
enum rc pool_take(struct pool *, instant until, struct grant *g, struct fault *);

/*
 * Wherever we stand in the queue, which is listed: RC_PROTOCOL if the directory is a
 * semaphore's by its data, and we want a lock, or one for another N.
 */
enum rc pool_refuse(
    const struct turn *, const struct call *list, instant until, struct fault *);

/* The N that stands in a directory's data; -1: none does. */
long pool_limit(const struct call *directory);

#endif
