/* clock.c - reads the one clock, and does sums with its instants. */
#include "clock.h"

#include <time.h>

instant
instant_now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_BOOTTIME, &t);
	return t.tv_sec * NS_PER_S + t.tv_nsec;
}

instant
instant_after(instant start, int64_t length)
{
	instant sum;

	if (length == NEVER || __builtin_add_overflow(start, length, &sum))
		return NEVER;
	return sum;
}
