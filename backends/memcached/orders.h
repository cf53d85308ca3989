/*
 * orders.h - takes locks away, and freezes keys, on a memcached server.
 */
#ifndef DLOCK_MEMCACHED_ORDERS_H
#define DLOCK_MEMCACHED_ORDERS_H

#include "sight.h"

/* As admin_ops has them. */
enum rc orders_revoke(struct cache *, const char *prefix, const struct target *,
    const char *record, bool force, instant until, struct fault *);
enum rc orders_freeze(struct cache *, const char *prefix, const char *key,
    const char *record, int64_t length, instant until, struct fault *);
enum rc orders_thaw(
    struct cache *, const char *prefix, const char *key, instant until, struct fault *);

#endif
