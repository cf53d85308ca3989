/*
 * row.h - mode=row: the textbook's lock, SELECT ... FOR UPDATE (shared: FOR SHARE) in a
 * transaction that stays open as long as the lock is held.
 *
 *  1. The rows are those of one table, one a key, made when missing and never deleted.  Any
 *     program that locks one excludes dlock, and is excluded.
 *  2. A heartbeat looks whether it still is the same transaction.
 *  3. Waiting is done in chunks, a transaction each, and at the end of each one loses the
 *     place.
 *  4. What it costs: a connection for each holder and waiter, and a transaction as long as
 *     the lock (in PostgreSQL it holds vacuum back, in MySQL whoever alters the tables).
 */
#ifndef DLOCK_SQL_ROW_H
#define DLOCK_SQL_ROW_H

#include "session_lock.h"

enum row_found { ROW_MISSING, ROW_HELD, ROW_OURS };

/* mode=row's own. */
struct row_lock {
	struct session_lock lock;
	int64_t number; /* of the transaction in which the row is locked */
};

/* What differs between databases, beside the mode. */
struct row_driver {
	const struct sql_mode *mode;
	/* makes the row of $1, so that all see it */
	const char *add;
	unsigned add_fields;
	/* is it still the transaction of a number: what stands before that, and behind it; */
	const char *still, *still_end;
	/* the same where it is given back */
	const char *release_end;
	bool harmless; /* as a question is */

	/*
	 * One attempt, in a transaction of its own that waits for so long (0: now or never).
	 * It is left open with ROW_OURS alone; then there is a number, and a grant.
	 */
	enum rc (*attempt)(struct sql *, int64_t ms, instant until, enum row_found *,
	    struct grant *, struct fault *);

	/* Who is there, into host->seen?  NULL: an attempt has told. */
	enum rc (*see)(struct sql *, const char *key, instant until, struct fault *);
};

static inline struct row_lock *
row_lock_of(const struct sql *db)
{
	return sql_own(db, db->driver->row->mode);
}

/* For struct session_lock_way (session_lock.h). */
enum rc row_ask(struct sql *, instant until, bool *got, struct grant *, struct fault *);
enum rc row_wait(
    struct sql *, int64_t ms, instant until, bool *got, struct grant *, struct fault *);
struct question row_still(const struct sql *, bool ends, char *text);

#endif
