/*
 * cluster.h - which nodes of a Redis cluster are masters.
 */
#ifndef DLOCK_REDIS_CLUSTER_H
#define DLOCK_REDIS_CLUSTER_H

#include "call.h"

/*
 * RC_OK: *n of them, up to NODES, as the node that is asked sees it; call_let_pages_in()
 * comes first.  RC_SYSTEM: there are more.
 */
enum rc cluster_masters(struct call *, instant until, struct endpoint masters[NODES],
    size_t *n, struct fault *);

#endif
