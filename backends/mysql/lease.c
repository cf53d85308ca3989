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

#include "backends/kind.h"
#include "backends/refuse.h"

#include <stdio.h>
#include <string.h>

#define CHUNK (10 * NS_PER_S) /* so long a waiter sleeps in the server */
/* and the first in line: less than a grant waits for it */
#define CHUNK_FIRST (2500 * NS_PER_MS)
/* one without a bell counts as alive: two questions may be lost */
#define ALIVE_US INT64_C(9000000)
/* without bells the first in line asks so often, the second half as often, */
#define POLL (200 * NS_PER_MS)
/* but all well within the 3 s of a grant that nobody tells them of */
#define POLL_MAX (2 * NS_PER_S)

/* a place, or ms, that a server may tell of: what is reckoned with them fits */
#define BELIEVED INT64_C(1000000000)

enum { BELL_BYTES = OWNER_CHARS + 2 };

/* mode=lease's own. */
struct lease {
	bool asked;  /* the server may know of us */
	bool held;   /* it has said that we hold */
	bool unsure; /* a release went unanswered: it may be done */
	/* somebody else may have to do with the key: enter, not take */
	bool among;
	bool refused; /* the last sleep was taken for a deadlock */
	uint64_t token;
	unsigned serial; /* of the session in which we have asked for our bell */
	unsigned jitter; /* counts what must not be done in step with others */
};

static struct lease *
lease_of(const struct mysql *my)
{
	return mysql_own(my, &mysql_lease_mode);
}

/* What enter said, or await. */
struct place {
	int64_t code, token, slot, place, left_ms, held_ms;
	bool next;        /* the end of the lease of who holds is ours to notice */
	bool one_of_many; /* `ahead` is one of several holders, any of whom will do */
	char ahead[BELL_BYTES]; /* the bell to sleep on; "": there is none */
};

enum { IN_USE = -1, QUEUED, GRANTED, DONE };

enum slept { SLEPT_IN_VAIN, SLEPT_UNTIL_WOKEN, SLEPT_NOT, SLEPT_REFUSED };

/* The columns of enter. */
enum {
	CODE,
	TOKEN,
	SLOT,
	PLACE,
	LEFT_MS,
	HELD_MS,
	HOLDER,
	HOLDERS,
	HELD_KIND,
	HELD_ROOM,
	NEXT,
	AHEAD,
	DONE_BY,
	BEGAN_MS,
	AGE_MS,
	RECORD,
	MOMENT,
	ENTER_FIELDS
};

/* And those of await: CODE, TOKEN, SLOT. */
enum { AWAIT_FIELDS = SLOT + 1 };

/* ---- one question, one answer ---- */

/* May this session have bells that others of this server see? */
static bool
has_bells(const struct mysql *my)
{
	return my->session.server.is_direct && !my->session.server.is_galera;
}

/* Who holds, or has frozen it, for people.  It may be nobody. */
static void
lease_see_holders(struct mysql *my, const struct row *r, int64_t held_ms)
{
	struct host *host = my->base.host;
	const char *word = row_words(r, HELD_KIND);
	int64_t holders = 0, room = 0;

	host->seen.held = held_ms < 0 ? -1 : held_ms * NS_PER_MS;
	if (held_ms < 0)
		host->seen.holder[0] = '\0';
	if (!row_integer(r, HOLDERS, 0, BELIEVED, &holders) ||
	    !row_integer(r, HELD_ROOM, 0, LIMIT_MAX, &room) ||
	    !kind_of_word(word, &host->seen.kind)) {
		host->seen.kind = KIND_EXCLUSIVE;
		room = holders = 0;
	}
	host->seen.limit = room;
	host->seen.holders = holders;
	host->seen.frozen = word && strcmp(word, KIND_WORD_FREEZE) == 0;
}

/* Where we are in the queue. */
static bool
read_where(struct mysql *my, const struct row *r, struct place *p)
{
	struct host *host = my->base.host;

	if (!row_integer(r, PLACE, 1, BELIEVED, &p->place) ||
	    !row_boolean(r, NEXT, &p->next) ||
	    !row_text(r, AHEAD, p->ahead, sizeof p->ahead))
		return false;
	if (!row_integer(r, LEFT_MS, 0, BELIEVED, &p->left_ms))
		/* nobody holds: the first in line has not come for it yet */
		p->left_ms = 0;
	if (!row_integer(r, HELD_MS, 0, BELIEVED * 1000, &p->held_ms) ||
	    !row_text(r, HOLDER, host->seen.holder, sizeof host->seen.holder))
		p->held_ms = -1;
	host->seen.position = p->place;
	lease_see_holders(my, r, p->held_ms);
	p->one_of_many = p->next && host->seen.kind == KIND_LIMIT &&
	    my->claim->kind == KIND_LIMIT;
	return true;
}

/* The token of a grant and, of a limited one, the slot; false: none that make sense. */
static bool
read_grant(struct mysql *my, const struct row *r, struct place *p)
{
	const struct claim *claim = my->claim;
	bool is_limit = claim->kind == KIND_LIMIT;

	if (!row_integer(r, TOKEN, 1, INT64_MAX, &p->token))
		return false;
	p->slot = 0;
	return !is_limit || row_integer(r, SLOT, 0, claim->limit - 1, &p->slot);
}

/* What enter says. */
static bool
read_place(struct mysql *my, const struct row *r, struct place *p)
{
	if (!row_integer(r, CODE, IN_USE, DONE, &p->code))
		return false;
	if (p->code == GRANTED)
		return read_grant(my, r, p);
	return p->code != QUEUED || read_where(my, r, p);
}

static enum rc lease_renew(struct mysql *, instant until, struct grant *, struct fault *);
static enum rc lease_release(struct mysql *, int status, instant until, struct fault *);

/* ---- acquire ---- */

static bool
is_granted(const struct place *p)
{
	return p->code == GRANTED;
}

/* It is ours: by the request that left at `sent`. */
static void
note_grant(struct mysql *my, const struct place *p, instant sent, struct grant *g)
{
	struct lease *l = lease_of(my);

	l->held = true;
	l->token = p->token;
	*g = (struct grant){.token = p->token,
	    .slot = p->slot,
	    .sent = sent,
	    .lease = my->claim->ttl,
	    .anchor = -1};
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
		lease_of(my)->asked = true;
	return rc;
}

/*
 * The first question of all: is there nobody?  Otherwise *p says that we wait, and
 * nothing else.
 */
static enum rc
take(struct mysql *my, instant until, struct grant *g, struct place *p, struct fault *f)
{
	const struct claim *claim = my->claim;
	struct sql sql;
	MYSQL_RES *r;
	struct row row;
	instant sent;
	enum rc rc = open_session(my, until, f);

	if (rc == RC_OK)
		rc = mysql_ask(my,
		    sql_call(&sql, "dlock_take_1",
			SQL_VALUES(SQL_TEXT(claim->key), SQL_TEXT(claim->owner),
			    SQL_TEXT(claim->record), SQL_INT(my->lease_us),
			    SQL_INT(has_bells(my)),
			    SQL_INT(session_server_time(&my->session, until)))),
		    &(struct shape){1, false}, until, &sent, &r, f);
	if (rc != RC_OK)
		return rc;
	row = row_first(my->session.my, r);
	*p = (struct place){.code = QUEUED};
	if (row_is_null(&row, 0)) {
		lease_of(my)->among = true;
	} else if (row_integer(&row, 0, 1, INT64_MAX, &p->token)) {
		p->code = GRANTED;
		note_grant(my, p, sent, g);
	} else {
		rc = refuse_answer(my, f);
	}
	my->session.my->free_result(r);
	return rc;
}

/* Another kind is in use: which one. */
static enum rc
refuse_ours(struct mysql *my, const struct row *r, struct fault *f)
{
	enum lock_kind kind;
	int64_t room;

	if (!kind_of_word(row_words(r, HELD_KIND), &kind) ||
	    !row_integer(r, HELD_ROOM, 0, LIMIT_MAX, &room))
		return refuse_answer(my, f);
	return refuse_kind(f, my->session.where, kind, room, my->claim);
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

/* The job has been done: when, and by whom. */
static enum rc
tell_done(struct mysql *my, const struct row *r, struct fault *f)
{
	const struct job *job = &my->claim->job;
	const char *by = row_words(r, DONE_BY);
	int64_t began_ms, age_ms;
	char who[104];

	if (row_is_null(r, TOKEN))
		lease_of(my)->asked = false; /* it has nothing of ours */
	if (!by || !row_integer(r, AGE_MS, 0, INT64_MAX / NS_PER_MS, &age_ms))
		return refuse_answer(my, f);
	if (strcmp(by, "cooldown") == 0)
		return refuse_recent(f, job, age_ms * NS_PER_MS);
	if (!job->once || !row_integer(r, BEGAN_MS, 0, INT64_MAX / NS_PER_MS, &began_ms))
		return refuse_answer(my, f);
	read_who(row_words(r, RECORD), who, sizeof who);
	return refuse_done(f, job, began_ms, who);
}

/* What enter has brought; a grant is by the request that left at `sent`. */
static enum rc
take_answer(struct mysql *my, const struct row *r, instant sent, struct grant *g,
    struct place *p, struct fault *f)
{
	if (!read_place(my, r, p))
		return refuse_answer(my, f);
	if (p->code == IN_USE)
		return refuse_ours(my, r, f);
	if (p->code == DONE)
		return tell_done(my, r, f);
	if (is_granted(p))
		note_grant(my, p, sent, g);
	return RC_OK;
}

/* Asks for the lock, or for our place in the queue; `patience_us` 0: do not queue. */
static enum rc
enter(struct mysql *my, int64_t patience_us, instant until, struct grant *g,
    struct place *p, struct fault *f)
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
		    sql_call(&sql, "dlock_enter_1",
			SQL_VALUES(SQL_TEXT(claim->key), SQL_TEXT(claim->owner),
			    SQL_TEXT(claim->record), SQL_INT(my->lease_us),
			    SQL_INT(patience_us), SQL_TEXT(kind_word(claim->kind)),
			    SQL_INT(claim->kind == KIND_LIMIT ? claim->limit : 0),
			    SQL_INT(has_bells(my)), SQL_TEXT(claim->job.once),
			    SQL_INT(claim->job.cooldown / 1000),
			    SQL_INT(session_server_time(&my->session, until)))),
		    &(struct shape){ENTER_FIELDS, false}, until, &sent, &r, f);
	if (rc != RC_OK)
		return rc;
	row = row_first(my->session.my, r);
	*p = (struct place){.code = QUEUED};
	lease_of(my)->serial = my->session.serial;
	if (row_integer(&row, MOMENT, 0, INT64_MAX / 2, &moment))
		session_set_clock(&my->session, moment);
	rc = take_answer(my, &row, sent, g, p, f);
	my->session.my->free_result(r);
	return rc;
}

/* Is the end of the holder's lease ours to notice? */
static bool
concerns_us(const struct place *p)
{
	return p->next || p->place == 1;
}

/*
 * A few bits of the owner and a counter: enough to keep a thousand waiters from asking in
 * step.  From 0 to 15.
 */
static int64_t
next_jitter(struct mysql *my)
{
	return my->claim->owner[lease_of(my)->jitter++ % OWNER_CHARS] % 16;
}

/* When to ask again where no bell will tell us. */
static instant
next_question(struct mysql *my, const struct place *p)
{
	int64_t pause = p->place * POLL < POLL_MAX ? p->place * POLL : POLL_MAX;
	instant now = instant_now(),
		ask_at = now + pause * 3 / 4 + pause / 32 * next_jitter(my);

	if (concerns_us(p) && p->left_ms > 0)
		ask_at = instant_first(ask_at, now + (p->left_ms + 5) * NS_PER_MS);
	return ask_at;
}

static enum rc
still_held(const struct mysql *my, struct fault *f)
{
	return fault_set(f, RC_BUSY, "%s: still held", my->session.where);
}

/* Sleeps here.  RC_BUSY: `until` has come. */
static enum rc
sleep_here(struct mysql *my, instant wake, instant until, struct fault *f)
{
	struct host *host = my->base.host;

	if (host->wait(host, -1, 0, instant_first(wake, until)) == WOKE_STOP)
		return RC_STOP;
	return instant_now() >= until ? still_held(my, f) : RC_OK;
}

/*
 * So long one sleep in the server is.  Whoever is before us may become the holder
 * meanwhile and be cut off: so less than a lease.  And not in step with others.
 */
static int64_t
next_chunk(struct mysql *my, const struct place *p)
{
	int64_t most = instant_first(my->claim->ttl / 2, CHUNK);

	if (p->one_of_many)
		return POLL * 3 / 4 + POLL / 32 * next_jitter(my);
	if (p->place == 1)
		most = instant_first(most, CHUNK_FIRST);
	return most - most / 64 * next_jitter(my);
}

/* MySQL's GET_LOCK knows whole seconds: what is less is slept here. */
static int64_t
sleep_ms(const struct mysql *my, int64_t ms)
{
	return my->session.server.is_mariadb ? ms : ms / 1000 * 1000;
}

/*
 * What await has brought: whether we were woken; the token of a grant, else 0.
 */
static enum rc
read_sleep(
    struct mysql *my, MYSQL_RES *r, struct place *p, enum slept *slept, struct fault *f)
{
	struct row row = row_first(my->session.my, r);
	int64_t code;

	if (!row_integer(&row, CODE, SLEPT_IN_VAIN, SLEPT_REFUSED, &code))
		return refuse_answer(my, f);
	*slept = (enum slept)code;
	if (!read_grant(my, &row, p))
		p->token = 0;
	return RC_OK;
}

/*
 * Sleeps in the server until the one before us has gone; the first in line also for the
 * end of a lease.
 */
static enum rc
sleep_there(
    struct mysql *my, struct place *p, instant until, enum slept *slept, struct fault *f)
{
	const struct claim *claim = my->claim;
	instant now = instant_now(), wake = instant_first(now + next_chunk(my, p), until),
		sent;
	struct sql sql;
	MYSQL_RES *r;
	int64_t ms;
	enum rc rc;

	if (concerns_us(p) && p->left_ms > 0)
		wake = instant_first(wake, now + (p->left_ms + 5) * NS_PER_MS);
	ms = sleep_ms(my, wake > now ? ns_to_ms(wake - now) : 1);
	if (ms == 0)
		return sleep_here(my, wake, until, f);
	rc = session_ask_here(&my->session,
	    sql_call(&sql, "dlock_await_1",
		SQL_VALUES(SQL_TEXT(claim->key), SQL_TEXT(claim->owner),
		    SQL_TEXT(p->ahead), SQL_INT(ms))),
	    &(struct shape){AWAIT_FIELDS, false}, wake + ASK_PATIENCE, &sent, &r, f);
	if (rc != RC_OK)
		return rc;
	rc = read_sleep(my, r, p, slept, f);
	my->session.my->free_result(r);
	if (rc == RC_OK && p->token == 0 && instant_now() >= until)
		return still_held(my, f);
	return rc;
}

/* A grant that we have been told of becomes ours by a renewal.  *g is set if it did. */
static enum rc
confirm_lease(struct mysql *my, struct place *p, struct grant *g, struct fault *f)
{
	struct lease *l = lease_of(my);
	instant now = instant_now();
	enum rc rc;

	note_grant(my, p, now, g);
	rc = lease_renew(my, now + ASK_PATIENCE, g, f);
	if (rc == RC_REVOKED)
		rc = RC_OK; /* the next renewal will say so again */
	p->code = rc == RC_OK ? GRANTED : QUEUED;
	l->held = rc == RC_OK;
	return rc == RC_LOST ? RC_OK : rc; /* it came too late: ask */
}

/* Is there a bell to sleep on, and have we got our own in this session? */
static bool
is_settled(struct mysql *my, const struct place *p)
{
	return *p->ahead && has_bells(my) && my->session.mysql &&
	    lease_of(my)->serial == my->session.serial;
}

/*
 * Returns when there is reason to ask, or with a grant.  A bell that was free is worth one
 * question at once, for its owner may just have gone; if the same one is before us still,
 * it has lost its session, and must be asked about now and then.
 */
static enum rc
wait_for_turn(struct mysql *my, struct place *p, char *was_free, instant until,
    struct grant *g, struct fault *f)
{
	enum slept slept = SLEPT_IN_VAIN;
	enum rc rc;

	p->token = 0;
	if (!is_settled(my, p) || strcmp(was_free, p->ahead) == 0) {
		*was_free = '\0';
		return sleep_here(my, next_question(my, p), until, f);
	}
	rc = sleep_there(my, p, until, &slept, f);
	snprintf(was_free, BELL_BYTES, "%s",
	    slept == SLEPT_NOT || slept == SLEPT_REFUSED ? p->ahead : "");
	if (rc != RC_OK && my->session.said == SAID_INTERRUPTED)
		return RC_OK; /* somebody has cancelled our sleep */
	if (rc != RC_OK || !p->token || job_is_wanted(&my->claim->job))
		return rc;
	return confirm_lease(my, p, g, f);
}

/*
 * We are in the queue: sleep, ask, until we are granted.  When a session has broken, so
 * may have those of a thousand others: no attempt before its turn.
 */
static enum rc
wait_for_lease(
    struct mysql *my, instant until, struct grant *g, struct place *p, struct fault *f)
{
	char was_free[BELL_BYTES] = "";
	enum rc rc = RC_OK;

	while (rc == RC_OK && !is_granted(p)) {
		rc = my->session.mysql ? wait_for_turn(my, p, was_free, until, g, f)
				       : RC_OK;
		if (rc == RC_OK && !is_granted(p))
			rc = enter(my, ALIVE_US, instant_now() + ASK_PATIENCE, g, p, f);
		if (rc == RC_OK)
			patience_end_outage(&my->patience);
		else
			rc = mysql_try_again(my, rc, true, until);
	}
	return rc;
}

static enum rc
ask_first(struct mysql *my, int64_t patience_us, instant until, struct grant *g,
    struct place *p, struct fault *f)
{
	struct lease *l = lease_of(my);
	enum rc rc = l->among ? RC_OK : take(my, until, g, p, f);

	if (rc == RC_OK && l->among)
		rc = enter(my, patience_us, until, g, p, f);
	return rc;
}

/*
 * A job that has been done wants no lock any more.  If this goes unheard, the caller's
 * release says it again.
 */
static void
leave_done(struct mysql *my)
{
	struct fault unheard;

	(void)lease_release(my, STATUS_NONE, instant_now() + ASK_PATIENCE, &unheard);
}

static enum rc
lease_acquire(struct mysql *my, instant until, struct grant *g, struct fault *f)
{
	struct lease *l = lease_of(my);
	struct patience *patience = &my->patience;
	instant first_by = patience_first(patience, until);
	struct place p = {.code = QUEUED};
	enum rc rc;

	l->among = !kind_is_exclusive(my->claim->kind) || job_is_wanted(&my->claim->job);
	do
		rc = ask_first(my, until ? ALIVE_US : 0,
		    patience_attempt_by(patience, first_by), g, &p, f);
	while (patience_first_again(patience, my->base.host, until, &rc));
	if (rc == RC_OK && !is_granted(&p)) {
		if (until)
			rc = wait_for_lease(my, until, g, &p, f);
		else
			rc = fault_set(f, RC_BUSY, "%s: held", my->session.where);
	}
	if (rc == RC_BUSY && !until)
		l->asked = false; /* who does not queue leaves nothing */
	if (rc == RC_DONE)
		leave_done(my);
	return rc;
}

/* ---- renew and release ---- */

static enum rc
lease_not_ours(struct mysql *my, struct fault *f)
{
	return fault_set(f, RC_LOST,
	    "%s no longer has it as ours: it expired, was deleted, or the server lost its data",
	    my->session.where);
}

enum { RENEW_CODE, RENEW_WANTED_BY, RENEW_FIELDS };

/* What renew said; who asks for the lock, or has taken it away. */
static enum rc
read_renewal(struct mysql *my, MYSQL_RES *r, struct fault *f)
{
	struct row row = row_first(my->session.my, r);
	const char *by = row_words(&row, RENEW_WANTED_BY);
	bool ours;

	if (!row_boolean(&row, RENEW_CODE, &ours))
		return mysql_makes_no_sense(my, RC_AGAIN, f);
	if (by)
		return refuse_broken(
		    my->base.host, f, ours ? RC_REVOKED : RC_LOST, my->session.where, by);
	return ours ? RC_OK : lease_not_ours(my, f);
}

static enum rc
lease_renew(struct mysql *my, instant until, struct grant *g, struct fault *f)
{
	const struct claim *claim = my->claim;
	struct sql sql;
	MYSQL_RES *r;
	instant sent;
	enum rc rc = open_session(my, until, f);

	if (rc == RC_OK)
		rc = session_ask(&my->session,
		    sql_call(&sql, "dlock_renew_1",
			SQL_VALUES(SQL_TEXT(claim->key), SQL_TEXT(claim->owner),
			    SQL_INT((int64_t)lease_of(my)->token), SQL_INT(my->lease_us),
			    SQL_INT(has_bells(my)))),
		    &(struct shape){RENEW_FIELDS, false}, until, &sent, &r, f);
	if (rc != RC_OK)
		return mysql_is_missing(my) ? lease_not_ours(my, f)
		    : rc == RC_STOP         ? RC_STOP
				    : RC_AGAIN; /* a table dropped is a lock lost */
	rc = read_renewal(my, r, f);
	my->session.my->free_result(r);
	if (rc == RC_OK || rc == RC_REVOKED) {
		g->sent = sent;
		g->lease = claim->ttl;
	}
	return rc;
}

enum { WAS_NOT, WAS_HELD, WAS_QUEUED };

/* Reads what release said. */
static enum rc
read_release(struct mysql *my, MYSQL_RES *r, struct fault *f)
{
	struct lease *l = lease_of(my);
	struct row row = row_first(my->session.my, r);
	int64_t code;

	if (!row_integer(&row, 0, WAS_NOT, WAS_QUEUED, &code))
		return mysql_makes_no_sense(my, RC_AGAIN, f);
	if (code == WAS_NOT && l->held && (my->session.again || l->unsure))
		return fault_set(f, RC_AGAIN,
		    "%s closed the connection before it answered", my->session.where);
	if (code == WAS_NOT && l->held)
		return lease_not_ours(my, f);
	return RC_OK;
}

static enum rc
lease_release(struct mysql *my, int status, instant until, struct fault *f)
{
	struct lease *l = lease_of(my);
	const struct claim *claim = my->claim;
	bool remembers = status >= 0 && job_is_wanted(&claim->job);
	struct sql sql;
	MYSQL_RES *r;
	instant sent;
	enum rc rc;

	if (!l->asked)
		return RC_OK;
	rc = session_ask(&my->session,
	    sql_call(&sql, "dlock_release_1",
		SQL_VALUES(SQL_TEXT(claim->key), SQL_TEXT(claim->owner),
		    remembers ? SQL_INT(status) : SQL_TEXT(NULL),
		    SQL_TEXT(claim->job.once))),
	    &(struct shape){1, false}, until, &sent, &r, f);
	if (rc != RC_OK) {
		l->unsure = true;
		return mysql_is_missing(my) ? (l->held ? lease_not_ours(my, f) : RC_OK)
					    : rc;
	}
	rc = read_release(my, r, f);
	my->session.my->free_result(r);
	if (rc == RC_OK || rc == RC_LOST)
		l->asked = l->held = false;
	return rc;
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
