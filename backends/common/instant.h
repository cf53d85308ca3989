/*
 * instant.h - the clocks that everything here reads.
 *
 * Every instant in dlock is nanoseconds on CLOCK_BOOTTIME: it goes on while a
 * laptop sleeps, as the lease on the server does, and no administrator can set
 * it.  The wall clock (instant_epoch()) only tells people times, and makes tokens, IDs and ends
 * of what has no server's clock.
 */
#ifndef DLOCK_INSTANT_H
#define DLOCK_INSTANT_H

#include <stdint.h>

typedef int64_t instant; /* the only typedef of dlock */

#define NS_PER_MS 1000000LL
#define NS_PER_S 1000000000LL
#define US_PER_S 1000000LL

/* Later than anything that happens; what a wait without end waits for. */
#define NEVER INT64_MAX

instant instant_now(void);

/* By this machine's wall clock, in microseconds since 1970. */
int64_t instant_epoch(void);

/* start + length, where either may be NEVER; never wraps round. */
instant instant_after(instant start, int64_t length);

static inline instant
instant_first(instant a, instant b)
{
	return a < b ? a : b;
}

/* Whole milliseconds for a server, rounded up so that 1 ns does not become 0. */
static inline int64_t
ns_to_ms(int64_t ns)
{
	return ns / NS_PER_MS + (ns % NS_PER_MS > 0);
}

#endif
