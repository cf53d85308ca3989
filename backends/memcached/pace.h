/*
 * pace.h - how often a waiter asks.
 *
 * memcached tells nobody of a release.  So a waiter asks about every 200 ms, at random
 * within a quarter, so that many do not ask at once; once a second where the server is not
 * ready to grant anything: all of that passes with time.  A server that does not answer is
 * asked again as retry.h says.
 */
#ifndef DLOCK_MEMCACHED_PACE_H
#define DLOCK_MEMCACHED_PACE_H

#include "backends/common/retry.h"

/* Why nothing is granted, though nobody is known to hold it. */
enum unready {
	READY,
	UNREADY_YOUNG,   /* the server may have forgotten a holder */
	UNREADY_CROWDED, /* it has counted too much for a token */
};

struct pace {
	struct retry patience;
	uint64_t dice;
	enum unready unready; /* by the last answer */
	enum unready told;    /* the user knows that */
};

void pace_begin(struct pace *, const struct claim *);

/*
 * Sleeps until it is time to ask again, after an answer in words `f`.  RC_BUSY: `until` has
 * come (RC_AGAIN where it is the server that was waited for).  RC_STOP.
 */
enum rc pace_sleep(struct pace *, struct host *, instant until, const struct fault *f);

#endif
