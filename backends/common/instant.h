/*
 * instant.h - the two clocks that dlock reads.
 *
 * Every instant in dlock is nanoseconds on CLOCK_BOOTTIME.  That clock goes on while a laptop
 * sleeps, as the lease on the server does, and no administrator can set it.  The wall clock
 * (instant_epoch()) tells people times; where there is no server's clock, it also makes tokens,
 * IDs and ends of freezes.
 */
#ifndef DLOCK_INSTANT_H
#define DLOCK_INSTANT_H

#include <stdint.h>

typedef int64_t instant; /* the only typedef of dlock */

#define NS_PER_MS 1000000LL
#define NS_PER_S 1000000000LL
#define US_PER_S 1000000LL

/* Later than anything that happens: a wait without an end waits until then. */
#define NEVER INT64_MAX

instant instant_now(void);

/* The time of this machine's wall clock, in microseconds since 1970. */
int64_t instant_epoch(void);

/* Adds start + length, either of which may be NEVER; the sum does not wrap round. */
instant instant_after(instant start, int64_t length);

/* The earlier of the two. */
instant instant_first(instant, instant);

/* Rounds up to whole milliseconds for a server, so that 1 ns does not become 0. */
static inline int64_t
ns_to_ms(int64_t ns)
{
	return ns / NS_PER_MS + (ns % NS_PER_MS > 0);
}

#endif
