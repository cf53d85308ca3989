/*
 * look.h - tells what locks a Redis server, or a cluster, has.
 */
#ifndef DLOCK_REDIS_LOOK_H
#define DLOCK_REDIS_LOOK_H

#include "dialects.h"

/*
 * admin_ops.each, in a cluster for all its masters: page by page, by a script that
 * writes nothing.  route_let_pages_in() comes first.
 */
enum rc look_each(
    struct route *, const struct dialect *, const struct look *, struct fault *);

#endif
