/*
 * row.c - mode=row: the textbook's lock, SELECT ... FOR UPDATE (shared: FOR SHARE) in a
 * transaction that stays open as long as the lock is held.
 *
 *  1. The rows are those of the table dlock_rows, one a key, made when missing and never
 *     deleted.  Any program that locks one excludes dlock, and is excluded.
 *  2. The transaction has also a row of its own in dlock_grants (grants.h), by which the
 *     heartbeat sees that it still is the same one.
 *  3. Waiting is done in chunks, a transaction each, and at the end of each one loses the
 *     place.
 *  4. What it costs: a connection for each holder and waiter, and a transaction as long as
 *     the lock; who wants to alter or drop the tables waits for it.
 *  5. What holds for all session locks: sql/session_lock.h.
 */
#include "grants.h"

#include "errors.h"
#include "session.h"

#include <inttypes.h>
#include <stdio.h>

enum {
	SAID_NOWAIT = 3572,  /* MySQL's: NOWAIT was in vain */
	SAID_TOO_LONG = 1969 /* MariaDB's: max_statement_time is over */
};

/* mode=row's own. */
struct row_lock {
	struct session_lock lock;
	uint64_t token;
};

static struct row_lock *
mysql_row_of(const struct sql *db)
{
	return sql_own(db, &mysql_row_mode);
}

/* How the row is locked. */
static const char *
row_for(const struct sql *db)
{
	if (db->claim->kind != KIND_SHARED)
		return "FOR UPDATE";
	return mysql_const(db)->session.server.is_mariadb ? "LOCK IN SHARE MODE"
							  : "FOR SHARE";
}

/* Its row is locked: says so, and takes a token.  The lease counts from this statement. */
static enum rc
mysql_take_token(struct sql *db, instant until, struct grant *g, struct fault *f)
{
	const struct question q = {.text = GRANTS_HOLDS,
	    SQL_VALUES(GRANTS_VALUES(db, db->claim->key)),
	    .fields = 1};
	struct row_lock *l = mysql_row_of(db);
	struct answer a = {.db = NULL};
	enum rc rc = session_exec(
	    db, &q, retry_answer(instant_now(), ASK_PATIENCE, until), &a, f);

	if (rc == RC_OK)
		rc = grants_read_token(db, &a, &l->token, f);
	if (rc == RC_OK)
		session_lock_granted(db, &l->lock, l->token, a.sent, g);
	else
		session_close(db); /* and with it the row */
	return rc;
}

enum found { ROW_MISSING, ROW_HELD, ROW_OURS };

/* One attempt to lock the row, in a transaction that is left open with ROW_OURS alone. */
static enum rc
mysql_lock_row(struct sql *db, const struct question *q, instant until, enum found *found,
    struct fault *f)
{
	static const struct question rollback = {.text = "ROLLBACK"};
	struct session *s = &mysql_of(db)->session;
	struct answer a = {.db = NULL};
	enum rc rc = session_exec(s->db, q, until, &a, f);

	*found = ROW_HELD;
	if (rc != RC_OK && s->mysql &&
	    (s->said == SAID_TIMEOUT || s->said == SAID_NOWAIT ||
		s->said == SAID_DEADLOCK || s->said == SAID_INTERRUPTED ||
		s->said == SAID_TOO_LONG))
		return RC_OK;
	if (rc != RC_OK)
		return rc;
	*found = a.rows ? ROW_OURS : ROW_MISSING;
	answer_drop(&a);
	return *found == ROW_OURS ? RC_OK
				  : session_exec(s->db, &rollback, until, NULL, f);
}

/* The key's row must be there, and seen by all, before it can be locked. */
static enum rc
mysql_make_row(struct sql *db, instant until, struct fault *f)
{
	const struct question q = {
	    .text = "INSERT IGNORE INTO dlock_rows (k) VALUES ($1)",
	    SQL_VALUES(SQL_TEXT(db->claim->key))};

	return sql_ask_created(db, &q, until, NULL, f);
}

/* Now or never. */
static enum rc
mysql_try_row(struct sql *db, instant until, enum found *found, struct fault *f)
{
	char text[120];
	const struct question q = {.text = text,
	    SQL_VALUES(SQL_TEXT(db->claim->key)),
	    .fields = 1,
	    .many = true};
	enum rc rc = grants_open(db, &mysql_row_of(db)->lock, until, f);

	if (rc != RC_OK)
		return rc;
	snprintf(text, sizeof text,
	    "START TRANSACTION; SELECT 1 FROM dlock_rows WHERE k = $1 %s NOWAIT",
	    row_for(db));
	return mysql_lock_row(db, &q, until, found, f);
}

/*
 * MariaDB says the same of a row and of a table that somebody has locked.  A row that is
 * never there tells which: RC_AGAIN, it is the table.
 */
static enum rc
check_table(struct sql *db, instant until, struct fault *f)
{
	static const struct question q = {
	    .text = "SELECT 1 FROM dlock_rows WHERE k = '' FOR UPDATE NOWAIT",
	    .fields = 1,
	    .many = true};
	enum rc rc = session_exec(db, &q, until, NULL, f);

	return rc != RC_OK && mysql_of(db)->session.said == SAID_TIMEOUT
	    ? fault_set(f, RC_AGAIN,
		  "%s: somebody has locked the table dlock_rows (LOCK TABLES, mysqldump)",
		  db->where)
	    : rc;
}

/* The same, but a key without a row gets one, and a database without tables as well. */
static enum rc
mysql_ask_row(struct sql *db, instant until, bool *got, struct grant *g, struct fault *f)
{
	enum found found = ROW_HELD;
	enum rc rc = mysql_try_row(db, until, &found, f);

	*got = false;
	if (rc == RC_OK ? found == ROW_MISSING : sql_is_missing(db)) {
		rc = mysql_make_row(db, until, f);
		if (rc == RC_OK)
			rc = mysql_try_row(db, until, &found, f);
	}
	if (rc != RC_OK)
		return sql_explain_denial(db, rc, f);
	if (found == ROW_HELD && mysql_of(db)->session.said == SAID_TIMEOUT) {
		rc = check_table(db, until, f);
		if (rc == RC_OK) /* it may have been, for as long as others made it */
			rc = mysql_try_row(db, until, &found, f);
	}
	*got = rc == RC_OK && found == ROW_OURS;
	if (*got)
		return mysql_take_token(db, until, g, f);
	return rc == RC_OK ? grants_see(db, db->claim->key, until, f) : rc;
}

/* A wait for a row lasts whole seconds.  MariaDB can break it off before. */
static int64_t
mysql_write_wait(const struct sql *db, int64_t ms, char *sql, size_t size)
{
	bool is_mariadb = mysql_const(db)->session.server.is_mariadb;
	int64_t s = (ms + 999) / 1000;

	if (is_mariadb)
		snprintf(sql, size,
		    "SET innodb_lock_wait_timeout = %" PRId64
		    "; START TRANSACTION; " GRANTS_WAITS
		    "SET STATEMENT max_statement_time = %" PRId64 " / 1000 FOR "
		    "SELECT 1 FROM dlock_rows WHERE k = $2 %s",
		    s, ms, row_for(db));
	else
		snprintf(sql, size,
		    "SET innodb_lock_wait_timeout = %" PRId64
		    "; START TRANSACTION; " GRANTS_WAITS
		    "SELECT 1 FROM dlock_rows WHERE k = $2 %s",
		    s, row_for(db));
	return is_mariadb ? ms : s * 1000;
}

static enum rc
mysql_wait_row(struct sql *db, int64_t ms, instant until, bool *got, struct grant *g,
    struct fault *f)
{
	enum found found = ROW_HELD;
	char text[1024];
	const struct question q = {.text = text,
	    SQL_VALUES(GRANTS_VALUES(db, db->claim->key)),
	    .fields = 1,
	    .many = true};
	enum rc rc = grants_open(db, &mysql_row_of(db)->lock,
	    retry_answer(instant_now(), ASK_PATIENCE, until), f);

	*got = false;
	if (rc != RC_OK)
		return rc;
	ms = mysql_write_wait(db, ms, text, sizeof text);
	rc = mysql_lock_row(db, &q,
	    retry_answer(instant_now() + ms * NS_PER_MS, ASK_PATIENCE, until), &found, f);
	if (rc != RC_OK)
		return rc;
	*got = found == ROW_OURS;
	return *got ? mysql_take_token(db, until, g, f) : RC_OK;
}

static enum rc
mysql_row_acquire(struct sql *db, instant until, struct grant *g, struct fault *f)
{
	static const struct session_lock_way way = {mysql_ask_row, mysql_wait_row, false};

	return session_lock_acquire(db, &way, until, g, f);
}

/* ---- the hold ---- */

#define STILL_OURS \
	"SELECT " GRANTS_ON_PRIMARY( \
	    "EXISTS (SELECT 1 FROM dlock_grants WHERE n = $1 AND session = CONNECTION_ID())")

static enum rc
mysql_row_renew(struct sql *db, instant until, struct grant *g, struct fault *f)
{
	struct row_lock *l = mysql_row_of(db);
	const struct question q = {
	    .text = STILL_OURS, SQL_VALUES(SQL_INT((int64_t)l->token)), .fields = 1};

	return session_lock_renew(db, &l->lock, &q, false, until, g, f);
}

static enum rc
mysql_row_release(struct sql *db, int status, instant until, struct fault *f)
{
	struct row_lock *l = mysql_row_of(db);
	const struct question q = {.text = STILL_OURS "; ROLLBACK",
	    SQL_VALUES(SQL_INT((int64_t)l->token)),
	    .fields = 1};

	(void)status;
	return session_lock_release(db, &l->lock, &q, NULL, until, f);
}

/* ---- looking and steering ---- */

static enum rc
mysql_row_each(struct sql *db, const struct look *look, struct fault *f)
{
	return grants_each(db, look, look->key, NULL, f);
}

/* Ends the session that has locked it, and its transaction with it. */
static enum rc
mysql_row_revoke(struct sql *db, const struct target *target, const char *record,
    bool force, instant until, struct fault *f)
{
	(void)record, (void)force;
	return grants_end(db, target->key, target->owner, NULL, until, f);
}

const struct sql_mode mysql_row_mode = {
    .name = "row",
    .caps = CAP_SHARED | CAP_FORCE,
    .bytes = sizeof(struct row_lock),
    .acquire = mysql_row_acquire,
    .renew = mysql_row_renew,
    .release = mysql_row_release,
    .each = mysql_row_each,
    .revoke = mysql_row_revoke,
};
