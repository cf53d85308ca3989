/*
 * row.c - mode=row: the textbook's lock, SELECT ... FOR UPDATE (shared: FOR SHARE) in a
 * transaction that stays open as long as the lock is held.
 *
 *  1. The rows are those of the table dlock.rows, one a key, made when missing
 *     and never deleted.  Everything happens inside the transaction, nothing in
 *     the session, so that a pooler may stand between.
 *  2. idle_in_transaction_session_timeout is the lease; a heartbeat looks
 *     whether it still is the same transaction.  An error ends a transaction,
 *     and the lock with it: RC_LOST.
 *  3. Waiting is done in chunks, a transaction each, and at the end of
 *     each one loses the place.  A timeout that comes together with the grant
 *     ends the transaction and so gives it back.
 *  4. What it costs: a connection for each holder and waiter, a transaction
 *     that holds vacuum back in the whole database for as long as the lock, and
 *     in the server's log an error for each chunk that was waited in vain.
 *  5. What holds for all session locks: sql/session_lock.h.
 */
#include "sessions.h"

#include "connection.h"
#include "guard.h"
#include "question.h"
#include "said.h"

#include "backends/sql/session_lock.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* mode=row's own. */
struct row_lock {
	struct session_lock lock;
	int64_t transaction; /* in which the row is locked */
};

static struct row_lock *
row_of(const struct pg *pg)
{
	return sql_own(&pg->db, &row_mode);
}

/* A statement that says nothing but that it was done. */
static enum rc
run_command(struct pg *pg, const char *sql, instant until, struct fault *f)
{
	const struct question q = {.text = sql, .harmless = true};

	return guard_exec(&pg->db, &q, until, NULL, f);
}

/* ---- the hold ---- */

/* Is it still the transaction in which we have locked the row? */
static void
write_heartbeat(const struct pg *pg, char *sql, size_t size)
{
	snprintf(sql, size,
	    "SELECT pg_catalog.txid_current_if_assigned() OPERATOR(pg_catalog.=) %" PRId64
	    " IS TRUE",
	    row_of(pg)->transaction);
}

static enum rc
row_renew(struct sql *db, instant until, struct grant *g, struct fault *f)
{
	struct pg *pg = pg_of(db);
	char sql[128];
	const struct question q = {.text = sql, .fields = 1, .harmless = true};

	write_heartbeat(pg, sql, sizeof sql);
	return session_lock_renew(db, &row_of(pg)->lock, &q, true, until, g, f);
}

/*
 * A lock waited for was granted some time after the question left; the lease
 * counts from one that is answered at once.  And as a statement of the simple
 * kind this one ends what lock_row() left open: the snapshot for which a
 * CREATE INDEX CONCURRENTLY by our own command would wait.
 */
static enum rc
confirm_row(struct pg *pg, instant until, struct grant *g, struct fault *f)
{
	enum rc rc = row_renew(&pg->db, until, g, f);

	return rc == RC_LOST ? RC_AGAIN : rc;
}

/* ---- acquire ---- */

/* The key's row must be there, and seen by all, before it can be locked. */
static enum rc
make_row(struct pg *pg, instant until, struct fault *f)
{
	const struct question q = {.text = "SELECT dlock.add_row($1)",
	    SQL_VALUES(SQL_TEXT(pg->db.claim->key)),
	    .fields = 1};

	return sql_ask_created(&pg->db, &q, until, NULL, f);
}

enum { ROW_MISSING = -1, ROW_HELD, ROW_OURS };

/*
 * What lock_row() says: a code; token and transaction; or how many wait and who holds
 * it.
 */
static enum rc
read_locked(struct pg *pg, const struct row *r, instant sent, int64_t *code,
    struct grant *g, struct fault *f)
{
	int64_t token = 0;
	bool fine = row_integer(r, 0, ROW_MISSING, ROW_OURS, code);

	if (fine && *code == ROW_HELD)
		fine = sessions_read_queue(pg->db.base.host, r, 3);
	if (fine && *code == ROW_OURS)
		fine = row_integer(r, 1, 1, INT64_MAX, &token) &&
		    row_integer(r, 2, 1, INT64_MAX, &row_of(pg)->transaction);
	if (!fine)
		return sql_makes_no_sense(&pg->db, RC_PROTOCOL, f);
	if (*code == ROW_OURS)
		session_lock_granted(&pg->db, &row_of(pg)->lock, token, sent, g);
	return RC_OK;
}

/*
 * In a transaction: locks the row; waits for it, where it may, until the transaction's
 * time is up.
 */
static enum rc
lock_row(struct pg *pg, bool patient, instant until, int64_t *code, struct grant *g,
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
		SQL_TEXT(patient ? "t" : "f"), SQL_TEXT(claim->record),
		SQL_TEXT(claim->kind == KIND_SHARED ? "t" : "f")),
	    .fields = 7};
	struct answer a = {.db = NULL};
	struct row row;
	enum rc rc = guard_exec(&pg->db, &q, until, &a, f);

	if (rc == RC_AGAIN &&
	    (said_state(&pg->conn, "57014") || said_state(&pg->conn, "55P03"))) {
		*code = ROW_HELD; /* the time is up */
		return RC_OK;
	}
	if (rc != RC_OK)
		return rc;
	row = answer_next(&a);
	rc = read_locked(pg, &row, a.sent, code, g, f);
	answer_drop(&a);
	return rc;
}

/* One attempt, a transaction, over by `until`; `wait_ms` 0: now or never. */
static enum rc
try_row(struct pg *pg, int64_t wait_ms, instant until, int64_t *code, struct grant *g,
    struct fault *f)
{
	char begin[200];
	enum rc rc;

	snprintf(begin, sizeof begin,
	    "BEGIN ISOLATION LEVEL READ COMMITTED; SET LOCAL search_path = pg_catalog, pg_temp; "
	    "SET LOCAL lock_timeout = 0; SET LOCAL statement_timeout = %" PRId64,
	    wait_ms);
	(void)connection_is_open(&pg->db);
	rc = guard_pass(&pg->conn, until, f);
	if (rc == RC_OK)
		rc = question_script(&pg->db, begin, until, f);
	if (rc == RC_OK)
		rc = lock_row(pg, wait_ms > 0, until, code, g, f);
	if (rc == RC_OK && *code == ROW_OURS)
		return confirm_row(pg, until, g, f);
	if (rc != RC_OK) {
		/* and with it whatever there is of a transaction */
		connection_close(&pg->db);
		return rc;
	}
	return run_command(pg, "ROLLBACK", until, f);
}

/*
 * The same, but a key without a row gets one, and a database without the schema as well.
 */
static enum rc
ask_row(struct sql *db, instant until, bool *got, struct grant *g, struct fault *f)
{
	struct pg *pg = pg_of(db);
	int64_t code = ROW_HELD;
	enum rc rc = try_row(pg, 0, until, &code, g, f);

	if (rc == RC_OK ? code == ROW_MISSING : sql_is_missing(db)) {
		rc = make_row(pg, until, f);
		if (rc == RC_OK)
			rc = try_row(pg, 0, until, &code, g, f);
	}
	*got = rc == RC_OK && code == ROW_OURS;
	return sql_explain_denial(db, rc, f);
}

static enum rc
wait_row(struct sql *db, int64_t ms, instant until, bool *got, struct grant *g,
    struct fault *f)
{
	int64_t code = ROW_HELD;
	enum rc rc = try_row(pg_of(db), ms,
	    retry_answer(instant_now() + ms * NS_PER_MS, ASK_PATIENCE, until), &code, g,
	    f);

	*got = rc == RC_OK && code == ROW_OURS;
	return rc;
}

static enum rc
row_acquire(struct sql *db, instant until, struct grant *g, struct fault *f)
{
	static const struct session_lock_way way = {ask_row, wait_row, false};

	return session_lock_acquire(db, &way, until, g, f);
}

/* ---- release ---- */

static enum rc
row_release(struct sql *db, int status, instant until, struct fault *f)
{
	static const struct question commit = {.text = "COMMIT", .harmless = true};
	char sql[128];
	const struct question q = {.text = sql, .fields = 1, .harmless = true};

	(void)status;
	write_heartbeat(pg_of(db), sql, sizeof sql);
	return session_lock_release(db, &row_of(pg_of(db))->lock, &q, &commit, until, f);
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

/* The next page. */
static enum rc
look_at_rows(struct pg *pg, struct row_look *s, struct fault *f)
{
	const struct question q = {.text = list_rows_sql,
	    SQL_VALUES(SQL_TEXT(s->seen.look->key), SQL_TEXT(s->after), SQL_INT(PAGE)),
	    .fields = LISTED_FIELDS,
	    .many = true};
	int n;

	s->more = false;
	return sql_look_page(&pg->db, &s->seen, &q, see_row, s, &n, f);
}

static enum rc
row_each(struct sql *db, const struct look *look, struct fault *f)
{
	struct row_look s = {.seen.look = look, .more = true};
	enum rc rc = RC_OK;

	db->reads = false; /* a standby does not know who has locked a row */
	while (rc == RC_OK && s.more && !s.seen.enough)
		rc = look_at_rows(pg_of(db), &s, f);
	if (rc == RC_OK)
		sql_look_waiting(&s.seen);
	return rc;
}

#define BEGAN SESSION_US("a.backend_start")

/* Ends the session that has locked it, and its transaction with it. */
static enum rc
row_revoke(struct sql *db, const struct target *target, const char *record, bool force,
    instant until, struct fault *f)
{
	struct pg *pg = pg_of(db);
	struct session_name session = {0};
	bool is_session = session_name_read(target->owner, &session);
	char sql[1024];
	const struct question q = {.text = sql,
	    SQL_VALUES(
		SQL_TEXT(target->key), SQL_INT(session.session), SQL_INT(session.second)),
	    .fields = 1,
	    .many = true};
	struct answer a = {.db = NULL};
	enum rc rc = connection_open(&pg->db, until, f);

	(void)record, (void)force;
	if (rc != RC_OK || !is_session)
		return sessions_ended(pg, rc, &a, f);
	snprintf(sql, sizeof sql,
	    "SELECT " SESSION_ENDING
	    " FROM dlock.list_rows($1, '', 1) r JOIN pg_catalog.pg_stat_activity a ON a.pid OPERATOR(pg_catalog.=) r.pid "
	    "WHERE NOT r.waits AND a.pid OPERATOR(pg_catalog.=) $2::pg_catalog.int8 "
	    "AND (a.backend_start IS NULL OR " BEGAN
	    " OPERATOR(pg_catalog.=) $3::pg_catalog.int8) LIMIT 1",
	    sessions_patience(pg));
	rc = sql_ask_existing(db, &q, until, &a, f);
	return sessions_ended(pg, rc, &a, f);
}

const struct sql_mode row_mode = {
    .name = "row",
    .caps = CAP_SHARED | CAP_FORCE,
    .bytes = sizeof(struct row_lock),
    .acquire = row_acquire,
    .renew = row_renew,
    .release = row_release,
    .each = row_each,
    .revoke = row_revoke,
};
