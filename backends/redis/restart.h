/*
 * restart.h - whether a master may have forgotten to whom it gave its vote.
 */
#ifndef DLOCK_REDIS_RESTART_H
#define DLOCK_REDIS_RESTART_H

#include <stdbool.h>
#include <stdint.h>

/*
 * May the vote of a master count that has run for `uptime` seconds, where leases of up to
 * `longest` ms are in use?  `durable`: a crash makes it forget nothing.
 */
bool restart_is_over(int64_t uptime, int64_t longest, bool durable);

#endif
