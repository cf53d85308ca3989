/*
 * multi.h - takes several keys as one lock: all of them, or none.
 *
 * It is a store itself, made of a store for each key.  These are of one backend at one site, and
 * each has a host and a connection of its own; no backend knows of the others.
 *
 *  1. Order.  The keys are taken one after the other in the order of their bytes,
 *     in whatever order they are named.  So no two runs deadlock: a run that waits
 *     for a key holds only lesser keys.  Along any chain of "waits for a key that is
 *     held by" the keys grow, so no chain leads back to its beginning.  No run
 *     starves: it keeps its place in each key's queue, whoever else comes with one
 *     key or with many.
 *  2. Waiting.  While we wait for a key, the keys that we hold are renewed when they are
 *     due.  A store is asked to acquire once, and may not give up its place in a queue,
 *     so the renewals happen inside its wait.  A key is asked for again if it is lost
 *     there, wanted back, or unanswered until its lease is over.  That key and all behind
 *     it are given back first, also the place in a queue, for the order of 1; those before
 *     it are kept.  A key that is asked for again gets a new store and a new owner, so
 *     that a late request of the old one can do no harm.  With `until` 0 nothing is asked
 *     for again: RC_BUSY.
 *  3. The grant.  RC_OK comes only when no key is due for a renewal and none has an
 *     alert.  The lease is the one that ends first; pace and soon are the shortest; token
 *     and slot are those of the key that was named first.  multi_grant() gives each key's.
 *  4. Renewal.  The keys are renewed one after the other, each with a share of the time
 *     until `until`, so that a store that gives no answer leaves the others theirs.  A key
 *     with an alert comes first; otherwise the key behind the one that gave no answer the
 *     last time.  The result is RC_LOST as soon as one is lost, and the rest is not asked;
 *     else RC_REVOKED if any is wanted back, else RC_AGAIN if any gave no answer.  RC_AGAIN
 *     leaves *grant alone, though the leases of some keys may have grown.
 *  5. Release.  The keys are released one after the other, with such shares.  The result
 *     is RC_LOST if any was no longer ours; then nothing is asked again, since what may be
 *     left ends with its lease.  It is RC_AGAIN if any is unknown, and the next release
 *     asks only for those.  An acquire that fails leaves the keys that it has taken to
 *     release.
 *  6. Job.  A job (--once, --cooldown) belongs to the key that was named first, and is
 *     decided and remembered there.  That key is released last, with a share of the time
 *     like any other, so that a key that is found lost before it keeps the run from being
 *     remembered as done.
 *  7. Texts.  A text begins with the key that it is about, and host->seen.key names the
 *     key that we wait for.  A notice that several stores have is passed on once.
 *
 * Calls on one store never nest.  Calls on two stores do, on one thread, since a held key is
 * renewed inside the wait for another (2).  Calls never nest deeper.
 */
#ifndef DLOCK_MULTI_H
#define DLOCK_MULTI_H

#include "backend.h"

/*
 * Opens a store for each of the n keys, which are all different; keys and site must outlive it.
 * If it fails, *ret is untouched: it returns what the backend's open says, or RC_USAGE if a
 * setting names one lock for all keys.
 */
enum rc multi_open(struct store **ret, struct host *, const struct backend *,
    const struct site *, const char *const *keys, size_t n, struct fault *);

/* The grant of the i-th key, in the order in which they are named; valid while all are held. */
const struct grant *multi_grant(struct store *, size_t i);

#endif
