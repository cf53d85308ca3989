/*
 * lease.h - mode=lease of the databases: a lease that procedures of a database keep.
 *
 *	ask      one call of a procedure: granted, or a place in the queue (standing.h)
 *	wait     until there is reason to ask, or a grant that has to be confirmed
 *	confirm  by a renewal: it earns the lease, and shows that somebody is there to run
 *	renew    one call
 *	release  one call
 *
 * Every call is idempotent for an owner, so that one whose answer got lost may be sent
 * again.  A backend puts the questions, sleeps in its server's way, and reads rows; what an
 * answer means for the lease is said here.
 */
#ifndef DLOCK_SQL_LEASE_H
#define DLOCK_SQL_LEASE_H

#include "backends/common/retry.h"
#include "standing.h"

#define ASK_PATIENCE (5 * NS_PER_S) /* for an answer while in the queue */
/* for one that comes late, after a sleep in the server */
#define ASK_LEAST NS_PER_S

/* What each backend does in its own way. */
struct sql_lease_calls {
	/*
	 * Asks: first whether there is nobody (unless `among`), then for a place; without
	 * `queue` only for what can be had at once.  What came is in `standing`, and went
	 * to sql_lease_heard().
	 */
	enum rc (*ask)(
	    struct store *, bool queue, instant until, struct grant *, struct fault *);

	/*
	 * We are in the queue: returns when there is reason to ask, or with the token of a
	 * grant in `standing`.  RC_BUSY: `until` has come.
	 */
	enum rc (*wait)(struct store *, instant until, struct fault *);

	/* After a failure in the queue: RC_OK when it is time to try again. */
	enum rc (*try_again)(struct store *, enum rc, instant until);
};

struct sql_lease {
	struct store *store;
	const struct sql_lease_calls *calls;
	const struct claim *claim;
	struct retry *patience;
	bool asked;  /* the server may know of us */
	bool held;   /* it has said that we hold */
	bool unsure; /* a release went unanswered: it may be done */
	bool among;  /* somebody else may have to do with the key: ask for a place */
	uint64_t token;
	struct standing standing;
};

/* acquire; whatever is zero in the struct begins so. */
enum rc sql_lease_acquire(
    struct sql_lease *, instant until, struct grant *, struct fault *);

/* It is ours, by the request that left at `sent`: `standing` has token and slot. */
void sql_lease_granted(struct sql_lease *, instant sent, struct grant *);

/* What `standing`, which a request has brought that left at `sent`, means for acquire. */
enum rc sql_lease_heard(struct sql_lease *, instant sent, struct grant *, struct fault *);

/* Sleeps here, until `wake`.  RC_BUSY: `until` has come. */
enum rc sql_lease_sleep(struct sql_lease *, instant wake, instant until, struct fault *);

/* RC_BUSY: it has come. */
enum rc sql_lease_still_held(const struct sql_lease *, struct fault *);

/*
 * What the answer to a renewal means that left at `sent`: is it ours, and the record of
 * who asks for it or has taken it away, else NULL.
 */
enum rc sql_lease_renewed(struct sql_lease *, bool ours, const char *by, instant sent,
    struct grant *, struct fault *);

/*
 * What the answer to a release means: was there anything of ours?  `again`: the question
 * may have been heard twice.  Where it had been lost, a renewal asks who has taken it away.
 */
enum rc sql_lease_released(
    struct sql_lease *, bool was_ours, bool again, instant until, struct fault *);

/*
 * What no answer to a renewal or a release means, but `rc`.  `missing`: because the tables are, and a
 * lock with them.
 */
enum rc sql_lease_not_renewed(struct sql_lease *, enum rc, bool missing, struct fault *);
enum rc sql_lease_not_released(struct sql_lease *, enum rc, bool missing, struct fault *);

#endif
