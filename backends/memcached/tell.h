/*
 * tell.h - what the user is told: who holds the lock, why it is not granted, and what the
 * server has lost.
 *
 * The functions that return an rc always return the same one, with words in the fault and
 * host->seen set.
 */
#ifndef DLOCK_MEMCACHED_TELL_H
#define DLOCK_MEMCACHED_TELL_H

#include "memcached.h"
#include "sight.h"

/* A notice, once: that the server may lose locks (with -v), or that it has. */
void tell_losses(struct memcached *, const struct vitals *);

/* RC_AGAIN: nothing that is written by such a clock counts. */
enum rc tell_standstill(const struct memcached *, struct fault *);

/* RC_BUSY: held, or frozen. */
enum rc tell_busy(struct memcached *, struct sight *, struct fault *);

/* RC_BUSY: the server knows for `age` seconds only, less than the lease, who holds it. */
enum rc tell_young(struct memcached *, int64_t age, struct fault *);

/* RC_BUSY: with this CAS it has counted more changes than a token has room for (token.h). */
enum rc tell_crowded(
    struct memcached *, const struct vitals *, uint64_t cas, struct fault *);

#endif
