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
 *  3. Waiting is done in chunks of CHUNK, a transaction each, and at the end of
 *     each one loses the place.  A timeout that comes together with the grant
 *     ends the transaction and so gives it back.
 *  4. What it costs: a connection for each holder and waiter, a transaction
 *     that holds vacuum back in the whole database for as long as the lock, and
 *     in the server's log an error for each chunk that was waited in vain.
 *  5. What holds for all locks bound to a session: bound.h.
 */
#include "guard.h"
#include "sessions.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define CHUNK (3 * NS_PER_S)

/* mode=row's own. */
struct row_lock {
	struct bound bound;
	int64_t transaction; /* in which the row is locked */
};

static struct row_lock *
row_of(const struct pg *pg)
{
	return pg_own(pg, &row_mode);
}

/* A statement that says nothing but that it was done. */
static enum rc
run_command(struct pg *pg, const char *sql, instant until, struct fault *f)
{
	const struct question q = {.sql = sql, .harmless = true};
	instant sent;

	return ask_here(&pg->conn, &q, 0, until, &sent, NULL, f);
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
row_renew(struct pg *pg, instant until, struct grant *g, struct fault *f)
{
	char sql[128];
	const struct question q = {.sql = sql, .harmless = true};

	write_heartbeat(pg, sql, sizeof sql);
	return bound_renew(pg, &row_of(pg)->bound, &q, true, until, g, f);
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
	enum rc rc = row_renew(pg, until, g, f);

	return rc == RC_LOST ? RC_AGAIN : rc;
}

/* ---- acquire ---- */

/* The key's row must be there, and seen by all, before it can be locked. */
static enum rc
make_row(struct pg *pg, instant until, struct fault *f)
{
	const char *values[] = {pg->claim->key};
	const struct question q = {
	    .sql = "SELECT dlock.add_row($1)", .n = 1, .values = values};
	instant sent;

	return pg_ask(pg, &q, 1, until, &sent, NULL, f);
}

enum { ROW_MISSING = -1, ROW_HELD, ROW_OURS };

/*
 * What lock_row() says: a code; token and transaction; or how many wait and who holds
 * it.
 */
static enum rc
read_locked(struct pg *pg, const PGresult *r, instant sent, int64_t *code,
    struct grant *g, struct fault *f)
{
	const struct connection *c = &pg->conn;
	int64_t token = 0;
	bool fine = field_integer(c->pq, r, 0, ROW_MISSING, ROW_OURS, code);

	if (fine && *code == ROW_HELD)
		fine = bound_see(pg, r, 3);
	if (fine && *code == ROW_OURS)
		fine = field_integer(c->pq, r, 1, 1, INT64_MAX, &token) &&
		    field_integer(c->pq, r, 2, 1, INT64_MAX, &row_of(pg)->transaction);
	if (!fine)
		return pg_makes_no_sense(pg, RC_PROTOCOL, f);
	if (*code == ROW_OURS)
		*g = (struct grant){.token = token,
		    .sent = sent,
		    .lease = pg->claim->ttl,
		    .anchor = pg->conn.pq->socket(pg->conn.pgconn)};
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
	const char *values[] = {pg->claim->key, pg->lease_ms, patient ? "t" : "f",
	    pg->claim->record, pg->claim->kind == KIND_SHARED ? "t" : "f"};
	const struct question q = {
	    .sql =
		"SELECT r.code, r.granted, r.transaction, r.waiting, CASE WHEN r.holder IS NOT NULL THEN "
		"(SELECT " BOUND_RECORD
		" FROM pg_catalog.pg_stat_activity a WHERE a.pid = r.holder) END, "
		"r.holders, r.is_shared FROM dlock.lock_row($1, $2, $3, " BOUND_NAME(
		    "$4") ", $5) r",
	    .n = 5,
	    .values = values};
	PGresult *r;
	instant sent;
	enum rc rc = ask_here(&pg->conn, &q, 7, until, &sent, &r, f);

	if (rc == RC_AGAIN &&
	    (said_state(&pg->conn, "57014") || said_state(&pg->conn, "55P03"))) {
		*code = ROW_HELD; /* the time is up */
		return RC_OK;
	}
	if (rc != RC_OK)
		return rc;
	rc = read_locked(pg, r, sent, code, g, f);
	pg->conn.pq->clear(r);
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
	(void)connection_is_open(&pg->conn);
	rc = guard_pass(&pg->conn, until, f);
	if (rc == RC_OK)
		rc = ask_script(&pg->conn, begin, until, f);
	if (rc == RC_OK)
		rc = lock_row(pg, wait_ms > 0, until, code, g, f);
	if (rc == RC_OK && *code == ROW_OURS) {
		bound_watch(pg, &row_of(pg)->bound);
		return confirm_row(pg, until, g, f);
	}
	if (rc != RC_OK) {
		/* and with it whatever there is of a transaction */
		connection_close(&pg->conn);
		return rc;
	}
	return run_command(pg, "ROLLBACK", until, f);
}

/*
 * The same, but a key without a row gets one, and a database without the schema as well.
 */
static enum rc
try_row_anew(
    struct pg *pg, instant until, int64_t *code, struct grant *g, struct fault *f)
{
	enum rc rc = try_row(pg, 0, until, code, g, f);

	if (rc == RC_OK ? *code != ROW_MISSING : !pg_is_missing(pg))
		return pg_explain_denial(pg, rc, f);
	rc = make_row(pg, until, f);
	return rc == RC_OK ? try_row(pg, 0, until, code, g, f) : rc;
}

/* How long to wait in the server this time. */
static int64_t
row_chunk_ms(instant until)
{
	instant now = instant_now(), wake = instant_first(now + CHUNK, until);

	return wake > now ? ns_to_ms(wake - now) : 1;
}

/*
 * Chunk after chunk, and between them a look at who is there.  Only what an
 * attempt has just brought counts: one that was granted and then broke off has
 * lost it again.
 */
static enum rc
wait_for_row(struct pg *pg, instant until, struct grant *g, struct fault *f)
{
	int64_t code, ms;
	enum rc rc;

	do {
		ms = row_chunk_ms(until);
		rc = try_row(pg, ms,
		    retry_answer(instant_now() + ms * NS_PER_MS, ASK_PATIENCE, until),
		    &code, g, f);
		if (rc == RC_OK && code == ROW_OURS)
			return RC_OK;
		if (rc == RC_OK && instant_now() >= until)
			return fault_set(f, RC_BUSY, "%s: still held", pg->conn.where);
		if (rc == RC_OK)
			rc = try_row_anew(pg,
			    retry_answer(instant_now(), ASK_PATIENCE, until), &code, g,
			    f);
		if (rc == RC_OK && code == ROW_OURS)
			return RC_OK;
		if (rc == RC_OK)
			retry_end_outage(&pg->patience);
		else
			rc = pg_try_again(pg, rc, true, until);
	} while (rc == RC_OK);
	return rc;
}

static enum rc
row_acquire(struct pg *pg, instant until, struct grant *g, struct fault *f)
{
	struct retry *p = &pg->patience;
	instant first_by = retry_first(p, until);
	int64_t code = ROW_HELD;
	enum rc rc;

	do
		rc = try_row_anew(pg, retry_attempt_by(p, first_by), &code, g, f);
	while (retry_first_again(p, pg->base.host, until, &rc));

	if (rc == RC_OK && code != ROW_OURS)
		rc = until ? wait_for_row(pg, until, g, f)
			   : fault_set(f, RC_BUSY, "%s: held", pg->conn.where);
	if (rc != RC_OK)
		connection_close(&pg->conn); /* whatever it may have got */
	return rc;
}

/* ---- release ---- */

static enum rc
row_release(struct pg *pg, int status, instant until, struct fault *f)
{
	struct row_lock *own = row_of(pg);
	char sql[128];
	const struct question q = {.sql = sql, .harmless = true};
	bool ours = false;
	PGresult *r = NULL;
	instant sent;
	enum rc rc;

	(void)status;
	if (!own->bound.held)
		return RC_OK;
	write_heartbeat(pg, sql, sizeof sql);
	rc = bound_settle(pg, until, f);
	if (rc == RC_OK)
		rc = ask_here(&pg->conn, &q, 1, until, &sent, &r, f);
	if (rc == RC_OK && (!field_boolean(pg->conn.pq, r, 0, &ours) || !ours))
		rc = fault_set(f, RC_LOST, "%s no longer has it as ours", pg->conn.where);
	pg->conn.pq->clear(r);
	if (rc == RC_OK)
		rc = run_command(pg, "COMMIT", until, f);
	own->bound.held = false;
	connection_close(&pg->conn); /* if nothing else, this gives it back */
	return rc;
}

/* ---- looking and steering ---- */

/* rows of the table that a page of a look covers, held or not */
#define PAGE "2000"

/* The columns of a look: the key, and those of a session; no process: a place. */
enum { LISTED_KEY, LISTED_SESSION, LISTED_FIELDS = LISTED_SESSION + SESSION_FIELDS };

/*
 * A transaction that has locked the row began when it was granted, or a few seconds
 * before.
 */
#define SINCE \
	SESSION_US("CASE WHEN NOT r.waits THEN a.xact_start WHEN " BOUND_IS_DLOCK \
		   " THEN a.backend_start ELSE a.query_start END")
static const char list_rows_sql[] =
    "SELECT r.key, r.pid, r.waits, r.shared, " SINCE ", " SESSION_COLUMNS
    " FROM dlock.list_rows($1, $2, $3) WITH ORDINALITY AS r(key, pid, waits, shared, came, n) "
    "LEFT JOIN pg_catalog.pg_stat_activity a ON a.pid OPERATOR(pg_catalog.=) r.pid ORDER BY r.n";

/* A row of a page.  *after: how far the page has come, where it is not the last. */
static bool
see_row(struct sighting *s, const struct row *r, char *after, size_t size)
{
	const char *key = row_words(r, LISTED_KEY);

	if (!key || strlen(key) >= size || strlen(key) >= sizeof s->key)
		return false;
	if (row_words(r, LISTED_SESSION + SESSION_PID))
		return sessions_see(s, r, LISTED_SESSION, key);
	if (strcmp(key, after) == 0)
		return false; /* it would go on for ever */
	snprintf(after, size, "%s", key);
	return true;
}

/* The next page; *more: there may be another. */
static enum rc
see_rows(struct pg *pg, struct sighting *s, char *after, size_t size, bool *more,
    struct fault *f)
{
	const char *values[] = {s->look->key, after, PAGE};
	const struct question q = {
	    .sql = list_rows_sql, .n = 3, .values = values, .many = true};
	const struct pq *pq = pg->conn.pq;
	struct fields room;
	struct row row;
	PGresult *r;
	enum rc rc = pg_ask_existing(pg, &q, LISTED_FIELDS, s->look->until, &r, f);
	int n = rc == RC_OK && r ? pq->ntuples(r) : 0;

	*more = n > 0 && pq->getisnull(r, n - 1, LISTED_SESSION + SESSION_PID);
	for (int i = 0; i < n && rc == RC_OK && !s->enough; i++) {
		row = field_row(pq, r, i, &room);
		if (!see_row(s, &row, after, size))
			rc = pg_makes_no_sense(pg, RC_PROTOCOL, f);
	}
	if (n > 0)
		pq->clear(r);
	return rc;
}

static enum rc
row_each(struct pg *pg, const struct look *look, struct fault *f)
{
	struct sighting s = {.look = look};
	char after[sizeof s.key] = "";
	bool more = true;
	enum rc rc = RC_OK;

	while (rc == RC_OK && more && !s.enough)
		rc = see_rows(pg, &s, after, sizeof after, &more, f);
	if (rc == RC_OK)
		sighting_tell_waiting(&s);
	return rc;
}

#define BEGAN SESSION_US("a.backend_start")

/* Ends the session that has locked it, and its transaction with it. */
static enum rc
row_revoke(struct pg *pg, const struct target *target, const char *record, bool force,
    instant until, struct fault *f)
{
	char sql[1024], pid[24], began[24];
	const char *values[] = {target->key, pid, began};
	const struct question q = {.sql = sql, .n = 3, .values = values, .many = true};
	struct session session;
	PGresult *r = NULL;
	enum rc rc = connection_open(&pg->conn, until, f);

	(void)record, (void)force;
	if (rc != RC_OK || !session_of_owner(target->owner, &session))
		return sessions_ended(pg, rc, NULL, f);
	snprintf(pid, sizeof pid, "%" PRId64, session.pid);
	snprintf(began, sizeof began, "%" PRId64, session.began);
	snprintf(sql, sizeof sql,
	    "SELECT " SESSION_ENDING
	    " FROM dlock.list_rows($1, '', 1) r JOIN pg_catalog.pg_stat_activity a ON a.pid OPERATOR(pg_catalog.=) r.pid "
	    "WHERE NOT r.waits AND a.pid OPERATOR(pg_catalog.=) $2::pg_catalog.int4 "
	    "AND (a.backend_start IS NULL OR " BEGAN
	    " OPERATOR(pg_catalog.=) $3::pg_catalog.int8) LIMIT 1",
	    sessions_patience(pg));
	rc = pg_ask_existing(pg, &q, 1, until, &r, f);
	return sessions_ended(pg, rc, r, f);
}

const struct steering row_steering = {
    .each = row_each,
    .revoke = row_revoke,
};

const struct mode row_mode = {
    .name = "row",
    .caps = CAP_SHARED | CAP_FORCE,
    .bytes = sizeof(struct row_lock),
    .acquire = row_acquire,
    .renew = row_renew,
    .release = row_release,
    .steering = &row_steering,
};
