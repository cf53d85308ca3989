/*
 * keeper_job.h - the keeper beside a shell's job, of which front and command are.
 *
 * It leaves the front's process group at once, and the session when that costs nothing.  A front
 * that is suspended is continued when it is needed.
 */
#ifndef DLOCK_KEEPER_JOB_H
#define DLOCK_KEEPER_JOB_H

#include "keeper_state.h"

/*
 * Takes this process out of the front's process group, and the keeper of a hold out of its
 * session: nothing of the user's terminal may be kept when he has gone home.
 */
void keeper_job_leave_group(struct keeper *);

/*
 * Takes it out of the session, if it still is in one with a terminal.  There we are what a shell
 * is to the group of front and command, a parent in another group.  The kernel takes that group
 * for a shell's job as long as we live: Ctrl-Z suspends it where no shell can continue it, and
 * nobody hangs it up when its shell has ended.  A new session costs a short command a
 * millisecond on a busy machine, where the kernel shares out processor time by sessions; so
 * incoming_wait() does it a little later, and when the command is suspended.
 */
void keeper_job_leave_session(struct keeper *);

/* So that the caller can unmount it. */
void keeper_job_leave_directory(struct keeper *);

/*
 * Looks at the front, when it is time.  A front that SIGSTOP has suspended (`kill -STOP %1`), or
 * had no process left for a guard (guard.h), would sleep on when we are killed.  The kernel is
 * told to continue it then.
 */
void keeper_job_look(struct keeper *);

/* There is a guard: our end is not to continue a front that SIGSTOP has suspended. */
void keeper_job_drop_guard(struct keeper *);

/* To a front that is suspended because the command was: the command goes on, or is gone. */
void keeper_job_wake_front(const struct keeper *);

#endif
