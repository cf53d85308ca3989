/*
 * lease.h - mode=lease: a hold is a row that ends.
 *
 *	ask      one call of a procedure: granted, or a place in the queue (standing.h)
 *	wait     until there is reason to ask, or a grant that has to be confirmed
 *	confirm  by a renewal: it earns the lease, and shows that somebody is there to run
 *	renew    one call
 *	release  one call
 *
 *  1. Every operation is one call of a procedure: one transaction, one round trip, by the
 *     server's clock; where others have to do with the key, the first request takes one
 *     more.  Each is idempotent for an owner, so that one whose answer got lost MAY be sent
 *     again; renew and release only ever touch what is this owner's.
 *  2. The lease outlives connection and server.  Whatever happens to these is RC_AGAIN, a
 *     new connection and the same question; RC_LOST is said on the server's word alone: no
 *     row of ours, or no such table.
 *  3. A waiter sleeps in the server, on the wake-up lock of one before it, in chunks.  That
 *     is a lock of the session of who waits or holds: so the waiter lives as long as its own
 *     is held, a chunk in vain is followed by the next, and nothing is written.
 *  4. Where the wake-up lock is free although its owner has not gone, that one has no
 *     connection at the moment: then we ask now and then.  So does every waiter where there
 *     are no wake-up locks (a pooler or proxy in between), or too many; asking is then also
 *     its sign of life.
 *  5. A waiter that has been granted renews once before it goes on: that request earns the
 *     lease, and shows that somebody is there to run.  A job asks instead, for that is where
 *     the server looks whether it has been done.
 */
#ifndef DLOCK_SQL_LEASE_H
#define DLOCK_SQL_LEASE_H

#include "sql.h"
#include "standing.h"

enum lease_call {
	LEASE_TAKE,
	LEASE_ENTER,
	LEASE_AWAIT,
	LEASE_RENEW,
	LEASE_RELEASE,
	LEASE_LIST,
	LEASE_LAST_RUN,
	LEASE_ASK_BACK,
	LEASE_TAKE_AWAY,
	LEASE_FREEZE,
	LEASE_THAW,
	LEASE_CALLS
};

/* How long a wake-up lock's name is, with the NUL. */
enum { WAKE_BYTES = OWNER_CHARS + 2 };

/*
 * How a database's procedures are called.  Their values, and columns; behind both are the
 * driver's own.
 *
 *	take       key, owner, record: a token, NULL where there is somebody
 *	enter      key, owner, record, lease, patience, kind, limit, once, cooldown:
 *	           ANSWER_CODE to ANSWER_NEXT, the wake-up lock to sleep on (NULL: there
 *	           is none), DONE_BY to DONE_AGE_MS.  Patience 0: do not queue
 *	await      key, owner, wake-up lock, how long: enum slept, ANSWER_TOKEN,
 *	           ANSWER_SLOT; ANSWER_PLACE to ANSWER_NEXT, if the driver has as many
 *	renew      key, owner, token, lease: is it ours; who asks for it, or has taken it
 *	release    key, owner; for a job that has run, its status and ID: enum was
 *	list       key or NULL; key, turn and number of the last row; how many: enum listed
 *	last_run   key: RUN_ID to RUN_RECORD
 *	ask_back   key, token, owner, record: is it done
 *	take_away  the same
 *	freeze     key, record, how long (NULL: without an end)
 *	thaw       key: is it done
 *
 * Times are milliseconds.
 */
struct lease_text {
	const char *text;
	unsigned fields;
};

struct lease_driver {
	struct lease_text texts[LEASE_CALLS];
	const char *release_among;  /* where somebody else may have to do with the key, */
	const char *release_of_job; /* and where a job has run; as many fields */

	bool hides_owner; /* others may read statements: those have a hash of the owner */
	bool any_order;   /* of keys: the database's need not be that of their bytes */
	const char *damaged; /* what to call a row that no dlock has written */

	/* Its own values for a call which must be over by `until`: how many (at most 4). */
	size_t (*values)(
	    struct sql *, enum lease_call, instant until, struct sql_value *);

	/* Reads its own columns, from `first` on.  False: they make no sense. */
	bool (*heard)(struct sql *, enum lease_call, const struct row *, int first);

	/* May this connection have wake-up locks that others see? */
	bool (*has_wake_lock)(const struct sql *);

	/*
	 * A release, and take_away, have been answered.  NULL: there is nothing more to do.
	 */
	void (*released)(struct sql *, instant until);
	void (*taken_away)(struct sql *, const struct row *, int first, instant until);

	/* Has a notification come?  NULL: the database has none. */
	bool (*is_notified)(struct sql *);

	/*
	 * Our own wake-up lock: await() on that does not sleep, and says whether we have been
	 * granted.  NULL: await() would take long.
	 */
	const char *(*own_wake_lock)(struct sql *);
};

/* mode=lease's own. */
struct lease {
	struct sql *db;
	const struct claim *claim;
	char me[OWNER_CHARS + 1]; /* the owner in the tables */
	bool asked;               /* the server may know of us */
	bool held;                /* it has said that we hold */
	bool unsure;              /* a release went unanswered: it may be done */
	bool among; /* somebody else may have to do with the key: ask for a place */
	uint64_t token;
	struct standing standing;
	unsigned serial; /* of the connection over which we were told where we are */
	char ahead[WAKE_BYTES];    /* the wake-up lock to sleep on; "": there is none */
	char was_free[WAKE_BYTES]; /* one that was, when we were to sleep on it; or "" */
	bool has_own;              /* that connection has our own wake-up lock */
	bool is_listening;         /* and a notification will come to it */
	/* `ahead` is one of several holders, any of whom will do: sleep a little only */
	bool is_one_of_many;
};

extern const struct sql_mode lease_mode;

/* The lease's own, for its driver. */
static inline struct lease *
lease_of(const struct sql *db)
{
	return sql_own(db, &lease_mode);
}

/* The question of a call, with values written as SQL_VALUES(). */
#define LEASE_QUESTION(db, which, ...) \
	((struct question){.text = (db)->driver->lease->texts[which].text, \
	    .fields = (db)->driver->lease->texts[which].fields, \
	    SQL_VALUES(__VA_ARGS__)})

/* ---- lease_look.c ---- */

enum rc lease_each(struct sql *, const struct look *, struct fault *);
enum rc lease_revoke(struct sql *, const struct target *, const char *record, bool force,
    instant until, struct fault *);
enum rc lease_freeze(struct sql *, const char *key, const char *record, int64_t length,
    instant until, struct fault *);
enum rc lease_thaw(struct sql *, const char *key, instant until, struct fault *);

#endif
