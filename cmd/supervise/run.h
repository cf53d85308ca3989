/*
 * run.h - what front and keeper agree on before they part.
 *
 * cmd/run.c or cmd/hold.c fills it before the fork; from then on each has its own copy, and
 * only the shared page and the link carry anything further.
 */
#ifndef DLOCK_RUN_H
#define DLOCK_RUN_H

#include "cmd/plan.h"
#include "link.h"
#include "tree.h"

/* What ps(1) shows of a hold in the background; nothing goes by it. */
#define HOLD_NAME "dlock-hold"

struct run;

/*
 * `dlock hold`: the lock is not for a command of ours, but for a process that asks for
 * it and goes on by itself, or for nobody and a time.  Instead of the command's start,
 * a grant is delivered; from then on that process is stopped on a loss, as a command is.
 */
struct body {
	struct outside outside; /* pid 0: for nobody */
	instant until;          /* --for, from the grant on; NEVER */
	/*
	 * In the front: gives the grant to whoever has asked, and leaves him.  False, with
	 * errno: nobody has it; then the lock goes back.
	 */
	bool (*deliver)(const struct run *);
	pid_t asker; /* who waits for the delivery */
	/* what stderr was when hold was started: loss.h */
	bool has_stderr;
	dev_t stderr_device;
	ino_t stderr_inode;
};

struct run {
	const struct plan *plan;
	const struct origin *origin;
	struct shared *shared;
	int ends[2];       /* of the link: [0] the front's, [1] the keeper's */
	const char *path;  /* what to execute; NULL with a body */
	struct body *body; /* NULL: a command of ours is run */
	char owner[OWNER_CHARS + 1];
	char record[RECORD_BYTES];
	/* the front has children from before: `daemon & exec dlock run ...` */
	bool has_elders;
	instant began;
};

/*
 * Who is to be stopped besides our own: whoever has been given the lock; NULL: nobody, not
 * yet, or no more.
 */
static inline struct outside *
run_guarded(const struct run *r)
{
	return r->body && r->body->outside.pid && link_guards(r->shared)
	    ? &r->body->outside
	    : NULL;
}

#endif
