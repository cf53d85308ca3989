/*
 * lease.h - mode=lease: a hold is a row that ends.
 *
 *	ask      one call of a procedure: granted, or a place in the queue
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
 *  5. Where the database can tell, a holder asks to be told of a break, from its first
 *     renewal on: short runs do without.  What it is told is a hint to renew at once, and
 *     nothing else.
 *  6. A job that has waited and is told of a grant does not confirm, but asks: that is where the
 *     server looks whether it has been done.
 *  7. Where several servers write, a write of another one may become visible between two statements
 *     of `enter`: it may read the runs before a release, and the holds after it.  So a job asks once
 *     more after a grant.  Whoever finds its own hold there sees all that was before that grant.
 *     And a freeze changes the row of its key, as each grant does, so that the servers put the two
 *     in an order: a grant that has not seen the freeze is committed before it, or not at all.
 *     A look at a key waits until all has arrived that was confirmed before.
 *
 * Where a claim stands in the queue is what the server has said of it, and when to ask again
 * (struct lease_place).  A waiter sleeps until its turn, in the server or here.  Those who are
 * told by nobody ask now and then, the first in the queue most often.  Of a thousand waiters no two
 * are to ask in step, so each pause is a bit off, by the owner's random bits.
 */
#ifndef DLOCK_SQL_LEASE_H
#define DLOCK_SQL_LEASE_H

#include "sql.h"

/* ---- a place in the queue (lease_place.c) ---- */

enum place_code {
	IN_USE = -1, /* another kind of lock is, beside which we may not even wait */
	QUEUED,
	GRANTED,
	DONE /* the job has been */
};

/* The columns with which an answer begins. */
enum {
	ANSWER_CODE,
	ANSWER_TOKEN, /* GRANTED: it; DONE: NULL where the server has nothing of ours */
	ANSWER_SLOT,  /* GRANTED: of a limited lock */
	/* QUEUED: our place, 1 is the first; ms until a lease ends, NULL: nobody holds; */
	ANSWER_PLACE,
	ANSWER_LEFT_MS,
	/* ms that one holder has had it, its record, how many hold; */
	ANSWER_HELD_MS,
	ANSWER_HOLDER,
	ANSWER_HOLDERS,
	/* their kind, and its limit (IN_USE: of the one that is); */
	ANSWER_KIND,
	ANSWER_LIMIT,
	ANSWER_NEXT, /* and whether the end of that lease is ours to notice */
	ANSWER_MORE  /* the backend's own follow */
};

/* DONE: how it was found, begin and age; consecutive, from a column of the backend's. */
enum { DONE_BY, DONE_BEGAN_MS, DONE_AGE_MS };

struct lease_place {
	enum place_code code;
	int64_t token, slot;       /* GRANTED; token 0: no grant */
	int64_t position, left_ms; /* QUEUED */
	bool next;
	/* IN_USE */
	enum lock_kind kind;
	int64_t limit;
	/* DONE */
	struct done {
		bool forgotten; /* the server has nothing of ours */
		bool recently;  /* not this ID, but within the cooldown: `age_ms` ago */
		int64_t began_ms, age_ms;
		char who[128]; /* who ran it; "": not known; the backend's to set */
	} done;
	unsigned jitter; /* counts what must not be done in step with others */
};

/*
 * What the server says of a claim; of a queue also host->seen.  `done`: the column with
 * which DONE_BY begins.  False: it makes no sense.
 */
bool lease_place_read(struct lease_place *, const struct claim *, struct host *,
    const struct row *, int done);

/* What the question says whether there is nobody: a token, all alone, for a grant. */
bool lease_place_read_taken(struct lease_place *, const struct row *);

/* Is the end of the holder's lease ours to notice? */
bool lease_place_concerns_us(const struct lease_place *);

/* `wake`, or that end, if it is ours to notice and comes first. */
instant lease_place_wake(const struct lease_place *, instant wake);

/*
 * How long not to ask, for who is at this place and told by nobody: 0.2 s for the first
 * of them, at most 2 s.
 */
int64_t lease_place_pause(struct lease_place *, const struct claim *, int64_t position);

/*
 * So long one sleep in the server is, `most` at the most.  Whoever is before us may become
 * the holder meanwhile and be cut off: so less than a lease.
 */
int64_t lease_place_chunk(struct lease_place *, const struct claim *, int64_t most);

/* ---- a lease ---- */

/* How long a wake-up lock's name is, with the NUL. */
enum { WAKE_BYTES = OWNER_CHARS + 2 };

/* A call that lists, and what lists the same in schemas that have not got it; NULL: all have. */
struct lease_list {
	const char *name, *older;
};

/*
 * What differs between databases.  Their procedures have the same names, arguments and columns:
 * the two schema.sql say what each does.
 */
struct lease_driver {
	bool hides_owner; /* others may read statements: those have a hash of the owner */
	bool any_order;   /* of keys: the database's need not be that of their bytes */
	bool releases_alone; /* release_alone is quicker, where nobody else was seen */
	const char *damaged; /* what to call a row that no dlock has written */
	const char *freeze;  /* how that is called; NULL: as the others */
	/* what freezes for other servers that write, too; NULL: the same */
	const char *freeze_for_all;
	const char *forget; /* what forgets runs, also those that are kept apart */
	const char *clock;  /* microseconds since 1970, of what all have */

	struct lease_list last; /* of keys: the last runs */
	struct lease_list done; /* of IDs: the last one that ended with 0 */

	/*
	 * Ends sessions of ours that are left over, after a release.  $1 is the owner in the
	 * tables.
	 */
	const char *end_old_sessions;
	unsigned end_old_fields;

	/* Of the connection, as we were told it; 0: others would not see what it keeps. */
	int64_t (*session_number)(const struct sql *);

	/* Of our wake-up lock.  NULL: there is none. */
	int64_t (*wake_number)(const struct sql *);

	/*
	 * That instant by the server's clock, for take and enter, and what that clock says.
	 * NULL: these do not ask.
	 */
	int64_t (*server_time)(const struct sql *, instant);
	void (*set_clock)(struct sql *, int64_t microseconds);

	/* where one of several servers is asked, what waits for all that the others have confirmed */
	const char *catch_up;

	/* take_away has been answered.  NULL: there is nothing more to do. */
	void (*taken_away)(struct sql *, instant until);

	/*
	 * Statements by which a holder is notified of a break: what stands before the token where
	 * it asks for that; and with $1, the token, what notifies it.  NULL: the database cannot.
	 */
	const char *listen, *notify;

	/* Has a notification come?  NULL: the database has none. */
	bool (*is_notified)(struct sql *);
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
	struct lease_place place;
	char was_free
	    [WAKE_BYTES]; /* a wake-up lock that was, when we were to sleep on it */
	bool left_over;   /* a session that had ours may live on, at the server alone */
	bool is_deaf;     /* asking to be notified has cost a connection */
	/* what there is of us on one connection: */
	unsigned serial;   /* its */
	bool is_direct;    /* nobody is between us and the server */
	bool has_own;      /* it has our own wake-up lock */
	int64_t lacking;   /* ns: the last space without that; 0: there was none */
	bool has_slept;    /* in the server */
	bool is_listening; /* a notification will come to it */
	bool hears_breaks; /* it has asked to be notified of one */
	int64_t unheard; /* ns: as alert_unheard() was the last time; 0: it had time to */
	char ahead[WAKE_BYTES]; /* the wake-up lock to sleep on; "": there is none */
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

/* A call of a procedure, with values written as SQL_VALUES(). */
#define LEASE_QUESTION(name, columns, ...) \
	((struct question){ \
	    .procedure = (name), .fields = (columns), SQL_VALUES(__VA_ARGS__)})

/* ---- between the files of a lease ---- */

/*
 * When a session that lacks our wake-up lock asks for it again, in ns, `most` at most.  Whoever looks
 * for us has that lock for a moment, and so has a session of ours whose connection has just ended.
 */
int64_t lease_own_space(struct lease *, int64_t most);

/* What a call is told of the connection, behind its other values and in this order. */
enum {
	OWN_SESSION = 1,      /* the number of our session */
	OWN_SESSION_TAKE = 2, /* the same; 0: there is no wake-up lock to be taken */
	OWN_LOCK = 4,         /* has the session our wake-up lock? */
	OWN_DEADLINE = 8,     /* by the server's clock, if the procedures take one */
	OWN_WAKE = 16,        /* the number of our wake-up lock, if they have one; */
	OWN_WAKE_GIVE = 32    /* the same; 0: the session lacks it */
};

/* A question for our claim, of `owner`. */
#define CLAIM_QUESTION(l, owner, name, columns, which, ...) \
	((struct question){.procedure = (name), \
	    .fields = (columns), \
	    SQL_VALUES(SQL_TEXT((l)->claim->key), SQL_TEXT(owner), __VA_ARGS__), \
	    .more = lease_own_values, \
	    .call = (which)})

size_t lease_own_values(struct sql *, int which, instant until, struct sql_value *);

/* Has the session our wake-up lock now?  NULL: as before. */
void lease_note_own(struct lease *, const struct row *, int field);

/* Nothing that comes over this connection is believed any more. */
enum rc lease_refuse_answer(struct lease *, struct fault *);

/*
 * Returns when there is reason to ask, or with the token of a grant (lease_place.c).
 * RC_BUSY: `until` has come.
 */
enum rc lease_sleep(struct lease *, instant until, struct fault *);

/* ---- lease_look.c ---- */

enum rc lease_each(struct sql *, const struct look *, struct fault *);
enum rc lease_revoke(struct sql *, const struct target *, const char *record, bool force,
    instant until, struct fault *);
enum rc lease_freeze(struct sql *, const char *key, const char *record, int64_t length,
    instant until, struct fault *);
enum rc lease_thaw(struct sql *, const char *key, instant until, struct fault *);
enum rc lease_forget(
    struct sql *, const char *key, const char *once, instant until, struct fault *);

#endif
