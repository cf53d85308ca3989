/*
 * alert.h - how often a host->alert is followed by a renewal.
 *
 * Several in a row are followed at once: a lock that was lost is to be noticed.  But where
 * a server or a proxy ends every connection that is idle, each renewal makes the next alert:
 * so after that, one is followed in each thirtieth of the lease, and what is due anyhow comes
 * as ever.  Not so of a lock that is tied to a connection: it has no other one, and the next
 * alert may be its end, after which the server gives it to others at once.
 */
#ifndef DLOCK_ALERT_H
#define DLOCK_ALERT_H

#include "instant.h"

/* Zero at first: none has been followed. */
struct alert_pace {
	instant paid; /* for those that have been followed; later than now: in advance */
};

enum { ALERTS_AT_ONCE = 5 };

static inline int64_t
alert_space(int64_t lease)
{
	return lease / 30 > NS_PER_S ? lease / 30 : NS_PER_S;
}

/* When the next one may be followed, at a lease of such a length. */
static inline instant
alert_due(const struct alert_pace *a, int64_t lease)
{
	return a->paid - (ALERTS_AT_ONCE - 1) * alert_space(lease);
}

/* One is. */
static inline void
alert_follow(struct alert_pace *a, int64_t lease, instant now)
{
	a->paid = (a->paid > now ? a->paid : now) + alert_space(lease);
}

#endif
