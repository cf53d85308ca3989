/*
 * named.c - mode=named: GET_LOCK, the named lock of a session, as other programs take it.
 *
 *  1. Names are the whole server's.  So a key is the name dlock: and a hash of database and
 *     key (NAME_OF); -O name= is any name, as another program has it.
 *  2. GET_LOCK says 1: granted; 0: not in time; and NULL where the wait was broken off
 *     (KILL QUERY, a limit of time) or taken for a deadlock: not granted.
 *  3. Waiting is done in the server, which serves in order, in chunks: at the end of each one
 *     loses the place.  A session holds one name, and waits for no other: there can be no
 *     deadlock.  MySQL's GET_LOCK knows whole seconds, and rounds: what is less is slept here,
 *     and ends with a question.
 *  4. Who holds and who waits stands in dlock_grants (grants.h), which also has the tokens.
 *     Where that table is not to be had (no database, no right), others see a session
 *     without a record, and tokens are microseconds of the server's clock.
 *  5. What holds for all locks tied to a session: tied.h.
 */
#include "tied.h"
#include "grants.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* mode=named's own. */
struct named {
	struct tied tied;
	bool no_table; /* there is none, and we may not make it */
	bool tells;    /* the session has its row there */
};

static struct named *
named_of(const struct mysql *my)
{
	return mysql_own(my, &mysql_named_mode);
}

/* The name of a key, as an expression; its value is the key, */
#define NAME_OF_KEY \
	"CONCAT('dlock:', LEFT(SHA2(CONCAT(COALESCE(CAST(DATABASE() AS BINARY), ''), x'00', ?), 256), 40))"
/* or the name itself. */
#define NAME_STATED "CONVERT(? USING utf8mb4)"

static const char *
name_sql(const struct mysql *my)
{
	return my->name ? NAME_STATED : NAME_OF_KEY;
}

/* What is locked, as dlock_grants has it. */
static const char *
subject(const struct mysql *my, const char *key)
{
	return my->name ? my->name : key;
}

/* ---- acquire ---- */

/* Was a question that wants the table in vain because it is out of reach? */
static bool
lacks_table(const struct mysql *my, enum rc rc)
{
	return my->session.mysql &&
	    (rc == RC_DENIED || my->session.said == SAID_NO_DATABASE);
}

/*
 * After such a question: sees to it that there is a table, or that none is asked for.
 * RC_OK: ask again.
 */
static enum rc
get_table(struct mysql *my, enum rc rc, instant until, struct fault *f)
{
	instant sent;

	if (rc != RC_OK && rc != RC_STOP && mysql_is_missing(my))
		rc = mysql_ask(my, "SELECT n FROM dlock_grants WHERE n = 0",
		    &(struct shape){1, true}, until, &sent, NULL, f);
	if (rc == RC_OK || !lacks_table(my, rc))
		return rc;
	named_of(my)->no_table = true;
	return RC_OK;
}

/* The session has the name: says so, and takes a token.  The lease counts from this. */
static enum rc
take_token(struct mysql *my, instant until, struct grant *g, struct fault *f)
{
	struct named *own = named_of(my);
	const char *format = own->no_table ? "SELECT " GRANTS_ON_PRIMARY(GRANTS_CLOCK)
	    : own->tells                   ? GRANTS_HOLDS
					   : "START TRANSACTION; " GRANTS_HOLDS;
	struct sql sql;
	uint64_t token;
	MYSQL_RES *r;
	instant sent;
	enum rc rc = session_ask_here(&my->session,
	    sql_write(
		&sql, format, SQL_VALUES(GRANTS_VALUES(my, subject(my, my->claim->key)))),
	    &(struct shape){1, false}, retry_answer(instant_now(), ASK_PATIENCE, until),
	    &sent, &r, f);

	if (rc != RC_OK)
		return rc;
	rc = grants_read_token(my, r, &token, f);
	if (rc == RC_OK)
		tied_granted(my, &own->tied, token, sent, g);
	return rc;
}

/* Asks for the name, for so long; *got: it is the session's. */
static enum rc
get_lock(
    struct mysql *my, int64_t ms, bool tell, instant until, bool *got, struct fault *f)
{
	struct named *own = named_of(my);
	const char *what = subject(my, my->claim->key);
	char format[1200];
	struct sql sql;
	MYSQL_RES *r;
	struct row row;
	instant sent;
	enum rc rc;

	own->tells = tell;
	snprintf(format, sizeof format,
	    "SET @dlock_name = %s; %sSELECT GET_LOCK(@dlock_name, ? / 1000) <=> 1",
	    name_sql(my), tell ? "START TRANSACTION; " GRANTS_WAITS : "");
	if (tell)
		sql_write(&sql, format,
		    SQL_VALUES(SQL_TEXT(what), GRANTS_VALUES(my, what), SQL_INT(ms)));
	else
		sql_write(&sql, format, SQL_VALUES(SQL_TEXT(what), SQL_INT(ms)));
	rc = session_ask_here(
	    &my->session, sql.text, &(struct shape){1, false}, until, &sent, &r, f);
	if (rc != RC_OK)
		return rc;
	row = row_first(my->session.my, r);
	if (!row_boolean(&row, 0, got))
		rc = mysql_makes_no_sense(my, RC_PROTOCOL, f);
	my->session.my->free_result(r);
	return rc;
}

/* The end of a wait in vain: its row goes. */
static enum rc
undo_wait(struct mysql *my, instant until, struct fault *f)
{
	instant sent;

	if (!named_of(my)->tells)
		return RC_OK;
	named_of(my)->tells = false;
	return session_ask_here(
	    &my->session, "ROLLBACK", &(struct shape){0, false}, until, &sent, NULL, f);
}

/* ---- who is there ---- */

enum { USED_SESSION, USED_USER, USED_HOST, USED_FIELDS };

/* What is known of a session: all, of one of our own user's, or with the right PROCESS. */
static const char used_sql[] =
    "SELECT l.id, p.user, p.host FROM (SELECT IS_USED_LOCK(%s) AS id) l "
    "LEFT JOIN information_schema.processlist p ON p.id = l.id";

/* Which session has the name; its texts live in *r.  Session 0: none. */
static enum rc
find_user(struct mysql *my, const char *what, instant until, struct grants_holder *holder,
    MYSQL_RES **r, struct fault *f)
{
	char format[400];
	struct sql sql;
	struct row row;
	instant sent;
	enum rc rc;

	*holder = (struct grants_holder){.session = 0};
	snprintf(format, sizeof format, used_sql, name_sql(my));
	rc = session_ask(&my->session,
	    sql_write(&sql, format, SQL_VALUES(SQL_TEXT(what))),
	    &(struct shape){USED_FIELDS, false}, until, &sent, r, f);
	if (rc != RC_OK)
		return rc;
	row = row_first(my->session.my, *r);
	if (!row_integer(&row, USED_SESSION, 1, INT64_MAX, &holder->session))
		return RC_OK;
	holder->foreign = (struct foreign){.what = "a session",
	    .who = row_words(&row, USED_USER),
	    .host = row_words(&row, USED_HOST)};
	return RC_OK;
}

/* What others may have put into a name, and would not do in JSON. */
static void
put_harmless(char *out, size_t size, const char *text)
{
	size_t n = 0;

	for (; text && *text && n + 1 < size; text++)
		if ((unsigned char)*text >= ' ' && !strchr("\"\\\177", *text))
			out[n++] = *text;
	out[n] = '\0';
}

/* A holder that no row tells of. */
static enum rc
see_other(struct mysql *my, instant until, struct fault *f)
{
	struct host *host = my->base.host;
	struct grants_holder holder;
	char who[80], from[80];
	MYSQL_RES *r = NULL;
	enum rc rc = find_user(my, subject(my, my->claim->key), until, &holder, &r, f);

	if (rc == RC_OK && holder.session) {
		put_harmless(who, sizeof who, holder.foreign.who);
		put_harmless(from, sizeof from, holder.foreign.host);
		host->seen.holding.holders = 1;
		snprintf(host->seen.holding.record, sizeof host->seen.holding.record,
		    "{\"pid\":%" PRId64
		    ",\"command\":\"a session of MySQL\",\"who\":\"%s@%s\"}",
		    holder.session, *who ? who : "somebody", *from ? from : "somewhere");
	}
	if (r)
		my->session.my->free_result(r);
	return rc;
}

/* Who is there? */
static enum rc
see(struct mysql *my, instant until, struct fault *f)
{
	struct host *host = my->base.host;
	enum rc rc = RC_OK;

	host->seen.holding.held = -1;
	host->seen.holding.holders = 0;
	if (!named_of(my)->no_table) {
		rc = grants_see(my, subject(my, my->claim->key), until, f);
		rc = get_table(my, rc, until, f);
	}
	return rc == RC_OK && host->seen.holding.holders == 0 ? see_other(my, until, f)
							      : rc;
}

/* ---- one attempt ---- */

/* Broken off, or taken for a deadlock: in vain, like one that was too long. */
static bool
was_broken_off(const struct mysql *my)
{
	return my->session.mysql &&
	    (my->session.said == SAID_DEADLOCK ||
		my->session.said == SAID_LOCK_DEADLOCK ||
		my->session.said == SAID_INTERRUPTED);
}

/* One attempt, which waits so long, and ends by `until`.  An error may leave the session with the name. */
static enum rc
try_name(struct mysql *my, int64_t ms, instant until, bool *got, struct grant *g,
    struct fault *f)
{
	struct named *own = named_of(my);
	enum rc rc = tied_open(my, &own->tied, until, f);

	*got = false;
	if (rc != RC_OK)
		return rc;
	rc = get_lock(my, ms, ms > 0 && !own->no_table, until, got, f);
	if (rc != RC_OK && was_broken_off(my))
		rc = RC_OK;
	if (rc == RC_OK && !*got)
		return undo_wait(my, retry_answer(instant_now(), ASK_PATIENCE, until), f);
	return rc == RC_OK ? take_token(my, until, g, f) : rc;
}

/*
 * Gives back what the session may have got, and keeps the session: of one that is closed,
 * the server frees the name some time later, and we would find it held.
 */
static enum rc
give_back(struct mysql *my, instant until, struct fault *f)
{
	struct shape shape = {1, false};
	MYSQL_RES *r = NULL;
	instant sent;
	enum rc rc = session_ask_here(&my->session,
	    "ROLLBACK; SELECT RELEASE_LOCK(COALESCE(@dlock_name, 'dlock:'))", &shape,
	    until, &sent, &r, f);

	if (r)
		my->session.my->free_result(r);
	return rc;
}

/* The same, also where there is no table yet: then what it has got is given back first. */
static enum rc
try_anew(struct mysql *my, int64_t ms, instant until, bool *got, struct grant *g,
    struct fault *f)
{
	enum rc rc = try_name(my, ms, until, got, g, f);

	if (rc != RC_OK && rc != RC_STOP &&
	    (mysql_is_missing(my) || lacks_table(my, rc))) {
		instant by = retry_answer(instant_now(), ASK_PATIENCE, until);

		rc = get_table(my, rc, by, f);
		if (rc == RC_OK)
			rc = give_back(my, by, f);
		if (rc == RC_OK)
			rc = try_name(my, ms, until, got, g, f);
	}
	if (rc != RC_OK)
		session_close(&my->session);
	return rc;
}

/* Between two questions to a server that cannot wait for less than a second. */
enum { PAUSE_MS = 100 };

static enum rc
first_name(struct mysql *my, instant until, bool *got, struct grant *g, struct fault *f)
{
	enum rc rc = try_anew(my, 0, until, got, g, f);

	return rc == RC_OK && !*got ? see(my, until, f) : rc;
}

static enum rc
wait_name(struct mysql *my, int64_t ms, instant until, bool *got, struct grant *g,
    struct fault *f)
{
	struct host *host = my->base.host;
	int64_t here = instant_first(ms, PAUSE_MS) * NS_PER_MS;

	if (!my->session.server.is_mariadb)
		ms = ms / 1000 * 1000;
	if (ms == 0 && host->wait(host, -1, 0, instant_now() + here) == WOKE_STOP)
		return RC_STOP;
	return try_anew(my, ms,
	    retry_answer(instant_now() + ms * NS_PER_MS, ASK_PATIENCE, until), got, g, f);
}

static enum rc
named_acquire(struct mysql *my, instant until, struct grant *g, struct fault *f)
{
	static const struct tied_way way = {first_name, wait_name};

	return tied_acquire(my, &way, until, g, f);
}

/* ---- the hold ---- */

static enum rc
named_renew(struct mysql *my, instant until, struct grant *g, struct fault *f)
{
	return tied_renew(my, &named_of(my)->tied,
	    "SELECT " GRANTS_ON_PRIMARY("IS_USED_LOCK(@dlock_name) <=> CONNECTION_ID()"),
	    until, g, f);
}

static enum rc
named_release(struct mysql *my, int status, instant until, struct fault *f)
{
	(void)status;
	return tied_release(my, &named_of(my)->tied,
	    "ROLLBACK; SELECT RELEASE_LOCK(@dlock_name) <=> 1", until, f);
}

/* ---- looking and steering ---- */

/* The rows; a user who may not read them sees none. */
static enum rc
each_row(struct mysql *my, const struct look *look, const char *what,
    const struct grants_holder *also, struct fault *f)
{
	enum rc rc = grants_each(my, look, what, also, f);

	if (rc == RC_OK || rc == RC_STOP || !lacks_table(my, rc))
		return rc;
	return grants_tell(look, what, also);
}

static enum rc
named_each(struct mysql *my, const struct look *look, struct fault *f)
{
	const char *what = look->key || my->name ? subject(my, look->key) : NULL;
	struct grants_holder holder;
	MYSQL_RES *r = NULL;
	enum rc rc;

	if (!what)
		return each_row(my, look, NULL, NULL, f);
	rc = find_user(my, what, look->until, &holder, &r, f);
	if (rc == RC_OK)
		rc = each_row(my, look, what, holder.session ? &holder : NULL, f);
	if (r)
		my->session.my->free_result(r);
	return rc;
}

/* Does this session have the name, of which no row tells? */
static enum rc
holds(struct mysql *my, const char *what, int64_t session, instant until, struct fault *f)
{
	struct grants_holder holder;
	MYSQL_RES *r = NULL;
	enum rc rc = find_user(my, what, until, &holder, &r, f);

	if (r)
		my->session.my->free_result(r);
	if (rc != RC_OK || holder.session == session)
		return rc;
	return fault_set(
	    f, RC_LOST, "%s has no such session (any more)", my->session.where);
}

/* Ends the session that has it: nothing else takes such a lock away. */
static enum rc
named_revoke(struct mysql *my, const struct target *target, const char *record,
    bool force, instant until, struct fault *f)
{
	(void)record, (void)force;
	return grants_end(my, subject(my, target->key), target->owner, holds, until, f);
}

const struct steering mysql_named_steering = {
    .each = named_each,
    .revoke = named_revoke,
};

const struct mode mysql_named_mode = {
    .name = "named",
    .caps = CAP_FORCE,
    .rights = "SELECT, INSERT, DELETE ON DATABASE.dlock_grants",
    .bytes = sizeof(struct named),
    .acquire = named_acquire,
    .renew = named_renew,
    .release = named_release,
    .steering = &mysql_named_steering,
};
