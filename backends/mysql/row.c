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
 *  5. What holds for all locks tied to a session: tied.h.
 */
#include "tied.h"
#include "grants.h"

#include <inttypes.h>
#include <stdio.h>

enum {
	SAID_NOWAIT = 3572,  /* MySQL's: NOWAIT was in vain */
	SAID_TOO_LONG = 1969 /* MariaDB's: max_statement_time is over */
};

/* mode=row's own. */
struct row_lock {
	struct tied tied;
	uint64_t token;
};

static struct row_lock *
row_of(const struct mysql *my)
{
	return mysql_own(my, &mysql_row_mode);
}

/* How the row is locked. */
static const char *
row_for(const struct mysql *my)
{
	if (my->claim->kind != KIND_SHARED)
		return "FOR UPDATE";
	return my->session.server.is_mariadb ? "LOCK IN SHARE MODE" : "FOR SHARE";
}

/* Its row is locked: says so, and takes a token.  The lease counts from this statement. */
static enum rc
take_token(struct mysql *my, instant until, struct grant *g, struct fault *f)
{
	struct sql sql;
	MYSQL_RES *r;
	instant sent;
	enum rc rc = tied_ask(my,
	    sql_write(&sql, GRANTS_HOLDS, SQL_VALUES(GRANTS_VALUES(my, my->claim->key))),
	    &(struct shape){1, false}, retry_answer(instant_now(), ASK_PATIENCE, until),
	    &sent, &r, f);

	if (rc != RC_OK)
		return rc;
	rc = grants_read_token(my, r, &row_of(my)->token, f);
	if (rc != RC_OK) {
		session_close(&my->session);
		return rc;
	}
	tied_granted(my, &row_of(my)->tied, row_of(my)->token, sent, g);
	return RC_OK;
}

enum found { ROW_MISSING, ROW_HELD, ROW_OURS };

/* One attempt to lock the row, in a transaction that is left open with ROW_OURS alone. */
static enum rc
lock_row(
    struct mysql *my, const char *sql, instant until, enum found *found, struct fault *f)
{
	struct session *s = &my->session;
	MYSQL_RES *r;
	instant sent;
	enum rc rc = session_ask_here(
	    s, sql, &(struct shape){1, true}, until, &sent, &r, f);

	*found = ROW_HELD;
	if (rc != RC_OK && s->mysql &&
	    (s->said == SAID_TIMEOUT || s->said == SAID_NOWAIT ||
		s->said == SAID_DEADLOCK || s->said == SAID_INTERRUPTED ||
		s->said == SAID_TOO_LONG))
		return RC_OK;
	if (rc != RC_OK)
		return rc;
	*found = s->my->num_rows(r) ? ROW_OURS : ROW_MISSING;
	s->my->free_result(r);
	if (*found == ROW_OURS)
		return RC_OK;
	return session_ask_here(
	    s, "ROLLBACK", &(struct shape){0, false}, until, &sent, NULL, f);
}

/* The key's row must be there, and seen by all, before it can be locked. */
static enum rc
make_row(struct mysql *my, instant until, struct fault *f)
{
	struct sql sql;
	instant sent;

	return mysql_ask(my,
	    sql_write(&sql, "INSERT IGNORE INTO dlock_rows (k) VALUES (?)",
		SQL_VALUES(SQL_TEXT(my->claim->key))),
	    &(struct shape){0, false}, until, &sent, NULL, f);
}

/* Now or never. */
static enum rc
try_row(struct mysql *my, instant until, enum found *found, struct fault *f)
{
	char format[120];
	struct sql sql;
	enum rc rc = tied_open(my, &row_of(my)->tied, until, f);

	if (rc != RC_OK)
		return rc;
	snprintf(format, sizeof format,
	    "START TRANSACTION; SELECT 1 FROM dlock_rows WHERE k = ? %s NOWAIT",
	    row_for(my));
	return lock_row(my, sql_write(&sql, format, SQL_VALUES(SQL_TEXT(my->claim->key))),
	    until, found, f);
}

/*
 * MariaDB says the same of a row and of a table that somebody has locked.  A row that is
 * never there tells which: RC_AGAIN, it is the table.
 */
static enum rc
check_table(struct mysql *my, instant until, struct fault *f)
{
	instant sent;
	enum rc rc = session_ask_here(&my->session,
	    "SELECT 1 FROM dlock_rows WHERE k = '' FOR UPDATE NOWAIT",
	    &(struct shape){1, true}, until, &sent, NULL, f);

	return rc != RC_OK && my->session.said == SAID_TIMEOUT
	    ? fault_set(f, RC_AGAIN,
		  "%s: somebody has locked the table dlock_rows (LOCK TABLES, mysqldump)",
		  my->session.where)
	    : rc;
}

/* The same, but a key without a row gets one, and a database without tables as well. */
static enum rc
first_row(struct mysql *my, instant until, bool *got, struct grant *g, struct fault *f)
{
	enum found found = ROW_HELD;
	enum rc rc = try_row(my, until, &found, f);

	*got = false;
	if (rc == RC_OK ? found == ROW_MISSING : mysql_is_missing(my)) {
		rc = make_row(my, until, f);
		if (rc == RC_OK)
			rc = try_row(my, until, &found, f);
	}
	if (rc == RC_DENIED)
		return mysql_explain_denial(my, rc, f);
	if (rc != RC_OK)
		return rc;
	if (found == ROW_HELD && my->session.said == SAID_TIMEOUT) {
		rc = check_table(my, until, f);
		if (rc == RC_OK) /* it may have been, for as long as others made it */
			rc = try_row(my, until, &found, f);
	}
	*got = rc == RC_OK && found == ROW_OURS;
	if (*got)
		return take_token(my, until, g, f);
	return rc == RC_OK ? grants_see(my, my->claim->key, until, f) : rc;
}

/* A wait for a row lasts whole seconds.  MariaDB can break it off before. */
static int64_t
write_wait(const struct mysql *my, int64_t ms, char *sql, size_t size)
{
	int64_t s = (ms + 999) / 1000;

	if (my->session.server.is_mariadb)
		snprintf(sql, size,
		    "SET innodb_lock_wait_timeout = %" PRId64
		    "; START TRANSACTION; " GRANTS_WAITS
		    "SET STATEMENT max_statement_time = %" PRId64 " / 1000 FOR "
		    "SELECT 1 FROM dlock_rows WHERE k = ? %s",
		    s, ms, row_for(my));
	else
		snprintf(sql, size,
		    "SET innodb_lock_wait_timeout = %" PRId64
		    "; START TRANSACTION; " GRANTS_WAITS
		    "SELECT 1 FROM dlock_rows WHERE k = ? %s",
		    s, row_for(my));
	return my->session.server.is_mariadb ? ms : s * 1000;
}

static enum rc
wait_row(struct mysql *my, int64_t ms, instant until, bool *got, struct grant *g,
    struct fault *f)
{
	enum found found = ROW_HELD;
	char format[1024];
	struct sql sql;
	enum rc rc = tied_open(
	    my, &row_of(my)->tied, retry_answer(instant_now(), ASK_PATIENCE, until), f);

	*got = false;
	if (rc != RC_OK)
		return rc;
	ms = write_wait(my, ms, format, sizeof format);
	rc = lock_row(my,
	    sql_write(&sql, format,
		SQL_VALUES(GRANTS_VALUES(my, my->claim->key), SQL_TEXT(my->claim->key))),
	    retry_answer(instant_now() + ms * NS_PER_MS, ASK_PATIENCE, until), &found, f);
	if (rc != RC_OK)
		return rc;
	*got = found == ROW_OURS;
	return *got ? take_token(my, until, g, f) : RC_OK;
}

static enum rc
row_acquire(struct mysql *my, instant until, struct grant *g, struct fault *f)
{
	static const struct tied_way way = {first_row, wait_row};

	return tied_acquire(my, &way, until, g, f);
}

/* ---- the hold ---- */

#define STILL_OURS \
	"SELECT " GRANTS_ON_PRIMARY( \
	    "EXISTS (SELECT 1 FROM dlock_grants WHERE n = ? AND session = CONNECTION_ID())")

static enum rc
row_renew(struct mysql *my, instant until, struct grant *g, struct fault *f)
{
	struct row_lock *l = row_of(my);
	struct sql sql;

	return tied_renew(my, &l->tied,
	    sql_write(&sql, STILL_OURS, SQL_VALUES(SQL_INT((int64_t)l->token))), until, g,
	    f);
}

static enum rc
row_release(struct mysql *my, int status, instant until, struct fault *f)
{
	struct row_lock *l = row_of(my);
	struct sql sql;

	(void)status;
	return tied_release(my, &l->tied,
	    sql_write(
		&sql, STILL_OURS "; ROLLBACK", SQL_VALUES(SQL_INT((int64_t)l->token))),
	    until, f);
}

/* ---- looking and steering ---- */

static enum rc
row_each(struct mysql *my, const struct look *look, struct fault *f)
{
	return grants_each(my, look, look->key, NULL, f);
}

/* Ends the session that has locked it, and its transaction with it. */
static enum rc
row_revoke(struct mysql *my, const struct target *target, const char *record, bool force,
    instant until, struct fault *f)
{
	(void)record, (void)force;
	return grants_end(my, target->key, target->owner, NULL, until, f);
}

const struct steering mysql_row_steering = {
    .each = row_each,
    .revoke = row_revoke,
};

const struct mode mysql_row_mode = {
    .name = "row",
    .caps = CAP_SHARED | CAP_FORCE,
    .rights =
	"SELECT, INSERT, DELETE ON DATABASE.dlock_rows and ON DATABASE.dlock_grants",
    .bytes = sizeof(struct row_lock),
    .needs_database = true,
    .acquire = row_acquire,
    .renew = row_renew,
    .release = row_release,
    .steering = &mysql_row_steering,
};
