/*
 * lease.c - mode=lease in MySQL and MariaDB: the calls of schema.sql's procedures, and
 * wake-up locks.
 *
 *  1. A wake-up lock is a GET_LOCK of the session.  Nobody has one behind a proxy, nor at a
 *     node of Galera, where others would not see it; and a server takes a long chain of
 *     sleepers for a deadlock: so not all have one to sleep on (schema.sql).
 *  2. What a procedure selects it selects after COMMIT, and nothing is believed before the
 *     whole answer has come.
 *  3. Whoever sees the processlist reads what stands in a statement: so the claim's owner is
 *     sent to release only.
 */
#include "mysql.h"

#include "backends/sql/lease.h"
#include "session.h"

#include <stdio.h>
#include <string.h>

static bool
mysql_has_wake_lock(const struct sql *db)
{
	const struct server_facts *server = &mysql_const(db)->session.server;

	return server->is_direct && !server->is_galera;
}

/* ---- sessions that are left over ---- */

/*
 * A session that is left over from a broken connection may keep a wake-up lock of ours: who
 * sleeps on it would not be woken.  So whoever has lost its session looks who has the lock
 * before it gives it back, and ends that one if it has it afterwards, too: who is woken by
 * the release has it only then, and for a moment.
 */
#define WAKE_LOCK "IS_USED_LOCK(CONCAT('dlock:', LEFT(SHA2($1, 256), 32)))"
#define WAKE_LOCK_OF_HOLD "IS_USED_LOCK(CONCAT('dlock:', LEFT(SHA2($1, 256), 32), 'h'))"

static bool
may_have_old_session(const struct sql *db)
{
	return mysql_has_wake_lock(db) && db->serial > 1;
}

static void
look_for_old_session(struct sql *db, instant until)
{
	const struct question q = {
	    .text = "SET @dlock_old = COALESCE(" WAKE_LOCK ", " WAKE_LOCK_OF_HOLD ")",
	    SQL_VALUES(SQL_TEXT(lease_of(db)->me))};
	struct fault unheard;

	if (may_have_old_session(db))
		(void)session_exec(db, &q, until, NULL, &unheard);
}

static void
mysql_released(struct sql *db, instant until)
{
	const struct question q = {
	    .text =
		"KILL CASE WHEN @dlock_old <> CONNECTION_ID() AND @dlock_old IN (" WAKE_LOCK
		", " WAKE_LOCK_OF_HOLD ") THEN @dlock_old ELSE 0 END",
	    SQL_VALUES(SQL_TEXT(lease_of(db)->me))};
	unsigned said = mysql_of(db)->session.said;
	struct fault unheard;

	if (may_have_old_session(db))
		(void)session_exec(db, &q, until, NULL, &unheard);
	mysql_of(db)->session.said = said;
}

/* ---- values and columns ---- */

static size_t
mysql_values(
    struct sql *db, enum lease_call call, instant until, struct sql_value *values)
{
	const struct session *s = &mysql_of(db)->session;

	switch (call) {
	case LEASE_TAKE:
	case LEASE_ENTER:
		values[0] = SQL_INT(mysql_has_wake_lock(db));
		values[1] = SQL_INT(session_server_time(s, until));
		values[2] = SQL_INT(db->claim->ttl / 1000);
		return 3;
	case LEASE_RENEW:
		values[0] = SQL_INT(mysql_has_wake_lock(db));
		return 1;
	case LEASE_RELEASE:
		look_for_old_session(db, until);
		values[0] = SQL_TEXT(db->claim->owner);
		return 1;
	default:
		return 0;
	}
}

/* "who":"..." of a record, if it is that simple. */
static void
read_who(const char *record, char *out, size_t size)
{
	const char *who = record ? strstr(record, "\"who\":\"") : NULL;
	size_t n;

	*out = '\0';
	if (!who)
		return;
	who += 7;
	for (n = 0; (unsigned char)who[n] >= ' ' && !strchr("\"\\\177", who[n]);)
		n++;
	if (n < size && who[n] == '"')
		snprintf(out, size, "%.*s", (int)n, who);
}

enum { ENTER_RECORD, ENTER_MOMENT };

static bool
mysql_heard(struct sql *db, enum lease_call call, const struct row *r, int first)
{
	struct lease *l = lease_of(db);
	int64_t moment;

	if (call != LEASE_ENTER)
		return true;
	l->has_own = mysql_has_wake_lock(db);
	read_who(row_words(r, first + ENTER_RECORD), l->standing.done.who,
	    sizeof l->standing.done.who);
	if (row_integer(r, first + ENTER_MOMENT, 0, INT64_MAX / 2, &moment))
		session_set_clock(&mysql_of(db)->session, moment);
	return true;
}

/* ---- after a hold was taken away ---- */

/* Those who sleep in dlock_await on this wake-up lock, as far as our user sees them. */
static const char sleepers_sql[] =
    "SELECT id FROM information_schema.processlist WHERE state = 'User lock' "
    "AND info LIKE CONCAT('CALL dlock_await%', LOWER(HEX($1)), '%') LIMIT 1000";

static void
wake(struct sql *db, int64_t session, instant until)
{
	const struct question q = {.text = "KILL QUERY $1", SQL_VALUES(SQL_INT(session))};
	struct fault unheard;

	(void)session_exec(db, &q, until, NULL, &unheard);
}

/*
 * Has them ask again: they are not to wait for the end of their sleep.  It needs a right
 * over their sessions; without it they wake by themselves.
 */
static void
mysql_taken_away(struct sql *db, const struct row *r, int first, instant until)
{
	char lock[WAKE_BYTES];
	const struct question q = {
	    .text = sleepers_sql, SQL_VALUES(SQL_TEXT(lock)), .fields = 1, .many = true};
	struct answer a = {.db = NULL};
	struct fault unheard;
	struct row row;
	int64_t session;

	if (!row_text(r, first, lock, sizeof lock) || !*lock ||
	    session_exec(db, &q, until, &a, &unheard) != RC_OK)
		return;
	while ((row = answer_next(&a)).at)
		if (row_integer(&row, 0, 1, INT64_MAX, &session))
			wake(db, session, until);
	answer_drop(&a);
}

/* Times are microseconds there. */
#define CALL(name, arguments) "CALL " PROCEDURE(name) "(" arguments ")"
#define RELEASE(arguments) CALL("release", arguments)

const struct lease_driver mysql_lease = {
    .texts =
	{
	    [LEASE_TAKE] = {CALL("take", "$1, $2, $3, $6, $4, $5"), 1},
	    [LEASE_ENTER] =
		{CALL("enter",
		     "$1, $2, $3, $12, $5 * 1000, $6, $7, $10, $8, $9 * 1000, $11"),
		    17},
	    [LEASE_AWAIT] = {CALL("await", "$1, $2, $3, $4"), 3},
	    [LEASE_RENEW] = {CALL("renew", "$1, $2, $3, $4 * 1000, $5"), 2},
	    [LEASE_RELEASE] = {RELEASE("$1, $3, NULL, NULL"), 1},
	    [LEASE_LIST] = {CALL("list", "$1, $2, $3, $4, $5"), 12},
	    [LEASE_LAST_RUN] = {CALL("last_run", "$1"), 7},
	    [LEASE_ASK_BACK] = {CALL("ask_back", "$1, $2, $3, $4"), 1},
	    [LEASE_TAKE_AWAY] = {CALL("take_away", "$1, $2, $3, $4"), 2},
	    [LEASE_FREEZE] = {CALL("freeze", "$1, $2, $3 * 1000"), 1},
	    [LEASE_THAW] = {CALL("thaw", "$1"), 1},
	},
    .release_among = RELEASE("$1, $3, NULL, NULL"),
    .release_of_job = RELEASE("$1, $5, $3, $4"),
    .hides_owner = true,
    .damaged = "a row in dlock's tables that no dlock has written",
    .values = mysql_values,
    .heard = mysql_heard,
    .has_wake_lock = mysql_has_wake_lock,
    .released = mysql_released,
    .taken_away = mysql_taken_away,
};
