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
	int64_t lease = 3 * NS_PER_S; /* what --ttl may be at least */

	if (lease < grace / 2 * 3) /* that is too short, as two thirds come before TERM */
		lease = grace / 2 * 3 / NS_PER_S * NS_PER_S;
	while (!lease_fits(lease, lease_pace(lease), grace))
		lease += NS_PER_S;
	return lease;
}
