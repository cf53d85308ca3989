/*
 * lease.c - mode=lease in MySQL and MariaDB: what their schema.sql needs besides.
 *
 *  1. A wake-up lock is a GET_LOCK of the session.  Nobody has one behind a proxy, nor at a
 *     node of Galera, where others would not see it.  A server takes a long chain of sleepers
 *     for a deadlock: so not all waiters have one to sleep on (schema.sql).
 *  2. A procedure selects its answer after COMMIT, and nothing is believed before all of that
 *     has come.
 *  3. Statements stand in the processlist for others to read: so the claim's owner is sent to
 *     release only.
 */
#include "mysql.h"

#include "backends/sql/lease.h"

static int64_t
number_of_session(const struct sql *db)
{
	return mysql_const(db)->session.server.is_galera ? 0 : session_number(db);
}

/* The waiter that a release wakes has our wake-up lock, too, but had it not before. */
#define WAKE_LOCK "IS_USED_LOCK(CONCAT('dlock:', LEFT(SHA2($1, 256), 32)))"
#define WAKE_LOCK_OF_HOLD "IS_USED_LOCK(CONCAT('dlock:', LEFT(SHA2($1, 256), 32), 'h'))"

static const char end_old_sessions[] =
    "KILL CASE WHEN @dlock_old <> CONNECTION_ID() AND @dlock_old IN (" WAKE_LOCK
    ", " WAKE_LOCK_OF_HOLD ") THEN @dlock_old ELSE 0 END";

/* ---- after a hold was taken away ---- */

/* The sessions that sleep in dlock_await on its wake-up lock, as far as our user sees them. */
static const char sleepers_sql[] =
    "SELECT id FROM information_schema.processlist WHERE state = 'User lock' "
    "AND info LIKE CONCAT('CALL dlock_await%', LOWER(HEX(@dlock_wake)), '%') LIMIT 1000";

/*
 * Has them ask again before the end of their sleep.  It needs a right over their sessions;
 * without it they wake by themselves.
 */
static void
wake_sleepers(struct sql *db, instant until)
{
	const struct question sleepers = {
	    .text = sleepers_sql, .fields = 1, .many = true};
	struct answer a = {.db = NULL};
	struct fault unheard;
	struct row row;
	int64_t session;

	if (sql_exec(db, &sleepers, until, &a, &unheard) != RC_OK)
		return;
	while ((row = answer_next(&a)).at)
		if (row_integer(&row, 0, 1, INT64_MAX, &session)) {
			const struct question wake = {
			    .text = "KILL QUERY $1", SQL_VALUES(SQL_INT(session))};

			(void)sql_exec(db, &wake, until, NULL, &unheard);
		}
	answer_drop(&a);
}

const struct lease_driver mysql_lease = {
    .hides_owner = true,
    .damaged = "a row in dlock's tables that no dlock has written",
    .end_old_sessions = end_old_sessions,
    .session_number = number_of_session,
    .server_time = session_server_time,
    .set_clock = session_set_clock,
    .taken_away = wake_sleepers,
};
