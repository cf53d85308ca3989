/*
 * sessions.h - looks at locks that end with their session (the modes advisory and
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

#include "pg.h"

#include "backends/sql/look.h"

/* ---- what a session is called ---- */

/*
 * "dlock; 12; sh; alice@ci; why": what others can read in pg_stat_activity; in SQL, of
 * parameter n, the record.
 */
#define SESSION_CALLED(n) \
	"pg_catalog.left(pg_catalog.concat_ws('; ', 'dlock', " n \
	"::pg_catalog.json OPERATOR(pg_catalog.->>) 'pid', " \
	"" n "::pg_catalog.json OPERATOR(pg_catalog.->>) 'command', " n \
	"::pg_catalog.json OPERATOR(pg_catalog.->>) 'who', " \
	"" n "::pg_catalog.json OPERATOR(pg_catalog.->>) 'why'), 63)"

/* Is session `a` of pg_stat_activity called so? */
#define SESSION_IS_DLOCK \
	"a.application_name OPERATOR(pg_catalog.~) '^dlock; [0-9]{1,9}; '"

/* The way back: its record, as far as that can be known; */
#define SESSION_DLOCK_RECORD \
	"pg_catalog.json_build_object(" \
	"'pid', pg_catalog.split_part(a.application_name, '; ', 2)::pg_catalog.int4, " \
	"'command', pg_catalog.split_part(a.application_name, '; ', 3), " \
	"'who', pg_catalog.split_part(a.application_name, '; ', 4), " \
	"'why', pg_catalog.split_part(a.application_name, '; ', 5))"

/* and of any session, whose own pid is not known, but that of its server process. */
#define SESSION_ANY_RECORD \
	"CASE WHEN " SESSION_IS_DLOCK " THEN " SESSION_DLOCK_RECORD " ELSE " \
	"pg_catalog.json_build_object(" \
	"'why', pg_catalog.concat(coalesce(nullif(a.application_name, ''), 'a session of PostgreSQL'), " \
	"', server process ', a.pid), " \
	"'who', pg_catalog.concat(a.usename, '@', coalesce(pg_catalog.host(a.client_addr), 'local'))) END"

/* ---- looking ---- */

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
					    "CASE WHEN " SESSION_IS_DLOCK \
					    " THEN " SESSION_DLOCK_RECORD " END, " \
					    "a.usename, a.application_name, pg_catalog.host(a.client_addr)"

/*
 * Tells of the session in a row of an answer, whose columns from `first` on are
 * those above, as of one of `key`, which is shorter than the member.  False: they make no
 * sense.
 */
bool sessions_see(struct sql_look *, const struct row *, int first, const char *key);

/* ---- ending one ---- */

/*
 * Ends the session that `owner` of a target names, if it is among these: `from` is what stands
 * between FROM and the last condition, with `a` for pg_stat_activity; in it $3 is `key`, if
 * that is not NULL.  RC_LOST: it is not (any more).
 */
enum rc sessions_end(struct pg *, const char *owner, const char *from, const char *key,
    instant until, struct fault *);

#endif
