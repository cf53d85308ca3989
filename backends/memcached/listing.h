/*
 * listing.h - tells what locks a memcached server has.
 */
#ifndef DLOCK_MEMCACHED_LISTING_H
#define DLOCK_MEMCACHED_LISTING_H

#include "sight.h"

/* As admin_ops.each. */
enum rc listing_each(
    struct cache *, const char *prefix, const struct look *, struct fault *);

#endif
