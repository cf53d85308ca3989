/*
 * bound.h - locks that are bound to their session: the modes advisory and row.
 *
 *  1. The server ends a session that has been silent for the ttl; that makes a
 *     lease of it.  Its word is sent for by a heartbeat, any statement.
 *  2. A session that has ended took the lock along: RC_LOST.  There is no way
 *     back to it, and another session never counts as the same hold.  While
 *     nobody asks, host->alert watches the connection.
 *  3. The connection itself is the grant's anchor: with a copy of it in the front,
 *     a killed keeper does not end the session before the command's tree is gone.
 *  4. An answer that is late does not poison the connection: the question
 *     stays out, and the next renewal waits for the same answer.  The lease
 *     counts from when that question left.
 */
#ifndef DLOCK_PG_BOUND_H
#define DLOCK_PG_BOUND_H

#include "pg.h"

/* What such a lock has of its own, as a member of its mode's struct. */
struct bound {
	bool held;         /* by the server's word */
	instant beat_sent; /* the heartbeat that is out, or was answered last */
};

/* We hold: watches the connection from now on. */
void bound_watch(struct pg *, struct bound *);

/*
 * Sends the heartbeat, or waits for the answer to the last one: one boolean,
 * "still ours".  With `errors_end`, an error of the server's ends the hold.
 */
enum rc bound_renew(struct pg *, struct bound *, const struct question *, bool errors_end,
    instant until, struct grant *, struct fault *);

/*
 * The connection as it must be for a release: open, and no question out.
 * RC_LOST: it has ended.
 */
enum rc bound_settle(struct pg *, instant until, struct fault *);

/* The hold ended with its connection. */
enum rc bound_lost(struct pg *, struct fault *);

/*
 * What ask_here() said about the setting up of a session that cannot be had as it must
 * be: RC_CONFIG and why.
 */
enum rc bound_refuse(struct pg *, const char *why, struct fault *);

/*
 * Reads four fields from `first` on into host->seen: how many wait, who holds it
 * (one of them: a JSON object, or NULL), how many do, and whether they share it.
 * Our place is behind those who wait.
 */
bool bound_see(struct pg *, const PGresult *, int first);

/*
 * "dlock; 12; sh; alice@ci; why": what others can read in pg_stat_activity; in SQL, of
 * parameter n, the record.
 */
#define BOUND_NAME(n) \
	"pg_catalog.left(pg_catalog.concat_ws('; ', 'dlock', " n \
	"::pg_catalog.json OPERATOR(pg_catalog.->>) 'pid', " \
	"" n "::pg_catalog.json OPERATOR(pg_catalog.->>) 'command', " n \
	"::pg_catalog.json OPERATOR(pg_catalog.->>) 'who', " \
	"" n "::pg_catalog.json OPERATOR(pg_catalog.->>) 'why'), 63)"

/* Is session `a` of pg_stat_activity called so? */
#define BOUND_IS_DLOCK "a.application_name OPERATOR(pg_catalog.~) '^dlock; [0-9]{1,9}; '"

/* The way back: its record, as far as that can be known; */
#define BOUND_DLOCK \
	"pg_catalog.json_build_object(" \
	"'pid', pg_catalog.split_part(a.application_name, '; ', 2)::pg_catalog.int4, " \
	"'command', pg_catalog.split_part(a.application_name, '; ', 3), " \
	"'who', pg_catalog.split_part(a.application_name, '; ', 4), " \
	"'why', pg_catalog.split_part(a.application_name, '; ', 5))"

/* and of any session, whose own pid is not known, but that of its server process. */
#define BOUND_RECORD \
	"CASE WHEN " BOUND_IS_DLOCK " THEN " BOUND_DLOCK " ELSE " \
	"pg_catalog.json_build_object(" \
	"'why', pg_catalog.concat(coalesce(nullif(a.application_name, ''), 'a session of PostgreSQL'), " \
	"', server process ', a.pid), " \
	"'who', pg_catalog.concat(a.usename, '@', coalesce(pg_catalog.host(a.client_addr), 'local'))) END"

#endif
