/*
 * jobs.h - what the jobs of a lock have done (struct job).
 *
 *	<above>/dlock-jobs/<lock>/last		the last run that was remembered
 *	<above>/dlock-jobs/<lock>/good		the last one that ended with 0
 *	<above>/dlock-jobs/<lock>/<era>/<ID>	one with an ID that ended with 0
 *
 *  1. It is no part of the lock's own directory <above>/<lock>, whose children Curator's
 *     users count.  The nodes are persistent.
 *  2. A release writes it in the transaction that deletes our node, so that it is there
 *     when the next one's turn comes, and only if the lock was still ours.
 *  3. Begin is the server's time at the grant, as told with our node; the end is the
 *     mtime of what was written.  Nobody can forge that one, so a begin after it is none.
 *  4. An era is 400 days of the server's time, the one in which a run has ended.  Two are
 *     looked at, and the one to come, if the clock goes back; older ones are removed, a
 *     few names at a time, by whoever looks.
 *  5. What others have written there, and is no record, is as if nothing were there; but an
 *     ID's node says that it was run, whatever it holds.
 */
#ifndef DLOCK_ZK_JOBS_H
#define DLOCK_ZK_JOBS_H

#include "node.h"

enum {
	JOBS_CHANGES = 3,
	JOBS_DIR_BYTES = DIR_BYTES + 16,
};

struct jobs {
	const struct claim *claim;
	char path[JOBS_DIR_BYTES]; /* the directory of that */
	/* by the server's clock, in ns; < 0: there is nothing to remember */
	int64_t began;
	/* that ID has been done by somebody while we held the lock as well */
	bool exists;
};

/* A run, as it is remembered.  Text is to be freed by jobs_forget(), or NULL. */
struct past_run {
	char *id, *record;
	char who[128]; /* of the record */
	uint64_t token;
	int64_t began, ended; /* server's, ns since 1970; -1: not known */
	int status;
};

/* What a node says; false: it is no run as we remember them. */
bool jobs_read(struct past_run *, const struct call *node);
void jobs_forget(struct past_run *);

/* Of a lock; claim NULL: to read `path` alone. */
void jobs_begin(struct jobs *, const struct claim *, const struct lockdir *);

/*
 * We have the lock, or a part of it: RC_DONE if the job has been done.  Otherwise it
 * begins now.
 */
enum rc jobs_check(struct jobs *, const struct node *, instant until, struct fault *);

/* What a release is to write. */
struct memory {
	struct change changes[JOBS_CHANGES];
	size_t n;
	struct path last, good, id;
	char data[4 * RECORD_BYTES];
};

/* The run has ended with `status`. */
void jobs_remember(struct jobs *, const struct node *, int status, struct memory *);

/* It could not be written: makes what is missing.  To be remembered anew. */
enum rc jobs_prepare(struct jobs *, const struct node *, instant until, struct fault *);

#endif
