/*
 * lock.h - the lock of a run: of one key, of several, or joined.
 *
 * It is served by an outer keeper that has it (join_inner.h), else by the run's backend,
 * through multi.h for several keys.  The calls are those of lock_ops, and mean the same.
 */
#ifndef DLOCK_LOCK_H
#define DLOCK_LOCK_H

#include "join_inner.h"
#include "run.h"

struct lock {
	const struct params *params;
	bool nested; /* it is a joined hold */
	struct claim claim;
	struct store *store; /* NULL: none is open */
	bool asked;          /* it may know of us */
	struct grant grant;
	struct anchors anchors; /* of all its keys; then outer.watched, if there is one */
	struct period period;   /* of --once-per, as the server's clock names it */
	struct join_inner outer; /* its host, site, parts and identity are the lock's */
};

/* The lock is zeroed; all else outlives it. */
void lock_init(struct lock *, const struct params *, const struct join_site *,
    struct host *, const char *owner, const char *record);

/* RC_CONFIG, too: the store cannot do what is asked for.  Not RC_OK: nothing is open. */
enum rc lock_open(struct lock *, struct fault *);

enum rc lock_acquire(struct lock *, instant until, struct fault *);

/* With RC_REVOKED and RC_LOST *fault names the one that wants it back, or has it, if known. */
enum rc lock_renew(struct lock *, instant until, struct fault *);

/*
 * RC_OK if no store was asked; RC_LOST as of lock_renew().  The outer keeper keeps a joined
 * hold until `keep_until`.
 */
enum rc lock_release(
    struct lock *, struct outcome, instant keep_until, instant until, struct fault *);

/* A client library that takes too long for its leave ends this process. */
void lock_close(struct lock *);

#endif
