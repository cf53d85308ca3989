/*
 * sentinel.h - where the sentinels say that the master is.
 *
 * They are asked all at once.  One that was cut off goes on naming the old master, so what
 * counts is what most of those in the URL say; where not so many answer until the time is
 * nearly over, or can answer, what all say that do.
 */
#ifndef DLOCK_REDIS_SENTINEL_H
#define DLOCK_REDIS_SENTINEL_H

#include "address.h"

struct sentinels;

/*
 * The hosts of the address are the sentinels, its master the name they are asked for, its
 * password theirs.  It is not copied.  NULL without memory.
 */
struct sentinels *sentinels_new(struct host *, const struct address *);
void sentinels_free(struct sentinels *);

/*
 * RC_OK: *master is what they say.  RC_AGAIN: too few answer, or they do not agree.
 * RC_CONFIG: they know no such master.  RC_DENIED, RC_PROTOCOL: what they answer instead.
 * RC_STOP, RC_SYSTEM.
 */
enum rc sentinels_ask(
    struct sentinels *, instant until, struct endpoint *master, struct fault *);

/*
 * Asks one of them, each time another, while something else is asked elsewhere; then
 * whether it has named another master than this one.  That it does not answer says
 * nothing.
 */
void sentinels_ask_one(struct sentinels *, instant until);
bool sentinels_one_differs(struct sentinels *, const struct endpoint *master);

/*
 * After sentinels_ask() for a host that is verbose: after how many ms of silence they
 * declare a master dead; 0: not known.
 */
int64_t sentinels_down_after(const struct sentinels *);

#endif
