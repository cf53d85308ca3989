/*
 * named.c - mode=named: GET_LOCK, the named lock of a session, as other programs take it.
 *
 *  1. Names are the whole server's.  So a key is the name dlock: and a hash of database and
 *     key (name_sql()); -O name= is any name, as another program has it, and -O derive= the
 *     name that a program makes of the key.
 *  2. GET_LOCK says 1: granted; 0: not in time; and NULL where the wait was broken off
 *     (KILL QUERY, a limit of time) or taken for a deadlock: not granted.
 *  3. A waiter waits in the server, which serves in order, in chunks; at the end of each it
 *     loses its place.  A session holds one name, and waits for no other: there can be no
 *     deadlock.  MySQL's GET_LOCK knows whole seconds, and rounds: a shorter wait is slept
 *     here, and ends with a question.
 *  4. Holders and waiters stand in dlock_grants (grants.h), which also has the tokens.
 *     Where that table is out of reach (no database, no right), others see a session
 *     without a record, and tokens are microseconds of the server's clock.
 */
#include "derive.h"
#include "grants.h"

#include "errors.h"

#include <inttypes.h>
#include <stdio.h>

/* mode=named's own. */
struct named {
	struct session_lock lock;
	bool no_table;                /* there is none, and we may not make it */
	bool tells;                   /* the session has its row there */
	char name[DERIVE_NAME_BYTES]; /* what a program makes of the key */
};

static struct named *
named_of(const struct sql *db)
{
	return sql_own(db, &mysql_named_mode);
}

/* The name, as an expression: $2 is the key, or the name itself. */
static const char *
name_sql(const struct sql *db)
{
	return mysql_const(db)->name || mysql_const(db)->derive
	    ? "CONVERT($2 USING utf8mb4)"
	    : "CONCAT('dlock:', LEFT(SHA2(CONCAT(COALESCE(CAST(DATABASE() AS BINARY), ''), "
	      "x'00', $2), 256), 40))";
}

/* What is locked, as dlock_grants has it.  Where the server is asked for a part of it: open. */
static const char *
subject(const struct sql *db, const char *key)
{
	const struct mysql *my = mysql_const(db);

	key = my->name ? my->name : key;
	if (!my->derive || !key)
		return key;
	derive_mysql_name(named_of(db)->name, my->derive, key,
	    derive_mysql_asks(my->derive) ? my->session.database
					  : my->session.login.database);
	return named_of(db)->name;
}

/* ---- acquire ---- */

/*
 * After a question that wants the table: sees to it that there is one, or that none is asked
 * for.  RC_OK: ask again.
 */
static enum rc
get_table(struct sql *db, enum rc rc, instant until, struct fault *f)
{
	static const struct question q = {
	    .text = "SELECT n FROM dlock_grants WHERE n = 0", .fields = 1, .many = true};

	if (rc != RC_OK && rc != RC_STOP && sql_is_missing(db))
		rc = sql_ask_created(db, &q, until, NULL, f);
	if (rc == RC_OK || !grants_out_of_reach(db, rc))
		return rc;
	named_of(db)->no_table = true;
	return RC_OK;
}

/* Asks for the name, for so long; *got: it is the session's. */
static enum rc
get_lock(struct sql *db, int64_t ms, bool tell, instant until, bool *got, struct fault *f)
{
	char text[1200];
	const struct question q = {.text = text,
	    SQL_VALUES(GRANTS_VALUES(db, subject(db, db->claim->key)), SQL_INT(ms)),
	    .fields = 1};
	struct answer a = {.db = NULL};
	enum rc rc;

	named_of(db)->tells = tell;
	snprintf(text, sizeof text,
	    "SET @dlock_name = %s; %sSELECT GET_LOCK(@dlock_name, $5 / 1000) <=> 1",
	    name_sql(db), tell ? "START TRANSACTION; " GRANTS_WAITS : "");
	rc = sql_exec(db, &q, until, &a, f);
	/* broken off, or taken for a deadlock: in vain, like one that was too long */
	if (rc != RC_OK && sql_is_connected(db) &&
	    sql_error_is(
		db, ERROR_DEADLOCK " " ERROR_LOCK_DEADLOCK " " ERROR_INTERRUPTED))
		return RC_OK;
	return answer_boolean(&a, rc, got, f);
}

/* ---- holders and waiters ---- */

enum { USED_SESSION, USED_USER, USED_HOST, USED_RECORD, USED_FIELDS };

/*
 * What is known of a session: all, of one of our own user's, or with the right PROCESS.  And
 * a record of it, for it has left none.
 */
static const char used_sql[] =
    "SELECT l.id, p.user, p.host, JSON_OBJECT('pid', l.id, 'command', 'a session of MySQL', "
    "'who', CONCAT(COALESCE(NULLIF(p.user, ''), 'somebody'), '@', "
    "COALESCE(NULLIF(p.host, ''), 'somewhere'))) FROM (SELECT IS_USED_LOCK(%s) AS id) l "
    "LEFT JOIN information_schema.processlist p ON p.id = l.id";

/*
 * Which session has the name; its texts live in *a.  Session 0: none.
 */
static enum rc
find_user(struct sql *db, const char *what, instant until, struct grants_holder *holder,
    struct answer *a, struct fault *f)
{
	char text[700];
	const struct question q = {.text = text,
	    SQL_VALUES(SQL_TEXT(db->mode->name), SQL_TEXT(what)),
	    .fields = USED_FIELDS};
	enum rc rc;

	*holder = (struct grants_holder){.session = 0};
	snprintf(text, sizeof text, used_sql, name_sql(db));
	rc = sql_ask(db, &q, until, a, f);
	if (rc != RC_OK)
		return rc;
	if (!row_integer(&a->row, USED_SESSION, 1, INT64_MAX, &holder->session))
		return RC_OK;
	holder->foreign = (struct foreign){.what = "a session",
	    .who = row_words(&a->row, USED_USER),
	    .host = row_words(&a->row, USED_HOST)};
	return RC_OK;
}

/* Reads them into host->seen; the holder perhaps without a row. */
static enum rc
named_look(struct sql *db, instant until, struct fault *f)
{
	const char *what = subject(db, db->claim->key);
	struct holding *seen = &db->base.host->seen.holding;
	struct grants_holder holder;
	struct answer a = {.db = NULL};
	enum rc rc = RC_OK;

	seen->held = -1;
	seen->holders = 0;
	if (!named_of(db)->no_table) {
		rc = grants_see(db, what, until, f);
		rc = get_table(db, rc, until, f);
	}
	if (rc != RC_OK || seen->holders > 0)
		return rc;
	rc = find_user(db, what, until, &holder, &a, f);
	if (rc == RC_OK && holder.session) {
		seen->holders = 1;
		(void)row_text(&a.row, USED_RECORD, seen->record, sizeof seen->record);
	}
	answer_drop(&a);
	return rc;
}

/* ---- one attempt ---- */

/*
 * One attempt, which waits so long, and ends by `until`.  An error may leave the session
 * with the name.
 */
static enum rc
try_name(struct sql *db, int64_t ms, instant until, bool *got, struct grant *g,
    struct fault *f)
{
	static const struct question rollback = {.text = "ROLLBACK"};
	struct named *own = named_of(db);
	enum rc rc = grants_open(db, until, f);

	*got = false;
	if (rc == RC_OK)
		rc = get_lock(db, ms, ms > 0 && !own->no_table, until, got, f);
	if (rc != RC_OK)
		return rc;
	if (*got)
		return grants_take_token(db,
		    own->no_table    ? "SELECT " GRANTS_ON_PRIMARY(SERVER_CLOCK)
			: own->tells ? GRANTS_HOLDS
				     : "START TRANSACTION; " GRANTS_HOLDS,
		    subject(db, db->claim->key), until, g, f);
	if (!own->tells)
		return RC_OK;
	own->tells = false; /* its row goes */
	return sql_exec(
	    db, &rollback, retry_answer(instant_now(), ASK_PATIENCE, until), NULL, f);
}

/*
 * The same, also where there is no table yet: then what the session may have got is given
 * back first.  It is kept: of one that is closed, the server frees the name some time later,
 * and we would find it held.
 */
static enum rc
try_anew(struct sql *db, int64_t ms, instant until, bool *got, struct grant *g,
    struct fault *f)
{
	static const struct question give_back = {
	    .text = "ROLLBACK; SELECT RELEASE_LOCK(COALESCE(@dlock_name, 'dlock:'))",
	    .fields = 1};
	enum rc rc = try_name(db, ms, until, got, g, f);

	if (rc != RC_OK && rc != RC_STOP &&
	    (sql_is_missing(db) || grants_out_of_reach(db, rc))) {
		instant by = retry_answer(instant_now(), ASK_PATIENCE, until);

		rc = get_table(db, rc, by, f);
		if (rc == RC_OK)
			rc = sql_exec(db, &give_back, by, NULL, f);
		if (rc == RC_OK)
			rc = try_name(db, ms, until, got, g, f);
	}
	if (rc != RC_OK)
		session_close(db);
	return rc;
}

/* Between two questions to a server that cannot wait for less than a second. */
enum { PAUSE_MS = 100 };

static enum rc
ask_name(struct sql *db, instant until, bool *got, struct grant *g, struct fault *f)
{
	enum rc rc = try_anew(db, 0, until, got, g, f);

	return rc == RC_OK && !*got ? named_look(db, until, f) : rc;
}

static enum rc
wait_name(struct sql *db, int64_t ms, instant until, bool *got, struct grant *g,
    struct fault *f)
{
	struct host *host = db->base.host;
	int64_t here = instant_first(ms, PAUSE_MS) * NS_PER_MS;

	if (db->whole_seconds)
		ms = ms / 1000 * 1000;
	if (ms == 0 && host->wait(host, -1, 0, instant_now() + here) == WOKE_STOP)
		return RC_STOP;
	return try_anew(db, ms,
	    retry_answer(instant_now() + ms * NS_PER_MS, ASK_PATIENCE, until), got, g, f);
}

static struct question
named_still(const struct sql *db, bool ends, char *text)
{
	(void)db, (void)text;
	return (struct question){.text = ends
		? "ROLLBACK; SELECT RELEASE_LOCK(@dlock_name) <=> 1"
		: "SELECT " GRANTS_ON_PRIMARY(
		      "IS_USED_LOCK(@dlock_name) <=> CONNECTION_ID()"),
	    .fields = 1};
}

/* ---- looking and steering ---- */

static enum rc
named_each(struct sql *db, const struct look *look, struct fault *f)
{
	struct grants_holder holder = {.session = 0};
	struct answer a = {.db = NULL};
	const char *what = NULL;
	enum rc rc = sql_open(db, look_answer_by(look), f);

	if (rc == RC_OK)
		what = subject(db, look->key);
	if (what)
		rc = find_user(db, what, look_answer_by(look), &holder, &a, f);
	if (rc == RC_OK)
		rc = grants_each(db, look, what, &holder, f);
	answer_drop(&a);
	return rc;
}

/* Ends the session that has it: nothing else takes such a lock away. */
static enum rc
named_revoke(struct sql *db, const struct target *target, const char *record, bool force,
    instant until, struct fault *f)
{
	char holds[200];
	enum rc rc = sql_open(db, until, f);

	(void)record, (void)force;
	if (rc != RC_OK)
		return rc;
	snprintf(holds, sizeof holds, "COALESCE(IS_USED_LOCK(%s) = $4, 0)", name_sql(db));
	return grants_end(db, subject(db, target->key), target->owner, holds, until, f);
}

static const struct session_lock_way way = {
    .ask = ask_name, .wait = wait_name, .still = named_still};

const struct sql_mode mysql_named_mode = {
    .name = "named",
    .caps = CAP_FORCE,
    .bytes = sizeof(struct named),
    .acquire = session_lock_acquire,
    .renew = session_lock_renew,
    .release = session_lock_release,
    .each = named_each,
    .revoke = named_revoke,
    .way = &way,
};
