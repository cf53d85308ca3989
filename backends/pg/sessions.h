/*
 * sessions.h - looks at locks that are bound to a session (the modes advisory and
 * row), and ends such a session.
 *
 *  1. What is known is what the server shows of sessions: pg_locks, and as much of
 *     pg_stat_activity as our role may see.  A session is dlock's if it is called so.
 *  2. To look takes no lock, not for a moment: nobody finds a key held because of it.
 *  3. Such a hold has no token.  Its owner, for struct target, is the session: process
 *     and begin, since the number of a process comes again.
 */
#ifndef DLOCK_PG_SESSIONS_H
#define DLOCK_PG_SESSIONS_H

#include "bound.h"
#include "backends/sql/sighting.h"

/*
 * The columns with which the rows of a look end: first four of the mode's own, who it
 * is and what it does;
 */
enum {
	SESSION_PID, /* 0: a prepared transaction */
	SESSION_WAITS,
	SESSION_SHARED,
	SESSION_SINCE, /* microseconds; NULL: not known */
	SESSION_BEGAN, /* then SESSION_COLUMNS */
	SESSION_MOMENT,
	SESSION_RECORD, /* of a dlock, else NULL */
	SESSION_USER,
	SESSION_NAME,
	SESSION_HOST,
	SESSION_FIELDS
};

/* Of a time in SQL, microseconds since 1970. */
#define SESSION_US(t) \
	"(1000000 OPERATOR(pg_catalog.*) EXTRACT(epoch FROM " t "))::pg_catalog.int8"

/* `a` is pg_stat_activity. */
#define SESSION_COLUMNS \
	SESSION_US("a.backend_start") \
	", " SESSION_US( \
	    "pg_catalog.clock_timestamp()") ", " \
					    "CASE WHEN " BOUND_IS_DLOCK \
					    " THEN " BOUND_DLOCK " END, " \
					    "a.usename, a.application_name, pg_catalog.host(a.client_addr)"

/*
 * Tells of the session in a row of an answer, whose columns from `first` on are
 * those above, as of one of `key`, which is shorter than the member.  False: they make no
 * sense.
 */
bool sessions_see(struct sighting *, const struct row *, int first, const char *key);

/* The session that an owner names. */
struct session {
	int64_t pid, began;
};

/* False: it names none. */
bool session_of_owner(const char *owner, struct session *);

/*
 * What a statement says that ends session `a`: true; false: not yet; NULL: when it began
 * is not for this role to see.  The argument: how long to wait, as sessions_patience() has
 * it.
 */
#define SESSION_ENDING \
	"CASE WHEN a.backend_start IS NOT NULL THEN pg_catalog.pg_terminate_backend(a.pid%s) END"
const char *sessions_patience(const struct pg *);

/*
 * Reads what such a statement, of many rows, has brought, and frees it: no row: there is
 * no such session (any more).
 */
enum rc sessions_ended(struct pg *, enum rc, PGresult *, struct fault *);

#endif
