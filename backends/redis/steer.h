/*
 * steer.h - takes locks away, and freezes keys, on one Redis server.
 */
#ifndef DLOCK_REDIS_STEER_H
#define DLOCK_REDIS_STEER_H

#include "dialects.h"

/* As admin_ops; each is one run of the dialect's script, freeze and thaw of lock.lua. */
enum rc steer_revoke(struct route *, const struct dialect *, const struct target *,
    const char *record, bool force, instant until, struct fault *);
enum rc steer_freeze(struct route *, const char *key, const char *record, int64_t length,
    instant until, struct fault *);
enum rc steer_thaw(struct route *, const char *key, instant until, struct fault *);

#endif
