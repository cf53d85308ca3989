/*
 * row.c - mode=row in MySQL and MariaDB: a transaction that locks a row of dlock_rows.
 *
 * The transaction has also a row of its own in dlock_grants (grants.h), by which the
 * heartbeat sees that it still is the same one.
 */
#include "grants.h"

#include "errors.h"

#include "backends/sql/row.h"

#include <inttypes.h>
#include <stdio.h>

/* The wait for a row was in vain. */
#define IN_VAIN \
	ERROR_TIMEOUT " " ERROR_NOWAIT " " ERROR_DEADLOCK " " ERROR_INTERRUPTED \
		      " " ERROR_TOO_LONG

#define CHECK_TABLE "SELECT 1 FROM dlock_rows WHERE k = '' FOR UPDATE "

/* How the row is locked. */
static const char *
row_for(const struct sql *db)
{
	if (db->claim->kind != KIND_SHARED)
		return "FOR UPDATE";
	return mysql_const(db)->session.server.is_mariadb ? "LOCK IN SHARE MODE"
							  : "FOR SHARE";
}

/* One attempt to lock the row, in a transaction that is left open with ROW_OURS alone. */
static enum rc
mysql_lock_row(struct sql *db, const struct question *q, instant until,
    enum row_found *found, struct fault *f)
{
	static const struct question rollback = {.text = "ROLLBACK"};
	struct answer a = {.db = NULL};
	enum rc rc = sql_exec(db, q, until, &a, f);

	*found = ROW_HELD;
	if (rc != RC_OK && sql_is_connected(db) && sql_error_is(db, IN_VAIN))
		return RC_OK;
	if (rc != RC_OK)
		return rc;
	*found = a.rows ? ROW_OURS : ROW_MISSING;
	answer_drop(&a);
	return *found == ROW_OURS ? RC_OK : sql_exec(db, &rollback, until, NULL, f);
}

/* Now or never. */
static enum rc
mysql_try_row(struct sql *db, instant until, enum row_found *found, struct fault *f)
{
	char text[120];
	const struct question q = {.text = text,
	    SQL_VALUES(SQL_TEXT(db->claim->key)),
	    .fields = 1,
	    .many = true};
	enum rc rc = grants_open(db, until, f);

	if (rc != RC_OK)
		return rc;
	snprintf(text, sizeof text,
	    "START TRANSACTION; SELECT 1 FROM dlock_rows WHERE k = $1 %s NOWAIT",
	    row_for(db));
	return mysql_lock_row(db, &q, until, found, f);
}

/*
 * MariaDB says the same of a row and of a table that somebody has locked.  A row that is
 * never there tells which: RC_AGAIN, it is the table.  Another run that makes the tables has
 * them locked for a moment, which MySQL waits for in any case (lock_wait_timeout).
 */
static enum rc
check_table(struct sql *db, instant until, struct fault *f)
{
	char text[80];
	const struct question q = {.text = text, .fields = 1, .many = true};
	int64_t left = (until - instant_now()) / NS_PER_S - 1; /* for the answer */
	enum rc rc;

	if (mysql_const(db)->session.server.is_mariadb && left > 0)
		snprintf(text, sizeof text, CHECK_TABLE "WAIT %d", left > 1 ? 2 : 1);
	else
		snprintf(text, sizeof text, CHECK_TABLE "NOWAIT");
	rc = sql_exec(db, &q, until, NULL, f);
	return rc != RC_OK && sql_error_is(db, ERROR_TIMEOUT)
	    ? fault_set(f, RC_AGAIN,
		  "%s: somebody has locked the table dlock_rows (LOCK TABLES, mysqldump)",
		  db->where)
	    : rc;
}

/* A wait for a row lasts whole seconds.  MariaDB can break it off before. */
static enum rc
mysql_wait_row(
    struct sql *db, int64_t ms, instant until, enum row_found *found, struct fault *f)
{
	char limit[80] = "", text[1024];
	const struct question q = {.text = text,
	    SQL_VALUES(GRANTS_VALUES(db, db->claim->key)),
	    .fields = 1,
	    .many = true};
	int64_t s = (ms + 999) / 1000;
	enum rc rc = grants_open(db, retry_answer(instant_now(), ASK_PATIENCE, until), f);

	if (rc != RC_OK)
		return rc;
	if (mysql_const(db)->session.server.is_mariadb)
		snprintf(limit, sizeof limit,
		    "SET STATEMENT max_statement_time = %" PRId64 " / 1000 FOR ", ms);
	else
		ms = s * 1000;
	snprintf(text, sizeof text,
	    "SET innodb_lock_wait_timeout = %" PRId64 "; START TRANSACTION; " GRANTS_WAITS
	    "%sSELECT 1 FROM dlock_rows WHERE k = $2 %s",
	    s, limit, row_for(db));
	return mysql_lock_row(db, &q,
	    retry_answer(instant_now() + ms * NS_PER_MS, ASK_PATIENCE, until), found, f);
}

static enum rc
mysql_attempt(struct sql *db, int64_t ms, instant until, enum row_found *found,
    struct grant *g, struct fault *f)
{
	enum rc rc;

	*found = ROW_HELD;
	rc = ms ? mysql_wait_row(db, ms, until, found, f)
		: mysql_try_row(db, until, found, f);
	/* it may have been the table, for as long as others made it */
	if (rc == RC_OK && !ms && *found == ROW_HELD && sql_error_is(db, ERROR_TIMEOUT)) {
		rc = check_table(db, until, f);
		if (rc == RC_OK)
			rc = mysql_try_row(db, until, found, f);
	}
	if (rc != RC_OK || *found != ROW_OURS)
		return rc;
	rc = grants_take_token(db, GRANTS_HOLDS, db->claim->key, until, g, f);
	if (rc == RC_OK)
		row_lock_of(db)->number = (int64_t)g->token;
	else
		session_close(db); /* and with it the row */
	return rc;
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

#define STILL_OURS " AND session = CONNECTION_ID()) END"

static const struct session_lock_way way = {
    .ask = row_ask, .wait = row_wait, .still = row_still};

const struct sql_mode mysql_row_mode = {
    .name = "row",
    .caps = CAP_SHARED | CAP_FORCE,
    .bytes = sizeof(struct row_lock),
    .acquire = session_lock_acquire,
    .renew = session_lock_renew,
    .release = session_lock_release,
    .each = mysql_row_each,
    .revoke = mysql_row_revoke,
    .way = &way,
};

const struct row_driver mysql_row = {
    .mode = &mysql_row_mode,
    .add = "INSERT IGNORE INTO dlock_rows (k) VALUES ($1)",
    .still = "SELECT CASE WHEN " SERVER_IS_PRIMARY
	     " THEN EXISTS (SELECT 1 FROM dlock_grants WHERE n = ",
    .still_end = STILL_OURS,
    .release_end = STILL_OURS "; ROLLBACK",
    .attempt = mysql_attempt,
    .see = grants_see,
};
