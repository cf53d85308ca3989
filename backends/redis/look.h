/*
 * look.h - tells what locks one Redis server has.
 */
#ifndef DLOCK_REDIS_LOOK_H
#define DLOCK_REDIS_LOOK_H

#include "dialect.h"

/*
 * admin_ops.each for one server: page by page, by a script that writes nothing.  The
 * server's wire must let in resp_pages.
 */
enum rc look_each(
    struct server *, const struct dialect *, const struct look *, struct fault *);

#endif
