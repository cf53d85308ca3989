/* grants.c - reads dlock_grants, and ends a session that is named there. */
#include "grants.h"

#include "backends/sql/sighting.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { PAGE = 500 };

/* For the next statement alone. */
#define DIRTY "SET TRANSACTION ISOLATION LEVEL READ UNCOMMITTED; "

enum rc
grants_read_token(struct mysql *my, MYSQL_RES *r, uint64_t *token, struct fault *f)
{
	struct row row = row_first(my->session.my, r);
	int64_t n = 0;
	bool fine = row_integer(&row, 0, 1, INT64_MAX, &n),
	     is_null = row_is_null(&row, 0);

	*token = (uint64_t)n;
	my->session.my->free_result(r);
	if (is_null)
		return session_read_only(&my->session, f);
	return fine ? RC_OK : mysql_makes_no_sense(my, RC_PROTOCOL, f);
}

/* ---- while waiting ---- */

enum { SEEN_WAITING, SEEN_HOLDERS, SEEN_AGE, SEEN_SHARED, SEEN_RECORD, SEEN_FIELDS };

static const char see_sql[] = DIRTY
    "SELECT COALESCE(SUM(c.waits), 0), COALESCE(SUM(1 - c.waits), 0), "
    "MAX(h.age), MAX(h.shared), MAX(h.record) "
    "FROM (SELECT waits FROM dlock_grants WHERE mode = ? AND k = ?) c "
    "LEFT JOIN (SELECT " GRANTS_CLOCK " - since AS age, shared, record FROM dlock_grants "
    "WHERE mode = ? AND k = ? AND waits = 0 ORDER BY n LIMIT 1) h ON 1";

/* Our place is behind those who wait. */
static bool
read_seen(struct host *host, const struct row *r)
{
	int64_t waiting, holders, age;
	bool shared;

	if (!row_integer(r, SEEN_WAITING, 0, INT32_MAX, &waiting) ||
	    !row_integer(r, SEEN_HOLDERS, 0, INT32_MAX, &holders))
		return false;
	host->seen.position = (unsigned)waiting + 1;
	host->seen.holding.holders = (unsigned)holders;
	host->seen.holding.held = row_integer(r, SEEN_AGE, 0, INT64_MAX / 1000, &age)
	    ? age * 1000
	    : -1;
	if (!row_text(r, SEEN_RECORD, host->seen.holding.record,
		sizeof host->seen.holding.record))
		host->seen.holding.record[0] = '\0';
	host->seen.holding.kind = row_boolean(r, SEEN_SHARED, &shared) && shared
	    ? KIND_SHARED
	    : KIND_EXCLUSIVE;
	return true;
}

enum rc
grants_see(struct mysql *my, const char *what, instant until, struct fault *f)
{
	const char *mode = my->mode->name;
	struct sql sql;
	MYSQL_RES *r;
	struct row row;
	instant sent;
	enum rc rc = session_ask_here(&my->session,
	    sql_write(&sql, see_sql,
		SQL_VALUES(
		    SQL_TEXT(mode), SQL_TEXT(what), SQL_TEXT(mode), SQL_TEXT(what))),
	    &(struct shape){SEEN_FIELDS, false}, until, &sent, &r, f);

	if (rc != RC_OK)
		return rc;
	row = row_first(my->session.my, r);
	if (!read_seen(my->base.host, &row))
		rc = mysql_makes_no_sense(my, RC_PROTOCOL, f);
	my->session.my->free_result(r);
	return rc;
}

/* ---- looking ---- */

enum { KEY, WAITS, NUMBER, SHARED, SESSION, SINCE, MOMENT, RECORD, LIST_FIELDS };

/* One look, on its way from key to key. */
struct survey {
	struct sighting seen;
	const struct grants_holder *also; /* not told of yet */
	int64_t waits, number;            /* of the last row, below its key */
};

/* "4711-1764000000000000", as read_owner() reads it. */
static void
write_owner(char *out, size_t size, const struct grants_name *name)
{
	snprintf(out, size, "%" PRId64 "-%" PRId64, name->session, name->number);
}

/* Who holds it without a row; once, and before those who wait. */
static void
tell_foreign(struct survey *s)
{
	char owner[48];
	struct entry e = {.kind = ENTRY_HOLDER,
	    .key = s->seen.key,
	    .slot = -1,
	    .owner = owner,
	    .since = EPOCH_NONE,
	    .until = EPOCH_NONE};

	if (!s->also)
		return;
	write_owner(owner, sizeof owner, &(struct grants_name){s->also->session, 0});
	e.foreign = &s->also->foreign;
	s->also = NULL;
	sighting_tell(&s->seen, &e);
}

/* Where a row stands.  False: a server that makes no sense, or goes back. */
static bool
read_place(const struct row *r, struct survey *s)
{
	char key[KEY_BYTES + 1];
	int64_t number;
	bool waits;
	int order;

	if (!row_text(r, KEY, key, sizeof key) || !row_boolean(r, WAITS, &waits) ||
	    !row_integer(r, NUMBER, 1, INT64_MAX, &number) ||
	    !row_integer(r, MOMENT, 0, INT64_MAX, &s->seen.now))
		return false;
	order = strcmp(key, s->seen.key);
	if (order < 0 ||
	    (order == 0 &&
		(waits < s->waits || (waits == s->waits && number <= s->number))))
		return false;
	sighting_key(&s->seen, key);
	s->waits = waits;
	s->number = number;
	return true;
}

static bool
see_row(const struct row *r, struct survey *s)
{
	char owner[48];
	struct grants_name name = {.number = s->number};
	struct entry e = {.kind = s->waits ? ENTRY_WAITER : ENTRY_HOLDER,
	    .key = s->seen.key,
	    .slot = -1,
	    .owner = owner,
	    .record = row_words(r, RECORD),
	    .until = EPOCH_NONE};
	bool shared;

	if (!row_boolean(r, SHARED, &shared) ||
	    !row_integer(r, SESSION, 0, INT64_MAX, &name.session))
		return false;
	if (!row_integer(r, SINCE, 0, INT64_MAX, &e.since))
		e.since = EPOCH_NONE;
	e.lock = shared ? KIND_SHARED : KIND_EXCLUSIVE;
	write_owner(owner, sizeof owner, &name);
	if (s->also && s->also->session == name.session)
		s->also = NULL;
	if (s->waits)
		tell_foreign(s);
	else
		e.token = s->number;
	sighting_tell_one(&s->seen, &e);
	return true;
}

static const char list_sql[] = DIRTY
    "SELECT k, waits, n, shared, session, since, " GRANTS_CLOCK
    ", record FROM dlock_grants "
    "WHERE mode = ? AND ((k = ? AND waits = ? AND n > ?) OR (k = ? AND waits > ?) "
    "OR (k > ? AND k <= COALESCE(?, REPEAT(x'ff', 512)))) ORDER BY k, waits, n LIMIT ?";

/* The next page; *n: how many rows it had. */
static enum rc
see_page(
    struct mysql *my, struct survey *s, const char *what, unsigned *n, struct fault *f)
{
	struct sql sql;
	MYSQL_RES *r;
	enum rc rc = mysql_ask_existing(my,
	    sql_write(&sql, list_sql,
		SQL_VALUES(SQL_TEXT(my->mode->name), SQL_TEXT(s->seen.key),
		    SQL_INT(s->waits), SQL_INT(s->number), SQL_TEXT(s->seen.key),
		    SQL_INT(s->waits), SQL_TEXT(s->seen.key), SQL_TEXT(what),
		    SQL_INT(PAGE))),
	    &(struct shape){LIST_FIELDS, true}, s->seen.look->until, &r, f);

	*n = 0;
	if (rc != RC_OK || !r)
		return rc;
	for (struct row row = row_first(my->session.my, r);
	     row.at && rc == RC_OK && !s->seen.enough;
	     row = row_next(my->session.my, r), ++*n)
		if (!read_place(&row, s) || !see_row(&row, s))
			rc = mysql_makes_no_sense(my, RC_PROTOCOL, f);
	my->session.my->free_result(r);
	return rc;
}

enum rc
grants_each(struct mysql *my, const struct look *look, const char *what,
    const struct grants_holder *also, struct fault *f)
{
	struct survey s = {.seen.look = look, .also = also, .waits = -1};
	unsigned n;
	enum rc rc;

	snprintf(s.seen.key, sizeof s.seen.key, "%s", what ? what : "");
	do
		rc = see_page(my, &s, what, &n, f);
	while (rc == RC_OK && n == PAGE && !s.seen.enough);
	if (rc == RC_OK) {
		tell_foreign(&s);
		sighting_tell_waiting(&s.seen);
	}
	return rc;
}

enum rc
grants_tell(const struct look *look, const char *what, const struct grants_holder *also)
{
	struct survey s = {.seen.look = look, .also = also};

	snprintf(s.seen.key, sizeof s.seen.key, "%s", what ? what : "");
	tell_foreign(&s);
	return RC_OK;
}

/* ---- ending one ---- */

#define END_PATIENCE (5 * NS_PER_S) /* for a session that was told to end */

enum { SAID_NO_THREAD = 1094, SAID_NOT_OURS = 1095 };

static bool
read_owner(const char *owner, struct grants_name *name)
{
	char again[48];

	if (!owner ||
	    sscanf(owner, "%18" SCNd64 "-%18" SCNd64, &name->session, &name->number) != 2)
		return false;
	write_owner(again, sizeof again, name);
	return strcmp(owner, again) == 0 && name->session > 0 && name->number >= 0;
}

static enum rc
refuse_gone(const struct mysql *my, struct fault *f)
{
	return fault_set(
	    f, RC_LOST, "%s has no such session (any more)", my->session.where);
}

/* Does this session hold it?  As a row says: RC_OK, or RC_LOST. */
static enum rc
check_row(struct mysql *my, const char *what, const struct grants_name *name,
    instant until, struct fault *f)
{
	struct sql sql;
	MYSQL_RES *r;
	struct row row;
	bool there = false;
	enum rc rc = mysql_ask_existing(my,
	    sql_write(&sql,
		DIRTY "SELECT COUNT(*) FROM dlock_grants WHERE n = ? AND session = ? "
		      "AND mode = ? AND k = ? AND waits = 0",
		SQL_VALUES(SQL_INT(name->number), SQL_INT(name->session),
		    SQL_TEXT(my->mode->name), SQL_TEXT(what))),
	    &(struct shape){1, false}, until, &r, f);

	if (rc != RC_OK || !r)
		return rc == RC_OK ? refuse_gone(my, f) : rc;
	row = row_first(my->session.my, r);
	(void)row_boolean(&row, 0, &there);
	my->session.my->free_result(r);
	return there ? RC_OK : refuse_gone(my, f);
}

static enum rc
kill_session(struct mysql *my, int64_t session, instant until, struct fault *f)
{
	struct sql sql;
	instant sent;
	enum rc rc = session_ask_here(&my->session,
	    sql_write(&sql, "KILL ?", SQL_VALUES(SQL_INT(session))),
	    &(struct shape){0, false}, until, &sent, NULL, f);

	if (rc != RC_OK && my->session.said == SAID_NO_THREAD)
		return refuse_gone(my, f);
	if (rc != RC_OK && my->session.said == SAID_NOT_OURS)
		return fault_set(f, RC_DENIED,
		    "%s: this user may not end that session: use the user that holds it, or GRANT "
		    "CONNECTION ADMIN (MySQL: CONNECTION_ADMIN) ON *.* TO the user",
		    my->session.where);
	return rc;
}

enum rc
grants_end(struct mysql *my, const char *what, const char *owner,
    enum rc (*holds)(
	struct mysql *, const char *what, int64_t session, instant until, struct fault *),
    instant until, struct fault *f)
{
	instant end = instant_first(until, instant_now() + END_PATIENCE);
	struct host *host = my->base.host;
	struct grants_name name;
	bool told = false;
	enum rc rc;

	if (!read_owner(owner, &name) || (name.number == 0 && !holds))
		return refuse_gone(my, f);
	for (;;) {
		rc = name.number ? check_row(my, what, &name, until, f)
				 : holds(my, what, name.session, until, f);
		if (rc != RC_OK)
			return rc == RC_LOST && told ? RC_OK : rc;
		if (!told)
			rc = kill_session(my, name.session, until, f);
		if (rc != RC_OK)
			return rc;
		told = true;
		if (instant_now() >= end)
			return fault_set(f, RC_AGAIN,
			    "%s: the session was told to end, and has not ended yet",
			    my->session.where);
		if (host->wait(host, -1, 0, instant_now() + 10 * NS_PER_MS) == WOKE_STOP)
			return RC_STOP;
	}
}
