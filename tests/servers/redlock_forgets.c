/*
 * redlock_forgets.c - a Redlock that counts every vote, also that of a master which has
 * just restarted.  build/dlock-forgets has it in place of backends/redis/restart.c;
 * tests/system/test_redis_redlock.py shows why that is wrong.
 */
#include "backends/redis/restart.h"

bool
restart_is_over(int64_t uptime, int64_t longest, bool durable)
{
	(void)uptime, (void)longest, (void)durable;
	return true;
}
