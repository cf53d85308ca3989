/*
 * front.h - the process that the user sees.
 *
 * It has the pid that the shell knows, the terminal, and nothing else: no
 * library, no thread, no socket to a server.  It passes signals on, speaks,
 * stops when the command stops, and ends as the command ended.
 *
 * And it watches the keeper: when that is killed, or frozen beyond a deadline,
 * the front kills the command's tree itself and reports the lock as lost; it
 * never releases, since it cannot know.
 */
#ifndef DLOCK_FRONT_H
#define DLOCK_FRONT_H

#include "run.h"
#include "verdict.h"

/* Runs beside a keeper just forked; returns how it ended, to be said and exited with. */
struct verdict front_run(const struct run *, pid_t keeper);

#endif
