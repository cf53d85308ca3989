/*
 * redlock.h - locks on a quorum of independent Redis masters: the backend's other row.
 *
 * It has the name and the schemes of the one in redis.c, which opens it for
 * redlock://; stores that it makes are of this row.
 */
#ifndef DLOCK_REDIS_REDLOCK_H
#define DLOCK_REDIS_REDLOCK_H

#include "backends/backend.h"

/* As struct backend's open. */
enum rc redlock_open(struct store **, struct host *, const struct site *, struct fault *);

/* Does this URL lead here?  NULL does not. */
bool redlock_is_meant(const char *url);

#endif
