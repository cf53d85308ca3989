/* restart.c - whether a master may have forgotten to whom it gave its vote. */
#include "restart.h"

/* Redis counts whole seconds and begins at one: it says 1 after 0.8 s. */
enum { ROUNDING_MS = 1000 };

bool
restart_is_over(int64_t uptime, int64_t longest, bool durable)
{
	return durable || uptime * 1000 >= longest + ROUNDING_MS;
}
