/* grants.c - writes and reads dlock_grants, and ends a session that is named there. */
#include "grants.h"

#include "errors.h"

#include <stdio.h>

enum { PAGE = 500 };

/* For the next statement alone. */
#define DIRTY "SET TRANSACTION ISOLATION LEVEL READ UNCOMMITTED; "

enum rc
grants_take_token(struct sql *db, const char *text, const char *what, instant until,
    struct grant *g, struct fault *f)
{
	const struct question q = {
	    .text = text, SQL_VALUES(GRANTS_VALUES(db, what)), .fields = 1};
	struct answer a = {.db = NULL};
	int64_t token;
	enum rc rc = sql_exec(
	    db, &q, retry_answer(instant_now(), ASK_PATIENCE, until), &a, f);

	if (rc != RC_OK)
		return rc;
	if (row_is_null(&a.row, 0))
		rc = session_read_only(db, f);
	else if (!row_integer(&a.row, 0, 1, INT64_MAX, &token))
		rc = sql_makes_no_sense(db, RC_PROTOCOL, f);
	else
		session_lock_granted(db, (uint64_t)token, a.sent, g);
	answer_drop(&a);
	return rc;
}

/* ---- the session ---- */

/*
 * Is a table of ours in an engine without transactions?  Each is named by itself: so only
 * that one is opened.
 */
#define IS_FOREIGN(table) \
	"EXISTS (SELECT 1 FROM information_schema.tables WHERE table_schema = DATABASE() " \
	"AND table_name = '" table "' AND engine <> 'InnoDB')"
static const char unfit_sql[] = IS_FOREIGN("dlock_rows") " OR " IS_FOREIGN(
    "dlock_grants");

/* Does a lock of this session exclude all other clients? */
static enum rc
check_fit(const struct sql *db, struct fault *f)
{
	const struct server_facts *server = &mysql_const(db)->session.server;

	if (server->is_unfit)
		return fault_set(f, RC_CONFIG,
		    "%s has dlock_rows or dlock_grants in another engine than InnoDB, which locks no rows: "
		    "ALTER TABLE dlock_rows ENGINE = InnoDB, and the same for dlock_grants",
		    db->where);
	if (!server->is_direct)
		return fault_set(f, RC_CONFIG,
		    "%s is reached through a proxy, which may give our session to other clients (mode=lease works there)",
		    db->where);
	if (server->is_galera)
		return fault_set(f, RC_CONFIG,
		    "%s is a node of a cluster (wsrep_on), and another node would not see such a lock (mode=lease works there)",
		    db->where);
	return RC_OK;
}

/* Every member of a multi-primary group has row locks of its own. */
static enum rc
check_group(struct sql *db, instant until, struct fault *f)
{
	/* what MySQL says where there is such a group; no row where there is none */
	static const struct question q = {
	    .text = "SHOW GLOBAL VARIABLES LIKE 'group_replication_single_primary_mode'",
	    .fields = 2,
	    .many = true};
	struct answer a = {.db = NULL};
	bool many;
	enum rc rc;

	if (mysql_const(db)->session.server.is_mariadb)
		return RC_OK;
	rc = sql_exec(db, &q, until, &a, f);
	if (rc != RC_OK)
		return rc;
	(void)answer_next(&a);
	many = row_words(&a.row, 1) && row_words(&a.row, 1)[0] == 'O' &&
	    row_words(&a.row, 1)[1] == 'F';
	answer_drop(&a);
	return !many
	    ? RC_OK
	    : fault_set(f, RC_CONFIG,
		  "%s is one of several primaries, and another one would not see such a lock (mode=lease works there)",
		  db->where);
}

enum rc
grants_open(struct sql *db, instant until, struct fault *f)
{
	struct session_lock *l = session_lock_of(db);
	enum rc rc;

	mysql_of(db)->session.unfit_sql = unfit_sql;
	rc = sql_open(db, until, f);
	if (rc != RC_OK || l->serial == db->serial)
		return rc;
	rc = check_fit(db, f);
	if (rc == RC_OK)
		rc = check_group(db, until, f);
	if (rc == RC_OK)
		l->serial = db->serial;
	else
		session_close(db);
	return rc;
}

/* ---- while waiting ---- */

/* The columns behind those of session_lock_read_queue(). */
enum { SEEN_AGE = 4, SEEN_FIELDS };

static const char see_sql[] = DIRTY
    "SELECT COALESCE(SUM(c.waits), 0), MAX(h.record), COALESCE(SUM(1 - c.waits), 0), "
    "MAX(h.shared), MAX(h.age) "
    "FROM (SELECT waits FROM dlock_grants WHERE mode = $1 AND k = $2) c "
    "LEFT JOIN (SELECT " SERVER_CLOCK " - since AS age, shared, record FROM dlock_grants "
    "WHERE mode = $1 AND k = $2 AND waits = 0 ORDER BY n LIMIT 1) h ON 1";

enum rc
grants_see(struct sql *db, const char *what, instant until, struct fault *f)
{
	const struct question q = {.text = see_sql,
	    SQL_VALUES(SQL_TEXT(db->mode->name), SQL_TEXT(what)),
	    .fields = SEEN_FIELDS};
	struct host *host = db->base.host;
	struct answer a = {.db = NULL};
	int64_t age;
	enum rc rc = sql_exec(db, &q, until, &a, f);

	if (rc != RC_OK)
		return rc;
	if (!session_lock_read_queue(host, &a.row, 0))
		rc = sql_makes_no_sense(db, RC_PROTOCOL, f);
	if (row_integer(&a.row, SEEN_AGE, 0, INT64_MAX / 1000, &age))
		host->seen.holding.held = age * 1000;
	answer_drop(&a);
	return rc;
}

/* ---- looking ---- */

/* The columns, behind those of sql_look_position(). */
enum { SHARED = 3, SESSION, SINCE, MOMENT, RECORD, LIST_FIELDS };

/* One look, on its way from key to key. */
struct grants_look {
	struct sql_look seen;
	const struct grants_holder *also; /* not told of yet */
};

/* Tells of the holder without a row, once, and before the waiters. */
static void
grants_tell_foreign(struct grants_look *s)
{
	char owner[SESSION_NAME_BYTES];
	struct entry e = {.kind = ENTRY_HOLDER,
	    .key = s->seen.key,
	    .slot = -1,
	    .owner = owner,
	    .since = EPOCH_NONE,
	    .until = EPOCH_NONE};

	if (!s->also)
		return;
	session_name_write(owner, &(struct session_name){s->also->session, 0});
	e.foreign = &s->also->foreign;
	s->also = NULL;
	sql_look_entry(&s->seen, &e);
}

static bool
grants_read_row(void *ctx, const struct row *r)
{
	struct grants_look *s = ctx;
	char owner[SESSION_NAME_BYTES];
	struct session_name name;
	struct entry e = {.slot = -1, .owner = owner, .until = EPOCH_NONE};
	bool shared;

	if (!sql_look_position(&s->seen, r, 2, MOMENT, false) ||
	    !row_boolean(r, SHARED, &shared) ||
	    !row_integer(r, SESSION, 0, INT64_MAX, &name.session) || s->seen.number < 1)
		return false;
	e.since = row_time(r, SINCE);
	e.kind = s->seen.turn ? ENTRY_WAITER : ENTRY_HOLDER;
	e.key = s->seen.key;
	e.lock = shared ? KIND_SHARED : KIND_EXCLUSIVE;
	e.record = row_words(r, RECORD);
	name.second = s->seen.number;
	session_name_write(owner, &name);
	if (s->also && s->also->session == name.session)
		s->also = NULL;
	if (s->seen.turn)
		grants_tell_foreign(s);
	else
		e.token = s->seen.number;
	sql_look_claim(&s->seen, &e);
	return true;
}

static const char list_sql[] = DIRTY
    "SELECT k, waits, n, shared, session, since, " SERVER_CLOCK
    ", record FROM dlock_grants "
    "WHERE mode = $1 AND ((k = $2 AND waits = $3 AND n > $4) OR (k = $2 AND waits > $3) "
    "OR (k > $2 AND k <= COALESCE($5, REPEAT(x'ff', 512)))) ORDER BY k, waits, n LIMIT $6";

bool
grants_out_of_reach(const struct sql *db, enum rc rc)
{
	return sql_is_connected(db) &&
	    (rc == RC_DENIED || sql_error_is(db, ERROR_NO_DATABASE));
}

enum rc
grants_each(struct sql *db, const struct look *look, const char *what,
    const struct grants_holder *also, struct fault *f)
{
	struct grants_look s = {.seen.look = look,
	    .seen.turn = -1,
	    .also = also && also->session ? also : NULL};
	int n;
	enum rc rc;

	snprintf(s.seen.key, sizeof s.seen.key, "%s", what ? what : "");
	do {
		const struct question q = {.text = list_sql,
		    SQL_VALUES(SQL_TEXT(db->mode->name), SQL_TEXT(s.seen.key),
			SQL_INT(s.seen.turn), SQL_INT(s.seen.number), SQL_TEXT(what),
			SQL_INT(PAGE)),
		    .fields = LIST_FIELDS,
		    .many = true};

		rc = sql_look_page(db, &s.seen, &q, grants_read_row, &s, &n, f);
	} while (rc == RC_OK && n == PAGE && !s.seen.enough);
	if (also && rc != RC_OK && rc != RC_STOP && grants_out_of_reach(db, rc))
		rc = RC_OK;
	if (rc == RC_OK) {
		grants_tell_foreign(&s);
		sql_look_waiting(&s.seen);
	}
	return rc;
}

/* ---- ending one ---- */

#define END_MOST (5 * NS_PER_S) /* for a session that was told to end */

#define ERROR_NO_THREAD "1094"
#define ERROR_NOT_OURS "1095"

static enum rc
refuse_gone(const struct sql *db, struct fault *f)
{
	return fault_set(f, RC_LOST, "%s has no such session (any more)", db->where);
}

/* Does this session hold it?  RC_OK, or RC_LOST. */
static enum rc
check_holder(struct sql *db, const char *what, const struct session_name *name,
    const char *holds, instant until, struct fault *f)
{
	char text[600];
	const struct question q = {.text = text,
	    SQL_VALUES(SQL_TEXT(db->mode->name), SQL_TEXT(what), SQL_INT(name->second),
		SQL_INT(name->session)),
	    .fields = 1};
	struct answer a = {.db = NULL};
	bool there = false;
	enum rc rc;

	snprintf(text, sizeof text, DIRTY "SELECT %s",
	    name->second ? "COUNT(*) FROM dlock_grants WHERE mode = $1 AND k = $2 "
			   "AND waits = 0 AND n = $3 AND session = $4"
			 : holds);
	rc = sql_ask_existing(db, &q, until, &a, f);
	rc = answer_boolean(&a, rc, &there, f);
	return rc == RC_OK && !there ? refuse_gone(db, f) : rc;
}

static enum rc
kill_session(struct sql *db, int64_t session, instant until, struct fault *f)
{
	const struct question q = {.text = "KILL $1", SQL_VALUES(SQL_INT(session))};
	enum rc rc = sql_exec(db, &q, until, NULL, f);

	if (rc != RC_OK && sql_error_is(db, ERROR_NO_THREAD))
		return refuse_gone(db, f);
	if (rc != RC_OK && sql_error_is(db, ERROR_NOT_OURS))
		return fault_set(f, RC_DENIED,
		    "%s: this user may not end that session: use the user that holds it, or GRANT "
		    "CONNECTION ADMIN (MySQL: CONNECTION_ADMIN) ON *.* TO the user",
		    db->where);
	return rc;
}

enum rc
grants_end(struct sql *db, const char *what, const char *owner, const char *holds,
    instant until, struct fault *f)
{
	instant end = instant_first(until, instant_now() + END_MOST);
	struct host *host = db->base.host;
	struct session_name name;
	bool told = false;
	enum rc rc;

	if (!session_name_read(owner, &name) || (name.second == 0 && !holds))
		return refuse_gone(db, f);
	for (;;) {
		rc = check_holder(db, what, &name, holds, until, f);
		if (rc != RC_OK)
			return rc == RC_LOST && told ? RC_OK : rc;
		if (!told)
			rc = kill_session(db, name.session, until, f);
		if (rc != RC_OK)
			return rc;
		told = true;
		if (instant_now() >= end)
			return fault_set(f, RC_AGAIN,
			    "%s: the session was told to end, and has not ended yet",
			    db->where);
		if (host->wait(host, -1, 0, instant_now() + 10 * NS_PER_MS) == WOKE_STOP)
			return RC_STOP;
	}
}
