/*
 * keeper.h - the process that keeps the lock.
 *
 * It owns the backend, the command and the lease; step.h decides, this carries
 * out (keeper_inside.h: in two halves).  It lives in a background process group of its own and has none of the
 * user's descriptors: what is to be said, it tells the front.
 *
 * It may be killed or frozen at any line: the front watches, and the kernel
 * kills the command with it.  When the front dies, it stops the command's
 * tree, then releases.  After the front has been told the ending it may live
 * on alone, for --min-hold, or to release when the server did not answer; then
 * it has let go of the directory and the terminal, and ends on TERM.
 */
#ifndef DLOCK_KEEPER_H
#define DLOCK_KEEPER_H

#include "run.h"

/* Runs in the keeper's process, right after the fork; never returns. */
_Noreturn void keeper_run(const struct run *);

#endif
