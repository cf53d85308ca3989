/*
 * permit.h - one of the N permits of a limited lock, in the layout of Curator's
 * InterProcessSemaphoreV2.
 *
 *	K/_c_<uuid>-<N>-unit-<n>	our place among all dlocks (queue.h), with the slot in its data
 *	K/locks/_c_<uuid>-lock-<n>	while we take a permit: the first one may
 *	K/leases/_c_<uuid>-lease-<n>	our permit, as Curator's users count it
 *	K/slots/<slot>			our slot
 *
 *  1. When it is our turn in K, at most N - 1 dlocks hold a permit.  Then we go to K/locks,
 *     where Curator's users stand, too; not before, since the first one there stops them all.
 *  2. Whoever is first in K/locks is the only one who may make a lease, so that the number of
 *     leases can only fall while we are that.  We wait until there are fewer than N; then
 *     one transaction makes lease and slot, removes our node from K/locks and writes our
 *     node in K, which earns the time.  All or nothing: there is no moment at which
 *     somebody counts one of them without the other.
 *  3. What we go by is not too old, though it is read from a server that may lag: whoever
 *     was before us in K/locks made lease and slot in the transaction by which it left (Curator's
 *     users: before), so a server that no longer shows it there shows these.
 *  4. No two holders have one slot, whatever they have read: a slot is the name of a node, and
 *     the second one's transaction fails.  It is the lowest that is free, since nobody else can
 *     take one meanwhile.  It goes with its owner's session, or in the transaction that gives up
 *     the place in K, the lease and the slot.
 *  5. Each renewal checks that lease and slot are there (node.h): if somebody deletes one, the
 *     lock is lost.
 *  6. After a lost connection our node in K/locks is where it was, or the transaction has
 *     happened; then the permit is ours, if the slot is our session's.  Whoever has lost the place in
 *     K goes from K/locks, too: those before it in K would wait for it there.
 */
#ifndef DLOCK_ZK_PERMIT_H
#define DLOCK_ZK_PERMIT_H

#include "wait.h"

struct permit {
	struct turn *turn; /* and our node, and the claim */
	/* our node in K/locks; "": there is none that we know of */
	char lock[NODE_BYTES];
	char tried[NODE_BYTES]; /* the slot that we may have, */
	/* and nodes in K/locks and K/leases, though we hold no permit */
	bool asked;
};

/*
 * It is our turn in K: waits for a permit until `until` (0: not at all), and earns a
 * lease.  As turn_await.
 */
enum rc permit_take(struct permit *, instant until, struct grant *g, struct fault *);

/* Removes whatever an attempt has left that did not come to its end. */
enum rc permit_sweep(struct permit *, instant until, struct fault *);

#endif
