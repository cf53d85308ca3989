/* instant.c - reads the clocks, and adds to instants. */
#include "instant.h"

#include <time.h>

instant
instant_now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_BOOTTIME, &t);
	return t.tv_sec * NS_PER_S + t.tv_nsec;
}

int64_t
instant_epoch(void)
{
	struct timespec t;

	clock_gettime(CLOCK_REALTIME, &t);
	return t.tv_sec * US_PER_S + t.tv_nsec / 1000;
}

instant
instant_after(instant start, int64_t length)
{
	instant sum;

	if (length == NEVER || __builtin_add_overflow(start, length, &sum))
		return NEVER;
	return sum;
}

instant
instant_first(instant a, instant b)
{
	return a < b ? a : b;
}
