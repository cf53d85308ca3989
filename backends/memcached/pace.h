/*
 * pace.h - how often a waiter asks.
 *
 * memcached tells nobody of a release.  So a waiter asks about every 200 ms, at random
 * within a quarter, so that many do not ask at once; once a second where the server has
 * not been running for long enough to grant anything.  A server that does not answer is
 * asked again as patience.h says.
 */
#ifndef DLOCK_MEMCACHED_PACE_H
#define DLOCK_MEMCACHED_PACE_H

#include "backends/patience.h"

struct pace {
	struct patience patience;
	uint64_t dice;
	bool young; /* the last answer: the server may have forgotten a holder */
	bool young_told;
};

void pace_begin(struct pace *, const struct claim *);

/*
 * Sleeps until it is time to ask again, after an answer in words `f`.  RC_BUSY: `until` has
 * come (RC_AGAIN where it is the server that was waited for).  RC_STOP.
 */
enum rc pace_sleep(struct pace *, struct host *, instant until, const struct fault *f);

#endif
