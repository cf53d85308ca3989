/*
 * multi.h - several keys as one lock: all of them, or none.
 *
 * A decorator over the contract: a store for each key, of one backend at one
 * site, each with a host and a connection of its own; no backend knows of it.
 *
 *  1. Order.  The keys are taken one after the other in the order of their bytes,
 *     in whatever order they are named.  So nobody deadlocks: whoever waits for a
 *     key holds only lesser ones, which is why along any chain of "waits for a key
 *     that is held by" the keys grow, and none leads back to its beginning.
 *     Nobody starves: in each key's queue we keep the place that we have, whoever
 *     comes with one key or with many.
 *  2. Waiting.  While a key is waited for, those that we hold are renewed when their
 *     time has come: a store is asked to acquire once, and may not give up its place in a
 *     queue, so this happens inside its wait.  A key that is lost there, wanted back, or
 *     unanswered until its lease is over, is asked for again: it and all that come behind
 *     it are given back first, also the place in a queue, or the order of 1 would be
 *     broken.  Those before it are kept.  A key that is asked for again gets a store and
 *     an owner of its own, so that what is still on its way for the old one can do it no
 *     harm.  With `until` 0 nothing is asked for again: RC_BUSY.
 *  3. The grant.  RC_OK comes only when no key is due for a renewal and none has an
 *     alert.  Lease: the one that ends first; pace and soon: the shortest; token and slot: those
 *     of the key that was named first.  multi_grant() gives each one's.
 *  4. Renewal.  One after the other, each with a share of the time until `until`: so a
 *     store that gives no answer leaves the others theirs.  A key with an alert comes
 *     first; otherwise the one behind the key that gave no answer the last time.  RC_LOST
 *     as soon as one is lost, and the rest is not asked; else RC_REVOKED if any is wanted
 *     back, else RC_AGAIN if any gave no answer: then *grant is left alone, though the
 *     lease of the others may have grown.
 *  5. Release.  One after the other, too, with such shares.  RC_LOST if any was no longer
 *     ours (then nothing need be asked again: what may be left ends with its lease); else
 *     RC_AGAIN if any is unknown, and only such are asked for again by the next release.
 *     An acquire that fails leaves to it what was taken by then.
 *  6. A job (--once, --cooldown) belongs to the key that was named first, and is
 *     decided and remembered there.  That key is released last, with a share of the time
 *     like any other: one that is found lost then keeps the run from being remembered as
 *     done.
 *  7. Texts begin with the key they are about, and host->seen.key says which one
 *     is waited for.  A notice that several stores have is passed on once.
 *
 * Calls on one store never nest.  On two they do, and never on more: a held key is renewed
 * inside the wait for another (2), on one thread.
 */
#ifndef DLOCK_MULTI_H
#define DLOCK_MULTI_H

#include "backend.h"

/*
 * Opens a store for each of the n keys, which are all different; keys and site
 * outlive it.  Otherwise *ret is untouched: what the backend's open says, or
 * RC_USAGE if a setting names one lock for all keys.
 */
enum rc multi_open(struct store **ret, struct host *, const struct backend *,
    const struct site *, const char *const *keys, size_t n, struct fault *);

/* The grant of the i-th key as named; valid while all are held. */
const struct grant *multi_grant(struct store *, size_t i);

#endif
