/*
 * redlock_forgets.c - a Redlock that counts every vote, also that of a master which has
 * just restarted.  build/dlock-forgets has it in place of backends/redis/restart.c;
 * tests/system/redis/test_redlock.py shows why that is wrong.
 */
#define restart_is_over restart_is_really_over
#include "backends/redis/restart.c"
#undef restart_is_over

bool restart_is_over(int64_t known);

bool
restart_is_over(int64_t known)
{
	(void)known;
	return true;
}
