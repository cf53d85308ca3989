/*
 * side.h - names that the other tools' dialects share.
 */
#ifndef DLOCK_REDIS_SIDE_H
#define DLOCK_REDIS_SIDE_H

#include "dialect.h"

/*
 * The lock, called as its users call it, and our key beside it, as common.lua has them;
 * no channel.
 */
void side_names(struct names *, const struct dialect *, const char *key);

#endif
