/*
 * redlock_wait.h - when to ask a quorum again for what was refused.
 *
 * Soon after a release, as far as one is told of it; where votes were divided, not in step
 * with the others; and now and then in any case.
 */
#ifndef DLOCK_REDIS_REDLOCK_WAIT_H
#define DLOCK_REDIS_REDLOCK_WAIT_H

#include "redlock_attempt.h"

struct redlock_wait {
	instant began;  /* to ask */
	unsigned tries; /* since the votes were divided */
	uint64_t dice;
};

void redlock_wait_begin(struct redlock_wait *, const struct claim *);

/* Is there nothing to wait for?  Who does not wait asks again only while votes are divided. */
bool redlock_wait_is_over(
    const struct redlock_wait *, const struct refusal *, instant until);

/*
 * Sleeps until there is reason to ask again for the lock that the quorum is named after.
 * RC_OK, RC_BUSY at `until` (without words), or RC_STOP.
 */
enum rc redlock_wait(
    struct redlock_wait *, struct quorum *, const struct refusal *, instant until);

#endif
