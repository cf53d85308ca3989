/*
 * lease_steering.c - looks at the tables of mode=lease, and steers them.
 *
 *  1. A look is a page at a time: one statement that writes nothing, and reads on behind
 *     the last row of the page before.  It makes no tables, and takes a read-only server
 *     where there is no other.
 *  2. A grant is named by key and token.
 *  3. What is asked of a holder stands in its row, and dies with it.  What was taken away by
 *     force is remembered for a day: for its holder, and for who has to ask twice.
 *  4. A freeze is a row among those who hold (schema.sql): a key that has none costs
 *     nobody anything.
 */
#include "modes.h"

#include "backends/sql/lease_rows.h"

enum { PAGE = 500 };

/* ---- each ---- */

/* The next page; *n: how many rows it had. */
static enum rc
see_page(struct mysql *my, struct lease_rows *s, unsigned *n, struct fault *f)
{
	struct sql sql;
	MYSQL_RES *r;
	enum rc rc = mysql_ask_existing(my,
	    sql_call(&sql, "list",
		SQL_VALUES(SQL_TEXT(s->seen.look->key), SQL_TEXT(s->seen.key),
		    SQL_INT(s->turn), SQL_INT(s->number), SQL_INT(PAGE))),
	    &(struct shape){LEASE_ROW_FIELDS, true}, s->seen.look->until, &r, f);

	*n = 0;
	if (rc != RC_OK || !r)
		return rc;
	for (struct row row = row_first(my->session.my, r);
	     row.at && rc == RC_OK && !s->seen.enough;
	     row = row_next(my->session.my, r), ++*n)
		if (!lease_rows_see(s, &row))
			rc = mysql_makes_no_sense(my, RC_PROTOCOL, f);
	my->session.my->free_result(r);
	return rc;
}

static enum rc
see_last_run(struct mysql *my, struct lease_rows *s, struct fault *f)
{
	struct sql sql;
	MYSQL_RES *r;
	struct row row;
	enum rc rc = mysql_ask_existing(my,
	    sql_call(&sql, "last_run", SQL_VALUES(SQL_TEXT(s->seen.look->key))),
	    &(struct shape){RUN_FIELDS, true}, s->seen.look->until, &r, f);

	if (rc != RC_OK || !r)
		return rc;
	row = row_first(my->session.my, r);
	if (row.at)
		lease_rows_see_run(s, &row);
	my->session.my->free_result(r);
	return rc;
}

static enum rc
lease_each(struct mysql *my, const struct look *look, struct fault *f)
{
	struct lease_rows s = {
	    .damaged = "a row in dlock's tables that no dlock has written"};
	unsigned n;
	enum rc rc;

	lease_rows_begin(&s, look);
	do
		rc = see_page(my, &s, &n, f);
	while (rc == RC_OK && n == PAGE && !s.seen.enough);
	if (rc == RC_OK)
		sighting_tell_waiting(&s.seen);
	if (rc == RC_OK && look->key && !s.seen.enough)
		rc = see_last_run(my, &s, f);
	return rc;
}

/* ---- steering ---- */

/*
 * Asks for something that is done or, *done false, has nothing to be done to.  `bell`:
 * where the second of two fields goes; NULL: there is only one.
 */
static enum rc
ask_whether(struct mysql *my, const char *sql, instant until, bool *done, char *bell,
    size_t size, struct fault *f)
{
	const struct shape shape = {bell ? 2 : 1, false};
	MYSQL_RES *r;
	struct row row;
	enum rc rc = mysql_ask_existing(my, sql, &shape, until, &r, f);

	*done = false;
	if (rc != RC_OK || !r)
		return rc; /* no tables, and so nothing is done */
	row = row_first(my->session.my, r);
	if (!row_boolean(&row, 0, done) || (bell && !row_text(&row, 1, bell, size)))
		rc = mysql_makes_no_sense(my, RC_PROTOCOL, f);
	my->session.my->free_result(r);
	return rc;
}

static enum rc
refuse_gone(const struct mysql *my, struct fault *f)
{
	return fault_set(
	    f, RC_LOST, "%s has no such grant (any more)", my->session.where);
}

static enum rc
ask_back(struct mysql *my, const struct target *target, const char *record, instant until,
    struct fault *f)
{
	struct sql sql;
	bool done;
	enum rc rc = ask_whether(my,
	    sql_call(&sql, "ask_back",
		SQL_VALUES(SQL_TEXT(target->key), SQL_INT((int64_t)target->token),
		    SQL_TEXT(target->owner), SQL_TEXT(record))),
	    until, &done, NULL, 0, f);

	return rc == RC_OK && !done ? refuse_gone(my, f) : rc;
}

/* Those who sleep in dlock_await on this bell, as far as our user sees them. */
static const char sleepers_sql[] =
    "SELECT id FROM information_schema.processlist WHERE state = 'User lock' "
    "AND info LIKE CONCAT('CALL dlock_await%', LOWER(HEX(?)), '%') LIMIT 1000";

static void
wake(struct mysql *my, int64_t session, instant until)
{
	struct fault unheard;
	struct sql sql;
	instant sent;

	(void)session_ask_here(&my->session,
	    sql_write(&sql, "KILL QUERY ?", SQL_VALUES(SQL_INT(session))),
	    &(struct shape){0, false}, until, &sent, NULL, &unheard);
}

/*
 * Has them ask again: they are not to wait for the end of their sleep.  It needs a right
 * over their sessions; without it they wake by themselves.
 */
static void
wake_sleepers(struct mysql *my, const char *bell, instant until)
{
	const struct libmariadb *lib = my->session.my;
	struct fault unheard;
	struct sql sql;
	MYSQL_RES *r;
	instant sent;
	int64_t session;

	if (!*bell ||
	    session_ask_here(&my->session,
		sql_write(&sql, sleepers_sql, SQL_VALUES(SQL_TEXT(bell))),
		&(struct shape){1, true}, until, &sent, &r, &unheard) != RC_OK)
		return;
	for (struct row row = row_first(lib, r); row.at; row = row_next(lib, r))
		if (row_integer(&row, 0, 1, INT64_MAX, &session))
			wake(my, session, until);
	lib->free_result(r);
}

static enum rc
take_away(struct mysql *my, const struct target *target, const char *record,
    instant until, struct fault *f)
{
	char bell[OWNER_CHARS + 2] = "";
	struct sql sql;
	bool done;
	enum rc rc = ask_whether(my,
	    sql_call(&sql, "take_away",
		SQL_VALUES(SQL_TEXT(target->key), SQL_INT((int64_t)target->token),
		    SQL_TEXT(target->owner), SQL_TEXT(record))),
	    until, &done, bell, sizeof bell, f);

	if (rc == RC_OK && !done)
		return refuse_gone(my, f);
	if (rc == RC_OK)
		wake_sleepers(my, bell, until);
	return rc;
}

static enum rc
lease_revoke(struct mysql *my, const struct target *target, const char *record,
    bool force, instant until, struct fault *f)
{
	if (target->token == 0 || target->token > INT64_MAX)
		return refuse_gone(my, f);
	return force ? take_away(my, target, record, until, f)
		     : ask_back(my, target, record, until, f);
}

static enum rc
lease_freeze(struct mysql *my, const char *key, const char *record, int64_t length,
    instant until, struct fault *f)
{
	struct sql sql;
	instant sent;

	return mysql_ask(my,
	    sql_call(&sql, "freeze",
		SQL_VALUES(SQL_TEXT(key), SQL_TEXT(record), SQL_INT(length / 1000))),
	    &(struct shape){1, false}, until, &sent, NULL, f);
}

static enum rc
lease_thaw(struct mysql *my, const char *key, instant until, struct fault *f)
{
	struct sql sql;
	bool done;
	enum rc rc = ask_whether(my, sql_call(&sql, "thaw", SQL_VALUES(SQL_TEXT(key))),
	    until, &done, NULL, 0, f);

	if (rc != RC_OK || done)
		return rc;
	if (my->session.again)
		return fault_set(f, RC_AGAIN,
		    "%s closed the connection before it answered", my->session.where);
	return fault_set(f, RC_LOST, "%s: it is not frozen", my->session.where);
}

const struct steering mysql_lease_steering = {
    .each = lease_each,
    .revoke = lease_revoke,
    .freeze = lease_freeze,
    .thaw = lease_thaw,
};
