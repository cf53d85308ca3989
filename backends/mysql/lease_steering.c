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

#include "backends/kind.h"
#include "backends/sighting.h"

#include <stdio.h>
#include <string.h>

enum { PAGE = 500 };

/* Who stands in a row, and in which order they are told. */
enum turn { TURN_HOLDER, TURN_WAITER, TURN_FREEZE, TURNS };

/* The columns of dlock_list. */
enum {
	KEY,
	TURN,
	NUMBER,
	KIND,
	ROOM,
	TOKEN,
	SLOT,
	SINCE,
	ENDS,
	MOMENT,
	IS_WANTED,
	RECORD,
	LIST_FIELDS
};

/* How far a look has come. */
struct survey {
	struct sighting seen;
	int64_t turn, number; /* of the last row, below its key */
};

/* ---- what is seen ---- */

/* What has no end has the greatest time there is. */
static int64_t
read_time(const struct row *r, int field)
{
	int64_t t;

	return row_integer(r, field, 0, INT64_MAX - 1, &t) ? t : EPOCH_NONE;
}

/* Which kind of lock it is, and what goes with that.  False: none that makes sense. */
static bool
read_lock(const struct row *r, struct entry *e)
{
	const char *word = row_words(r, KIND);
	int64_t room, token, slot = -1;

	if (!word || !row_integer(r, ROOM, 0, LIMIT_MAX, &room))
		return false;
	if (e->kind == ENTRY_FREEZE)
		return strcmp(word, KIND_WORD_FREEZE) == 0;
	if (!kind_of_word(word, &e->lock) || (e->lock == KIND_LIMIT) != (room > 0))
		return false;
	e->limit = room;
	if (e->kind == ENTRY_WAITER)
		return true;
	if (!row_integer(r, TOKEN, 1, INT64_MAX, &token) ||
	    (room > 0 && !row_integer(r, SLOT, 0, room - 1, &slot)))
		return false;
	e->token = token;
	e->slot = (int)slot;
	return row_boolean(r, IS_WANTED, &e->revoked);
}

static struct entry
read_entry(const struct row *r, const struct survey *s)
{
	static const enum entry_kind kinds[TURNS] = {
	    ENTRY_HOLDER, ENTRY_WAITER, ENTRY_FREEZE};
	struct entry e = {.kind = kinds[s->turn],
	    .key = s->seen.key,
	    .slot = -1,
	    .record = row_words(r, RECORD),
	    .since = read_time(r, SINCE),
	    .until = read_time(r, ENDS)};

	if (!read_lock(r, &e))
		e = (struct entry){.kind = ENTRY_UNKNOWN,
		    .key = s->seen.key,
		    .slot = -1,
		    .since = EPOCH_NONE,
		    .until = EPOCH_NONE,
		    .what = "a row in dlock's tables that no dlock has written"};
	return e;
}

/* Where a row stands.  False: a server that makes no sense, or goes back. */
static bool
read_place(const struct row *r, struct survey *s)
{
	char key[KEY_BYTES + 1];
	int64_t turn, number;
	int order;

	if (!row_text(r, KEY, key, sizeof key) ||
	    !row_integer(r, TURN, 0, TURNS - 1, &turn) ||
	    !row_integer(r, NUMBER, INT64_MIN, INT64_MAX, &number) ||
	    !row_integer(r, MOMENT, 0, INT64_MAX, &s->seen.now))
		return false;
	order = strcmp(key, s->seen.key);
	if (order < 0 ||
	    (order == 0 && (turn < s->turn || (turn == s->turn && number <= s->number))))
		return false;
	sighting_key(&s->seen, key);
	if (turn > TURN_WAITER)
		sighting_tell_waiting(&s->seen);
	s->turn = turn;
	s->number = number;
	return true;
}

static void
see_row(const struct row *r, struct survey *s)
{
	struct entry e = read_entry(r, s);

	sighting_tell_one(&s->seen, &e);
}

/* ---- each ---- */

/* The next page; *n: how many rows it had. */
static enum rc
see_page(struct mysql *my, struct survey *s, unsigned *n, struct fault *f)
{
	struct sql sql;
	MYSQL_RES *r;
	enum rc rc = mysql_ask_existing(my,
	    sql_call(&sql, "dlock_list_1",
		SQL_VALUES(SQL_TEXT(s->seen.look->key), SQL_TEXT(s->seen.key),
		    SQL_INT(s->turn), SQL_INT(s->number), SQL_INT(PAGE))),
	    &(struct shape){LIST_FIELDS, true}, s->seen.look->until, &r, f);

	*n = 0;
	if (rc != RC_OK || !r)
		return rc;
	for (struct row row = row_first(my->session.my, r);
	     row.at && rc == RC_OK && !s->seen.enough;
	     row = row_next(my->session.my, r), ++*n)
		if (read_place(&row, s))
			see_row(&row, s);
		else
			rc = mysql_makes_no_sense(my, RC_PROTOCOL, f);
	my->session.my->free_result(r);
	return rc;
}

enum {
	RUN_ID,
	RUN_BEGAN,
	RUN_ENDED,
	RUN_STATUS,
	RUN_TOKEN,
	RUN_MOMENT,
	RUN_RECORD,
	RUN_FIELDS
};

static void
see_run(const struct row *r, struct survey *s)
{
	struct entry e = {.kind = ENTRY_LAST,
	    .key = s->seen.look->key,
	    .slot = -1,
	    .record = row_words(r, RUN_RECORD),
	    .since = read_time(r, RUN_BEGAN),
	    .until = read_time(r, RUN_ENDED),
	    .once = row_words(r, RUN_ID)};
	int64_t status, token;

	if (!row_integer(r, RUN_MOMENT, 0, INT64_MAX, &s->seen.now) ||
	    !row_integer(r, RUN_STATUS, 0, UINT8_MAX, &status))
		return;
	if (row_integer(r, RUN_TOKEN, 1, INT64_MAX, &token))
		e.token = token;
	e.status = (int)status;
	sighting_tell(&s->seen, &e);
}

static enum rc
see_last_run(struct mysql *my, struct survey *s, struct fault *f)
{
	struct sql sql;
	MYSQL_RES *r;
	struct row row;
	enum rc rc = mysql_ask_existing(my,
	    sql_call(&sql, "dlock_last_run_1", SQL_VALUES(SQL_TEXT(s->seen.look->key))),
	    &(struct shape){RUN_FIELDS, true}, s->seen.look->until, &r, f);

	if (rc != RC_OK || !r)
		return rc;
	row = row_first(my->session.my, r);
	if (row.at)
		see_run(&row, s);
	my->session.my->free_result(r);
	return rc;
}

static enum rc
lease_each(struct mysql *my, const struct look *look, struct fault *f)
{
	struct survey s = {.seen.look = look, .turn = -1};
	unsigned n;
	enum rc rc;

	snprintf(s.seen.key, sizeof s.seen.key, "%s", look->key ? look->key : "");
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
	    sql_call(&sql, "dlock_ask_back_1",
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
	    sql_call(&sql, "dlock_take_away_1",
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
	    sql_call(&sql, "dlock_freeze_1",
		SQL_VALUES(SQL_TEXT(key), SQL_TEXT(record), SQL_INT(length / 1000))),
	    &(struct shape){1, false}, until, &sent, NULL, f);
}

static enum rc
lease_thaw(struct mysql *my, const char *key, instant until, struct fault *f)
{
	struct sql sql;
	bool done;
	enum rc rc = ask_whether(my,
	    sql_call(&sql, "dlock_thaw_1", SQL_VALUES(SQL_TEXT(key))), until, &done, NULL,
	    0, f);

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
