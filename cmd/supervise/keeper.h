/*
 * keeper.h - the process that keeps the lock.
 *
 * It owns the backend, the command and the lease; step.h decides, this carries
 * out.  It lives in a background process group of its own and has none of the
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

#include "link.h"
#include "cmd/plan.h"

/* What front and keeper agree on before they part. */
struct run {
	const struct plan *plan;
	const struct origin *origin;
	struct shared *shared;
	int ends[2];	  /* of the link: [0] the front's, [1] the keeper's */
	const char *path; /* what to execute */
	char owner[OWNER_CHARS + 1];
	char record[RECORD_BYTES];
	bool has_elders; /* the front has children from before: `daemon & exec dlock run ...` */
	instant began;
};

/* Runs in the keeper's process, right after the fork; never returns. */
_Noreturn void keeper_run(const struct run *);

#endif
