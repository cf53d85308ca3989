/*
 * redlock_brief.c - a Redlock with leases of up to 3 s, so that tests need not wait for a
 * minute until a master that has restarted may vote.  build/dlock-brief has it in place of
 * backends/redis/quorum.c.
 */
#define LONGEST_MS 3000
#include "backends/redis/quorum.c"
