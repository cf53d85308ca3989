/* token.c - how many changes a server has counted, over all its lives. */
#include "token.h"

enum { PER_S = 1000000 };

/* What was counted fits below its clock, whole seconds of it: as much as vitals_age() is unsure of. */
uint64_t
token_of(const struct vitals *v, uint64_t cas)
{
	int64_t known = vitals_uptime(v);

	if (known <= 0 || cas >= (uint64_t)known * PER_S)
		return 0;
	return (uint64_t)(v->time - v->uptime) * PER_S + cas;
}

int64_t
token_missing(const struct vitals *v, uint64_t cas)
{
	return (int64_t)(cas / PER_S) + 1 - vitals_uptime(v);
}
