/*
 * alert.h - decides how often a host->alert is followed by a renewal.
 *
 * The first alerts in a row are followed at once, so that a lost lock is noticed.  But where a
 * server or a proxy ends every idle connection, each renewal brings the next alert.  So from then
 * on only one alert is followed in each thirtieth of the lease; renewals that are due anyhow are
 * not affected.  Alerts of a session lock are all followed at once: its connection is the lock,
 * and the next alert may be its end, after which the server gives the lock to others.
 *
 * A holder that could not begin to listen for alerts has its next renewal early, to try it again.
 */
#ifndef DLOCK_ALERT_H
#define DLOCK_ALERT_H

#include "instant.h"

/* All zero at first, when no alert has been followed. */
struct alert_pace {
	instant paid; /* up to here our alerts are paid for; later than now: in advance */
};

enum { ALERTS_AT_ONCE = 5 };

static inline int64_t
alert_space(int64_t lease)
{
	return lease / 30 > NS_PER_S ? lease / 30 : NS_PER_S;
}

/* When the next alert may be followed, with a lease of that length. */
static inline instant
alert_due(const struct alert_pace *a, int64_t lease)
{
	return a->paid - (ALERTS_AT_ONCE - 1) * alert_space(lease);
}

/* An alert is followed now. */
static inline void
alert_follow(struct alert_pace *a, int64_t lease, instant now)
{
	a->paid = (a->paid > now ? a->paid : now) + alert_space(lease);
}

/*
 * So long after its last one the next renewal of a holder is due that had no time to begin to
 * listen: twice as long each time, up to the usual third of the lease.  `last`: what this was the
 * time before; 0: it had the time.
 */
static inline int64_t
alert_unheard(int64_t lease, int64_t last)
{
	return instant_first(last ? 2 * last : alert_space(lease), lease / 3);
}

#endif
