/* lease.c - the arithmetic of one lease: when to renew, stop and kill, and what fits. */
#include "lease.h"

void
lease_deadlines(
    instant sent, int64_t lease, int64_t grace, instant *term_at, instant *kill_at)
{
	*kill_at = lease == LEASE_FOREVER ? NEVER : sent + lease - lease / 100 - KAPPA;
	*term_at = *kill_at == NEVER ? NEVER : *kill_at - grace;
}

int64_t
lease_attempt(int64_t lease)
{
	return lease / 10 < 3 * NS_PER_S ? lease / 10 : 3 * NS_PER_S;
}

int64_t
lease_backoff(int64_t lease)
{
	return lease_attempt(lease) / 6;
}

int64_t
lease_pace(int64_t lease)
{
	return lease / 3;
}

bool
lease_fits(int64_t lease, int64_t pace, int64_t grace)
{
	int64_t room = lease - lease / 100 - KAPPA - grace - pace;

	return room >= 2 * (lease_attempt(lease) + lease_backoff(lease));
}

int64_t
lease_grace(int64_t lease)
{
	return lease / 6 < 5 * NS_PER_S ? lease / 6 : 5 * NS_PER_S;
}

int64_t
lease_least(int64_t grace)
{
	int64_t tenth = NS_PER_S / 10, low = 30, high = 4000000000LL;

	if (!lease_fits(high * tenth, lease_pace(high * tenth), grace))
		return NEVER;
	while (low < high) { /* lease_fits grows with the lease */
		int64_t middle = low + (high - low) / 2;

		if (lease_fits(middle * tenth, lease_pace(middle * tenth), grace))
			high = middle;
		else
			low = middle + 1;
	}
	return low * tenth;
}
