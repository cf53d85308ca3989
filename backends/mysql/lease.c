/*
 * lease.c - mode=lease: a hold is a row that ends.
 *
 *  1. Every operation is one CALL of a procedure of schema.sql: one transaction (and
 *     what its session has of bells), one round trip, by the server's clock; where others
 *     have to do with the key, the first request takes one more.  Each is idempotent for an
 *     owner, so that one whose answer got lost MAY be sent again; renew and release only
 *     ever touch what is this owner's.  What a procedure selects it selects after COMMIT,
 *     and nothing is believed before the whole answer has come.
 *  2. The lease outlives session and server.  Whatever happens to these is RC_AGAIN, a new
 *     session and the same question; RC_LOST is said on the server's word alone: no row of
 *     ours, or no such table.
 *  3. A waiter sleeps in the server, in GET_LOCK on the bell of one before it, in chunks.
 *     It lives as long as its own bell is held, so that a chunk in vain writes nothing.
 *  4. Where the bell is free although its owner has not gone, that one has no session at
 *     the moment: then we ask now and then.  So does every waiter where there are no bells
 *     (a proxy in between, a node of Galera), or too many; asking is then also its sign of
 *     life.  And so does the first in line where one of several holders will make room: it
 *     sleeps on one of them, for short chunks.
 *  5. A waiter that has been granted renews once before it goes on: that request earns the
 *     lease, and shows that somebody is there to run.  A job asks instead, for that is where
 *     the server looks whether it has been done.
 */
#include "modes.h"

#include "backends/sql/kind.h"
#include "backends/common/sha256.h"

#include <stdio.h>
#include <string.h>

/* one without a bell counts as alive: two questions may be lost */
#define ALIVE_US INT64_C(9000000)

enum { BELL_BYTES = OWNER_CHARS + 2 };

/* mode=lease's own. */
struct lease {
	struct sql_lease lease;
	char me[OWNER_CHARS + 1]; /* the owner in the tables: a hash of the claim's */
	bool one_of_many; /* `ahead` is one of several holders, any of whom will do */
	char ahead[BELL_BYTES];    /* the bell to sleep on; "": there is none */
	char was_free[BELL_BYTES]; /* one that was, when we were to sleep on it; or "" */
	unsigned serial; /* of the session in which we have asked for our bell */
};

static struct lease *
lease_of(const struct mysql *my)
{
	return mysql_own(my, &mysql_lease_mode);
}

/*
 * Whoever sees the processlist reads what stands in a statement.  So the claim's owner, by
 * which a hold can be given back, is only sent to do that.
 */
static void
write_me(struct lease *l, const char *secret)
{
	unsigned char hash[SHA256_BYTES];

	sha256(hash, secret, strlen(secret));
	for (size_t i = 0; i < OWNER_CHARS / 2; i++)
		snprintf(l->me + 2 * i, 3, "%02x", hash[i]);
}

enum slept { SLEPT_IN_VAIN, SLEPT_UNTIL_WOKEN, SLEPT_NOT, SLEPT_REFUSED };

/* The columns of enter; of await the first three. */
enum { AHEAD = ANSWER_MORE, DONE_FIRST, RECORD = DONE_FIRST + 3, MOMENT, ENTER_FIELDS };
enum { AWAIT_FIELDS = ANSWER_SLOT + 1 };

/* ---- one question, one answer ---- */

/* May this session have bells that others of this server see? */
static bool
has_bells(const struct mysql *my)
{
	return my->session.server.is_direct && !my->session.server.is_galera;
}

/*
 * When the session ends we renew at once, over another one.  A crowd may want as many
 * sessions as the server has, and our bell is to be held again.
 */
static void
lease_watch(struct mysql *my)
{
	my->base.host->alert = session_fd(&my->session);
}

/* Nothing that comes over this session is believed any more. */
static enum rc
refuse_answer(struct mysql *my, struct fault *f)
{
	session_close(&my->session);
	return mysql_makes_no_sense(my, RC_PROTOCOL, f);
}

/*
 * The session is there before the statement is written, for that says what the session
 * can.  From here on the server may know of us.
 */
static enum rc
open_session(struct mysql *my, instant until, struct fault *f)
{
	enum rc rc;

	session_is_open(&my->session);
	rc = session_open(&my->session, until, f);
	if (rc == RC_OK)
		lease_of(my)->lease.asked = true;
	return rc;
}

/* The first question of all: is there nobody?  Otherwise `among`, and nothing else. */
static enum rc
take(struct mysql *my, instant until, struct grant *g, struct fault *f)
{
	struct sql_lease *l = &lease_of(my)->lease;
	const struct claim *claim = my->claim;
	struct sql sql;
	MYSQL_RES *r;
	struct row row;
	instant sent;
	enum rc rc = open_session(my, until, f);

	if (rc == RC_OK)
		rc = mysql_ask(my,
		    sql_call(&sql, "take",
			SQL_VALUES(SQL_TEXT(claim->key), SQL_TEXT(lease_of(my)->me),
			    SQL_TEXT(claim->record), SQL_INT(my->lease_us),
			    SQL_INT(has_bells(my)),
			    SQL_INT(session_server_time(&my->session, until)))),
		    &(struct shape){1, false}, until, &sent, &r, f);
	if (rc != RC_OK)
		return rc;
	row = row_first(my->session.my, r);
	if (row_is_null(&row, 0))
		l->among = true;
	else if (standing_read_taken(&l->standing, &row))
		sql_lease_granted(l, sent, g);
	else
		rc = refuse_answer(my, f);
	my->session.my->free_result(r);
	return rc;
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

/* What enter has brought; a grant is by the request that left at `sent`. */
static enum rc
take_answer(
    struct mysql *my, const struct row *r, instant sent, struct grant *g, struct fault *f)
{
	struct lease *l = lease_of(my);
	struct standing *s = &l->lease.standing;
	struct host *host = my->base.host;

	if (!standing_read(s, my->claim, host, r, DONE_FIRST) ||
	    (s->code == QUEUED && !row_text(r, AHEAD, l->ahead, sizeof l->ahead)))
		return refuse_answer(my, f);
	l->one_of_many = s->next && host->seen.holding.kind == KIND_LIMIT &&
	    my->claim->kind == KIND_LIMIT;
	read_who(row_words(r, RECORD), s->done.who, sizeof s->done.who);
	return sql_lease_heard(&l->lease, sent, g, f);
}

/* Asks for the lock, or for our place in the queue; `retry_us` 0: do not queue. */
static enum rc
enter(struct mysql *my, int64_t retry_us, instant until, struct grant *g, struct fault *f)
{
	const struct claim *claim = my->claim;
	struct sql sql;
	MYSQL_RES *r;
	struct row row;
	instant sent;
	int64_t moment;
	enum rc rc = open_session(my, until, f);

	if (rc == RC_OK)
		rc = mysql_ask(my,
		    sql_call(&sql, "enter",
			SQL_VALUES(SQL_TEXT(claim->key), SQL_TEXT(lease_of(my)->me),
			    SQL_TEXT(claim->record), SQL_INT(my->lease_us),
			    SQL_INT(retry_us), SQL_TEXT(kind_word(claim->kind)),
			    SQL_INT(claim->kind == KIND_LIMIT ? claim->limit : 0),
			    SQL_INT(has_bells(my)), SQL_TEXT(claim->job.once),
			    SQL_INT(claim->job.cooldown / 1000),
			    SQL_INT(session_server_time(&my->session, until)))),
		    &(struct shape){ENTER_FIELDS, false}, until, &sent, &r, f);
	if (rc != RC_OK)
		return rc;
	row = row_first(my->session.my, r);
	lease_of(my)->serial = my->session.serial;
	if (row_integer(&row, MOMENT, 0, INT64_MAX / 2, &moment))
		session_set_clock(&my->session, moment);
	rc = take_answer(my, &row, sent, g, f);
	my->session.my->free_result(r);
	return rc;
}

static enum rc
lease_ask(struct store *s, bool queue, instant until, struct grant *g, struct fault *f)
{
	struct mysql *my = mysql_of(s);
	const struct sql_lease *l = &lease_of(my)->lease;
	enum rc rc = l->among ? RC_OK : take(my, until, g, f);

	if (rc == RC_OK && l->among)
		rc = enter(my, queue ? ALIVE_US : 0, until, g, f);
	return rc;
}

static int64_t
next_chunk(struct mysql *my)
{
	struct lease *l = lease_of(my);
	struct standing *s = &l->lease.standing;

	if (l->one_of_many)
		return standing_pause(s, my->claim, 1);
	return standing_chunk(
	    s, my->claim, s->place == 1 ? STANDING_CHUNK_FIRST : STANDING_CHUNK);
}

/* MySQL's GET_LOCK knows whole seconds: what is less is slept here. */
static int64_t
sleep_ms(const struct mysql *my, int64_t ms)
{
	return my->session.server.is_mariadb ? ms : ms / 1000 * 1000;
}

/* What await has brought: whether we were woken; the token of a grant, else 0. */
static enum rc
read_sleep(struct mysql *my, MYSQL_RES *r, enum slept *slept, struct fault *f)
{
	struct standing *s = &lease_of(my)->lease.standing;
	struct row row = row_first(my->session.my, r);
	int64_t code;

	if (!row_integer(&row, ANSWER_CODE, SLEPT_IN_VAIN, SLEPT_REFUSED, &code))
		return refuse_answer(my, f);
	*slept = (enum slept)code;
	if (!standing_read_grant(s, my->claim, &row))
		s->token = 0;
	return RC_OK;
}

/*
 * Sleeps in the server until the one before us has gone; the first in line also for the
 * end of a lease.
 */
static enum rc
sleep_there(struct mysql *my, instant until, enum slept *slept, struct fault *f)
{
	struct lease *l = lease_of(my);
	const struct claim *claim = my->claim;
	instant now = instant_now(), wake = instant_first(now + next_chunk(my), until),
		sent;
	struct sql sql;
	MYSQL_RES *r;
	int64_t ms;
	enum rc rc;

	wake = standing_wake(&l->lease.standing, wake);
	ms = sleep_ms(my, wake > now ? ns_to_ms(wake - now) : 1);
	if (ms == 0)
		return sql_lease_sleep(&l->lease, wake, until, f);
	rc = session_ask_here(&my->session,
	    sql_call(&sql, "await",
		SQL_VALUES(SQL_TEXT(claim->key), SQL_TEXT(l->me), SQL_TEXT(l->ahead),
		    SQL_INT(ms))),
	    &(struct shape){AWAIT_FIELDS, false}, retry_answer(wake, ASK_PATIENCE, until),
	    &sent, &r, f);
	if (rc != RC_OK)
		return rc;
	rc = read_sleep(my, r, slept, f);
	my->session.my->free_result(r);
	if (rc == RC_OK && l->lease.standing.token == 0 && instant_now() >= until)
		return sql_lease_still_held(&l->lease, f);
	return rc;
}

/* Is there a bell to sleep on, and have we got our own in this session? */
static bool
is_settled(struct mysql *my)
{
	const struct lease *l = lease_of(my);

	return *l->ahead && has_bells(my) && l->serial == my->session.serial;
}

/*
 * Returns when there is reason to ask, or with a grant.  A bell that was free is worth one
 * question at once, for its owner may just have gone; if the same one is before us still,
 * it has lost its session, and must be asked about now and then.
 */
static enum rc
lease_wait(struct store *store, instant until, struct fault *f)
{
	struct mysql *my = mysql_of(store);
	struct lease *l = lease_of(my);
	struct standing *s = &l->lease.standing;
	enum slept slept = SLEPT_IN_VAIN;
	enum rc rc;

	if (!my->session.mysql)
		return RC_OK;
	if (!is_settled(my) || strcmp(l->was_free, l->ahead) == 0) {
		*l->was_free = '\0';
		return sql_lease_sleep(
		    &l->lease, standing_next_question(s, my->claim), until, f);
	}
	rc = sleep_there(my, until, &slept, f);
	snprintf(l->was_free, sizeof l->was_free, "%s",
	    slept == SLEPT_NOT || slept == SLEPT_REFUSED ? l->ahead : "");
	if (rc == RC_AGAIN && my->session.said == SAID_INTERRUPTED)
		return RC_OK; /* somebody has cancelled our sleep: ask */
	return rc;
}

static enum rc
lease_try_again(struct store *s, enum rc rc, instant until)
{
	return mysql_try_again(mysql_of(s), rc, true, until);
}

static const struct sql_lease_calls calls = {lease_ask, lease_wait, lease_try_again};

static enum rc
lease_acquire(struct mysql *my, instant until, struct grant *g, struct fault *f)
{
	struct sql_lease *l = &lease_of(my)->lease;
	enum rc rc;

	*l = (struct sql_lease){.store = &my->base,
	    .calls = &calls,
	    .claim = my->claim,
	    .patience = &my->patience};
	write_me(lease_of(my), my->claim->owner);
	rc = sql_lease_acquire(l, until, g, f);
	if (rc == RC_OK)
		lease_watch(my);
	return rc;
}

/* ---- renew and release ---- */

enum { RENEW_IS_OURS, RENEW_WANTED_BY, RENEW_FIELDS };

static enum rc
lease_renew(struct mysql *my, instant until, struct grant *g, struct fault *f)
{
	struct sql_lease *l = &lease_of(my)->lease;
	const struct claim *claim = my->claim;
	struct sql sql;
	MYSQL_RES *r;
	struct row row;
	instant sent;
	bool ours;
	enum rc rc;

	my->base.host->alert = -1;
	rc = open_session(my, until, f);
	if (rc == RC_OK)
		rc = session_ask(&my->session,
		    sql_call(&sql, "renew",
			SQL_VALUES(SQL_TEXT(claim->key), SQL_TEXT(lease_of(my)->me),
			    SQL_INT((int64_t)l->token), SQL_INT(my->lease_us),
			    SQL_INT(has_bells(my)))),
		    &(struct shape){RENEW_FIELDS, false}, until, &sent, &r, f);
	if (rc != RC_OK)
		return sql_lease_not_renewed(l, rc, mysql_lacks_table(my), f);
	row = row_first(my->session.my, r);
	rc = row_boolean(&row, RENEW_IS_OURS, &ours)
	    ? sql_lease_renewed(l, ours, row_words(&row, RENEW_WANTED_BY), sent, g, f)
	    : mysql_makes_no_sense(my, RC_AGAIN, f);
	my->session.my->free_result(r);
	if (rc == RC_OK || rc == RC_REVOKED)
		lease_watch(my);
	return rc;
}

enum { WAS_NOT, WAS_HELD, WAS_QUEUED };

/*
 * A session that is left over from a broken connection may keep a bell of ours: who sleeps
 * on it would not be woken.  So whoever has lost its session looks who has the bell before
 * it gives it back, and ends that one if it has it afterwards, too: who is woken by the
 * release has it only then, and for a moment.
 */
#define BELL "IS_USED_LOCK(CONCAT('dlock:', LEFT(SHA2(?, 256), 32)))"
#define BELL_OF_HOLD "IS_USED_LOCK(CONCAT('dlock:', LEFT(SHA2(?, 256), 32), 'h'))"

static bool
may_have_old_session(struct mysql *my)
{
	return has_bells(my) &&
	    (my->session.serial > 1 || !session_is_open(&my->session));
}

static void
end_old_session(struct mysql *my, instant until)
{
	static const char format[] =
	    "KILL CASE WHEN @dlock_old <> CONNECTION_ID() AND @dlock_old IN (" BELL
	    ", " BELL_OF_HOLD ") THEN @dlock_old ELSE 0 END";
	const char *me = lease_of(my)->me;
	unsigned said = my->session.said;
	struct fault unheard;
	struct sql sql;
	instant sent;

	(void)session_ask_here(&my->session,
	    sql_write(&sql, format, SQL_VALUES(SQL_TEXT(me), SQL_TEXT(me))),
	    &(struct shape){0, false}, until, &sent, NULL, &unheard);
	my->session.said = said;
}

/* `looks`: first who has the bell. */
static const char *
write_release(const struct mysql *my, bool looks, int status, struct sql *sql)
{
	static const char format[] = "SET @dlock_old = COALESCE(" BELL ", " BELL_OF_HOLD
				     "); CALL " SQL_PROCEDURE("release") "(?, ?, ?, ?)";
	const struct claim *claim = my->claim;
	const struct sql_value me = SQL_TEXT(lease_of(my)->me),
			       values[] = {me, me, SQL_TEXT(claim->key),
				   SQL_TEXT(claim->owner),
				   status >= 0 && job_is_wanted(&claim->job)
				       ? SQL_INT(status)
				       : SQL_TEXT(NULL),
				   SQL_TEXT(claim->job.once)};

	return looks ? sql_write(sql, format, values, 6)
		     : sql_call(sql, "release", values + 2, 4);
}

static enum rc
lease_release(struct mysql *my, int status, instant until, struct fault *f)
{
	struct sql_lease *l = &lease_of(my)->lease;
	struct sql sql;
	MYSQL_RES *r;
	struct row row;
	instant sent;
	int64_t was;
	bool old_session, readable;
	enum rc rc;

	my->base.host->alert = -1;
	if (!l->asked)
		return RC_OK;
	old_session = may_have_old_session(my);
	rc = session_ask(&my->session, write_release(my, old_session, status, &sql),
	    &(struct shape){1, false}, until, &sent, &r, f);
	if (rc != RC_OK) /* who only waits leaves nothing, whatever is missing */
		return sql_lease_not_released(
		    l, rc, l->held ? mysql_lacks_table(my) : mysql_is_missing(my), f);
	row = row_first(my->session.my, r);
	readable = row_integer(&row, 0, WAS_NOT, WAS_QUEUED, &was);
	my->session.my->free_result(r);
	if (old_session)
		end_old_session(my, until);
	return readable
	    ? sql_lease_released(l, was != WAS_NOT, my->session.again, until, f)
	    : mysql_makes_no_sense(my, RC_AGAIN, f);
}

const struct mode mysql_lease_mode = {
    .name = "lease",
    .caps = CAP_FAIR | CAP_DURABLE | CAP_SHARED | CAP_LIMIT | CAP_JOB | CAP_REVOKE |
	CAP_FORCE | CAP_FREEZE,
    .rights = "EXECUTE ON DATABASE.*",
    .bytes = sizeof(struct lease),
    .needs_database = true,
    .acquire = lease_acquire,
    .renew = lease_renew,
    .release = lease_release,
    .steering = &mysql_lease_steering,
};
