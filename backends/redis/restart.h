/*
 * restart.h - whether a master may have forgotten to whom it gave its vote.
 *
 * Its process, which a run ID names, must have been known to some host for longer than any
 * lease can last.  The master keeps who met it when (redlock.lua): by the clock of that
 * host since it was booted, for nobody can set that one.
 */
#ifndef DLOCK_REDIS_RESTART_H
#define DLOCK_REDIS_RESTART_H

#include <stdbool.h>
#include <stdint.h>

enum { CLOCK_ID_BYTES = 96 };

/* No lease on a quorum of masters is longer, ms: who restarts knows of none. */
int64_t restart_longest(void);

/* So long a process must have been known, ms. */
int64_t restart_enough(void);

/* May its vote count, which has been known for so long? */
bool restart_is_over(int64_t known);

/*
 * What names the clock of instant_now() among all hosts and their boots.  `otherwise`, of a
 * process alone, is what it is called where the system tells no more.
 */
void restart_name_clock(char id[CLOCK_ID_BYTES], const char *otherwise);

#endif
