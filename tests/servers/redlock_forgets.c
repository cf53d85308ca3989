/*
 * redlock_forgets.c - a Redlock that counts every vote, also that of a master which has
 * just restarted.  build/dlock-forgets has it in place of backends/redis/quorum.c;
 * tests/system/redis/test_redlock.py shows why that is wrong.
 */
#define MARGIN_MS (-LONGEST_MS - 1)
#include "backends/redis/quorum.c"
