/*
 * row.c - mode=row in PostgreSQL: a transaction that locks a row of dlock.rows, and looks at those.
 *
 *  1. Everything happens inside the transaction, nothing in the session, so that a pooler may
 *     stand between.
 *  2. idle_in_transaction_session_timeout is the lease.  An error ends a transaction, and the
 *     lock with it: RC_LOST.
 *  3. A timeout that comes together with the grant ends the transaction and so gives it back.
 *  4. A wait in vain costs an error in the server's log for each chunk.
 */
#include "sessions.h"

#include "errors.h"

#include "backends/sql/row.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/*
 * What lock_row() says: a code; token and transaction; or how many wait and who holds
 * it.
 */
static enum rc
read_locked(struct pg *pg, const struct row *r, instant sent, enum row_found *found,
    struct grant *g, struct fault *f)
{
	struct row_lock *l = row_lock_of(&pg->db);
	int64_t code, token = 0;
	bool fine = row_integer(r, 0, -1, 1, &code);

	*found = fine ? (enum row_found)(code + 1) : ROW_HELD;
	if (fine && *found == ROW_HELD)
		fine = session_lock_read_queue(pg->db.base.host, r, 3);
	if (fine && *found == ROW_OURS)
		fine = row_integer(r, 1, 1, INT64_MAX, &token) &&
		    row_integer(r, 2, 1, INT64_MAX, &l->number);
	if (!fine)
		return sql_makes_no_sense(&pg->db, RC_PROTOCOL, f);
	if (*found == ROW_OURS)
		session_lock_granted(&pg->db, token, sent, g);
	return RC_OK;
}

/*
 * In a transaction: locks the row; waits for it, where it may, until the transaction's
 * time is up.
 */
static enum rc
lock_row(struct pg *pg, bool waits, instant until, enum row_found *found, struct grant *g,
    struct fault *f)
{
	const struct claim *claim = pg->db.claim;
	const struct question q = {
	    .text =
		"SELECT r.code, r.granted, r.transaction, r.waiting, CASE WHEN r.holder IS NOT NULL THEN "
		"(SELECT " SESSION_ANY_RECORD
		" FROM pg_catalog.pg_stat_activity a WHERE a.pid = r.holder) END, "
		"r.holders, r.is_shared FROM dlock.lock_row($1, $2, $3, " SESSION_CALLED(
		    "$4") ", $5) r",
	    SQL_VALUES(SQL_TEXT(claim->key), SQL_INT(ns_to_ms(claim->ttl)),
		SQL_TEXT(waits ? "t" : "f"), SQL_TEXT(claim->record),
		SQL_TEXT(claim->kind == KIND_SHARED ? "t" : "f")),
	    .fields = 7};
	struct answer a = {.db = NULL};
	enum rc rc = sql_exec(&pg->db, &q, until, &a, f);

	if (rc == RC_AGAIN && sql_error_is(&pg->db, LOCK_TIMEOUT " " CANCELLED)) {
		*found = ROW_HELD; /* the time is up */
		return RC_OK;
	}
	if (rc != RC_OK)
		return rc;
	rc = read_locked(pg, &a.row, a.sent, found, g, f);
	answer_drop(&a);
	return rc;
}

/* A transaction that is rolled back, or ended with its connection, unless the row is ours. */
static enum rc
pg_attempt(struct sql *db, int64_t ms, instant until, enum row_found *found,
    struct grant *g, struct fault *f)
{
	static const struct question nothing = {.text = "SELECT"};
	static const struct question rollback = {.text = "ROLLBACK", .harmless = true};
	struct pg *pg = pg_of(db);
	instant by = ms
	    ? retry_answer(instant_now() + ms * NS_PER_MS, ASK_PATIENCE, until)
	    : until;
	char begin[200];
	const struct question q = {.text = begin, .harmless = true};
	enum rc rc;

	snprintf(begin, sizeof begin,
	    "BEGIN ISOLATION LEVEL READ COMMITTED; SET LOCAL search_path = pg_catalog, pg_temp; "
	    "SET LOCAL lock_timeout = 0; SET LOCAL statement_timeout = %" PRId64,
	    ms);
	*found = ROW_HELD;
	rc = sql_open(db, by, f);
	if (rc == RC_OK && !pg->conn.trust.full) /* that cannot be found out later */
		rc = sql_exec(db, &nothing, by, NULL, f);
	if (rc == RC_OK)
		rc = sql_exec(db, &q, by, NULL, f);
	if (rc == RC_OK)
		rc = lock_row(pg, ms > 0, by, found, g, f);
	if (rc == RC_OK && *found == ROW_OURS) {
		/*
		 * A lock waited for was granted some time after the question left; the lease
		 * counts from one that is answered at once.  And as a statement of the simple
		 * kind this one ends what lock_row() left open: the snapshot for which a
		 * CREATE INDEX CONCURRENTLY by our own command would wait.
		 */
		rc = session_lock_renew(db, by, g, f);
		return rc == RC_LOST ? RC_AGAIN : rc;
	}
	if (rc != RC_OK) {
		/* and with it whatever there is of a transaction */
		connection_close(&pg->db);
		return rc;
	}
	return sql_exec(db, &rollback, by, NULL, f);
}

/* ---- looking and steering ---- */

/* rows of the table that a page of a look covers, held or not */
enum { PAGE = 2000 };

/* The columns of a look: the key, and those of a session; no process: a place. */
enum { LISTED_KEY, LISTED_SESSION, LISTED_FIELDS = LISTED_SESSION + SESSION_FIELDS };

/*
 * A transaction that has locked the row began when it was granted, or a few seconds
 * before.
 */
#define SINCE \
	SESSION_US("CASE WHEN NOT r.waits THEN a.xact_start WHEN " SESSION_IS_DLOCK \
		   " THEN a.backend_start ELSE a.query_start END")
static const char list_rows_sql[] =
    "SELECT r.key, r.pid, r.waits, r.shared, " SINCE ", " SESSION_COLUMNS
    " FROM dlock.list_rows($1, $2, $3) WITH ORDINALITY AS r(key, pid, waits, shared, came, n) "
    "LEFT JOIN pg_catalog.pg_stat_activity a ON a.pid OPERATOR(pg_catalog.=) r.pid ORDER BY r.n";

/* A look, and how far a page of it has come where it is not the last. */
struct row_look {
	struct sql_look seen;
	char after[sizeof((struct sql_look *)0)->key];
	bool more;
};

static bool
see_row(void *ctx, const struct row *r)
{
	struct row_look *s = ctx;
	const char *key = row_words(r, LISTED_KEY);

	if (!key || strlen(key) >= sizeof s->after)
		return false;
	s->more = row_is_null(r, LISTED_SESSION + SESSION_PID);
	if (!s->more)
		return sessions_see(&s->seen, r, LISTED_SESSION, key);
	if (strcmp(key, s->after) == 0)
		return false; /* it would go on for ever */
	snprintf(s->after, sizeof s->after, "%s", key);
	return true;
}

static enum rc
pg_row_each(struct sql *db, const struct look *look, struct fault *f)
{
	struct row_look s = {.seen.look = look, .more = true};
	const struct question q = {.text = list_rows_sql,
	    SQL_VALUES(SQL_TEXT(look->key), SQL_TEXT(s.after), SQL_INT(PAGE)),
	    .fields = LISTED_FIELDS,
	    .many = true};
	enum rc rc = RC_OK;
	int n;

	db->reads = false; /* a standby does not know who has locked a row */
	while (rc == RC_OK && s.more && !s.seen.enough) {
		s.more = false;
		rc = sql_look_page(db, &s.seen, &q, see_row, &s, &n, f);
	}
	if (rc == RC_OK)
		sql_look_waiting(&s.seen);
	return rc;
}

/* Ends the session that has locked it, and its transaction with it. */
static enum rc
pg_row_revoke(struct sql *db, const struct target *target, const char *record, bool force,
    instant until, struct fault *f)
{
	(void)record, (void)force;
	return sessions_end(pg_of(db), target->owner,
	    "dlock.list_rows($3, '', 1) r JOIN pg_catalog.pg_stat_activity a ON a.pid OPERATOR(pg_catalog.=) r.pid "
	    "WHERE NOT r.waits",
	    target->key, until, f);
}

static const struct question commit = {.text = "COMMIT", .harmless = true};

static const struct session_lock_way way = {.ask = row_ask,
    .wait = row_wait,
    .still = row_still,
    .last = &commit,
    .errors_end = true};

const struct sql_mode pg_row_mode = {
    .name = "row",
    .caps = CAP_SHARED | CAP_FORCE,
    .bytes = sizeof(struct row_lock),
    .acquire = session_lock_acquire,
    .renew = session_lock_renew,
    .release = session_lock_release,
    .each = pg_row_each,
    .revoke = pg_row_revoke,
    .way = &way,
};

const struct row_driver pg_row = {
    .mode = &pg_row_mode,
    .add = "SELECT dlock.add_row($1)",
    .add_fields = 1,
    .still = "SELECT pg_catalog.txid_current_if_assigned() OPERATOR(pg_catalog.=) ",
    .still_end = " IS TRUE",
    .release_end = " IS TRUE",
    .harmless = true,
    .attempt = pg_attempt,
};
