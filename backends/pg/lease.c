/*
 * lease.c - mode=lease: a hold is a row that ends.
 *
 *  1. Every operation is one call of a function of schema.sql: one statement,
 *     one transaction, one round trip, by the server's clock; where others have
 *     to do with the key, the first request takes one more.  Each is idempotent
 *     for an owner, so that one whose answer got lost MAY be sent again; renew
 *     and release only ever touch what is this owner's.
 *  2. The lease outlives connection and server.  Whatever happens to these is
 *     RC_AGAIN, a new connection (to a primary) and the same question; RC_LOST
 *     is said on the server's word alone: no row of ours, or no such table.
 *  3. A waiter on a direct connection sleeps in the server, on the wake-up lock
 *     (an advisory lock) of who is next before it, in chunks: a sleeping statement
 *     keeps a snapshot, for which CREATE INDEX CONCURRENTLY waits.  It lives as
 *     long as its own wake-up lock is held, so a chunk in vain is followed by the
 *     next, and nothing is written.  A release wakes those whom it grants, whoever
 *     else there is.  The first in line behind holders that are not exclusive sleeps
 *     here, for a notification: it cannot know which of them will make room.
 *  4. Where the lock before us is free although its owner has not gone, that one
 *     has no session at the moment, or a pooler before it: then we ask now and
 *     then.  So does, behind a pooler (our server process is not the one that we
 *     were told of), every waiter, for nothing is kept in a session there; asking
 *     is also its sign of life, which counts for ALIVE.
 *  5. A waiter that has been granted renews once before it goes on: that request
 *     earns the lease, shows that somebody is there to run, and is on disk before
 *     it is answered, together with the grant.  A job asks instead, for that is where
 *     the server looks whether it has been done.
 *
 * Why locks, and not LISTEN and NOTIFY: a NOTIFY makes every listening session of
 * the database run, so its cost grows with the queue, and commits that notify take
 * turns in the cluster.
 */
#include "pg.h"

#include "backends/sql/kind.h"

#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* one behind a pooler counts as alive: two questions may be lost */
#define ALIVE_MS "9000"

/* What a session has of us; it ends with it. */
struct lease_session {
	unsigned serial; /* of its connection */
	char pid[16];    /* its server process, as we were told */
	bool direct;     /* no pooler in between */
	bool rehearsed;  /* await() has done so */
};

/* Our wake-up lock: free when we have gone, or have given the lock back. */
struct wake_lock {
	bool taken;     /* the session has it */
	bool abandoned; /* a session that had it may live on, at the server alone */
	/* its number as a parameter: where it is to be taken, or given back; else "0" */
	char take[24], give[24];
};

/* mode=lease's own. */
struct lease {
	struct sql_lease lease;
	int64_t ahead;    /* the wake-up lock to sleep on; 0: there is none */
	int64_t was_free; /* one that was, when we were to sleep on it; or 0 */
	bool listening;   /* a notification will come */
	struct lease_session session;
	struct wake_lock wake;
};

static struct lease *
lease_of(const struct pg *pg)
{
	return pg_own(pg, &lease_mode);
}

/* The columns of enter_queue(), and of await(). */
enum {
	AHEAD = ANSWER_MORE,
	LISTENING,
	DIRECT,
	WAKES,
	DONE_FIRST,
	WHO = DONE_FIRST + 3,
	JOIN_FIELDS
};
enum { AWAIT_WAKES = ANSWER_MORE, AWAIT_FIELDS };

_Static_assert((int)JOIN_FIELDS <= (int)FIELDS_MAX, "field_row() reads them all");

enum slept { SLEPT_IN_VAIN, SLEPT_UNTIL_WOKEN, SLEPT_NOT };

/* ---- one question, one answer ---- */

/* Has the session got its wake-up lock?  NULL: it was not to take it. */
static void
note_wake_lock(struct pg *pg, const struct row *r, int field)
{
	struct lease *l = lease_of(pg);
	bool wakes;

	if (row_boolean(r, field, &wakes))
		l->wake.taken = l->wake.taken || wakes;
}

/*
 * What the server has given back of a session that was granted: if not exclusive, its
 * wake-up lock; and it listens no more.
 */
static void
note_given_back(struct pg *pg)
{
	struct lease *l = lease_of(pg);

	if (!kind_is_exclusive(pg->claim->kind))
		l->wake.taken = false;
	l->listening = false;
}

/* What enter_queue() says. */
static bool
read_place(struct pg *pg, const struct row *r)
{
	struct lease *l = lease_of(pg);
	struct standing *s = &l->lease.standing;

	if (!standing_read(s, pg->claim, pg->base.host, r, DONE_FIRST) ||
	    !row_boolean(r, DIRECT, &l->session.direct) ||
	    (s->code == QUEUED && !row_boolean(r, LISTENING, &l->listening)))
		return false;
	note_wake_lock(pg, r, WAKES);
	if (!row_integer(r, AHEAD, INT64_MIN, INT64_MAX, &l->ahead))
		l->ahead = 0;
	if (!row_text(r, WHO, s->done.who, sizeof s->done.who))
		s->done.who[0] = '\0';
	return true;
}

/*
 * Our wake-up lock is for as long as we wait and, with an exclusive lock, hold:
 * what comes behind another holder waits for no single one of them.
 */
static bool
wants_wake_lock(const struct pg *pg)
{
	return kind_is_exclusive(pg->claim->kind) || !lease_of(pg)->lease.held;
}

/* The first half of the owner. */
static int64_t
own_wake_lock(const struct pg *pg)
{
	char first_half[17];

	snprintf(first_half, sizeof first_half, "%.16s", pg->claim->owner);
	return (int64_t)strtoull(first_half, NULL, 16);
}

/*
 * What a session has of us ends with it.  Called before each question: the
 * connection may be another one than we asked on before.  From here on the
 * server may know of us.
 */
static void
note_session(void *ctx)
{
	struct pg *pg = ctx;
	struct lease *l = lease_of(pg);

	if (l->session.serial != pg->conn.serial) {
		l->wake.abandoned = l->wake.abandoned || l->wake.taken;
		l->wake.taken = false;
		l->session = (struct lease_session){.serial = pg->conn.serial};
	}
	l->lease.asked = true;
	snprintf(l->session.pid, sizeof l->session.pid, "%d",
	    pg->conn.pq->backendPID(pg->conn.pgconn));
	snprintf(l->wake.take, sizeof l->wake.take, "0");
	snprintf(l->wake.give, sizeof l->wake.give, "0");
	if (l->wake.taken || wants_wake_lock(pg))
		snprintf(l->wake.taken ? l->wake.give : l->wake.take, sizeof l->wake.give,
		    "%" PRId64, own_wake_lock(pg));
}

/*
 * When the connection ends we renew at once, over another one.  A crowd may want as many as
 * the server has room for, and our wake-up lock is to be held again.
 */
static void
lease_watch(struct pg *pg)
{
	pg->base.host->alert = pg->conn.pgconn ? pg->conn.pq->socket(pg->conn.pgconn)
					       : -1;
}

/* ---- acquire ---- */

/* Nothing that comes over this connection is believed any more. */
static enum rc
refuse_answer(struct pg *pg, struct fault *f)
{
	connection_close(&pg->conn);
	return pg_makes_no_sense(pg, RC_PROTOCOL, f);
}

/* The first question of all: is there nobody?  Otherwise `among`, and nothing else. */
static enum rc
take_unclaimed(struct pg *pg, instant until, struct grant *g, struct fault *f)
{
	struct lease *l = lease_of(pg);
	const struct claim *claim = pg->claim;
	char lease[32];
	const char *values[] = {
	    claim->key, claim->owner, claim->record, lease, l->session.pid, l->wake.take};
	const struct question q = {
	    .sql =
		"SELECT granted, direct, wakes FROM dlock.take_unclaimed($1, $2, $3, $4, $5, $6)",
	    .n = sizeof values / sizeof *values,
	    .values = values,
	    .prepare = note_session,
	    .ctx = pg};
	struct fields room;
	struct row row;
	PGresult *r;
	instant sent;
	enum rc rc;

	snprintf(lease, sizeof lease, "%s ms", pg->lease_ms);
	rc = pg_ask(pg, &q, 3, until, &sent, &r, f);
	if (rc != RC_OK)
		return rc;
	row = field_row(pg->conn.pq, r, 0, &room);
	if (row_is_null(&row, 0)) {
		l->lease.among = true;
	} else if (standing_read_taken(&l->lease.standing, &row) &&
	    row_boolean(&row, 1, &l->session.direct)) {
		note_wake_lock(pg, &row, 2);
		sql_lease_granted(&l->lease, sent, g);
	} else {
		rc = refuse_answer(pg, f);
	}
	pg->conn.pq->clear(r);
	return rc;
}

/* What enter_queue() has brought; a grant is by the request that left at `sent`. */
static enum rc
take_answer(
    struct pg *pg, const struct row *r, instant sent, struct grant *g, struct fault *f)
{
	struct sql_lease *l = &lease_of(pg)->lease;

	if (!read_place(pg, r))
		return refuse_answer(pg, f);
	if (l->standing.code == GRANTED)
		note_given_back(pg);
	return sql_lease_heard(l, sent, g, f);
}

/* Asks for the lock, or for our place in the queue; `alive_ms` "0": do not queue. */
static enum rc
ask_for_place(
    struct pg *pg, const char *alive_ms, instant until, struct grant *g, struct fault *f)
{
	struct lease *l = lease_of(pg);
	const struct claim *claim = pg->claim;
	bool is_job = job_is_wanted(&claim->job);
	char room[16], cooldown_ms[24];
	const char *values[] = {claim->key, claim->owner, claim->record, pg->lease_ms,
	    alive_ms, kind_word(claim->kind), room, l->session.pid, l->wake.take,
	    claim->job.once, cooldown_ms};
	const struct question q = {.sql = is_job
		? "SELECT * FROM dlock.enter_queue($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)"
		: "SELECT * FROM dlock.enter_queue($1, $2, $3, $4, $5, $6, $7, $8, $9)",
	    .n = is_job ? 11 : 9,
	    .values = values,
	    .prepare = note_session,
	    .ctx = pg};
	struct fields cells;
	struct row row;
	PGresult *r;
	instant sent;
	enum rc rc;

	snprintf(room, sizeof room, "%u", claim->kind == KIND_LIMIT ? claim->limit : 0);
	snprintf(
	    cooldown_ms, sizeof cooldown_ms, "%" PRId64, ns_to_ms(claim->job.cooldown));
	rc = pg_ask(pg, &q, JOIN_FIELDS, until, &sent, &r, f);
	if (rc != RC_OK)
		return rc;
	row = field_row(pg->conn.pq, r, 0, &cells);
	rc = take_answer(pg, &row, sent, g, f);
	pg->conn.pq->clear(r);
	return rc;
}

static enum rc
lease_ask(struct store *s, bool queue, instant until, struct grant *g, struct fault *f)
{
	struct pg *pg = pg_of(s);
	struct sql_lease *l = &lease_of(pg)->lease;
	bool asked_before = l->asked;
	enum rc rc = l->among ? RC_OK : take_unclaimed(pg, until, g, f);

	if (rc == RC_OK && l->among)
		rc = ask_for_place(pg, queue ? ALIVE_MS : "0", until, g, f);
	if (rc == RC_CONFIG && !asked_before && !pg->conn.pending.again)
		/* nothing of the schema dlock was called, nor will be */
		l->asked = false;
	return rc;
}

static int64_t
next_chunk(struct pg *pg)
{
	struct lease *l = lease_of(pg);
	struct standing *s = &l->lease.standing;

	if ((s->place == 1 || !l->wake.taken) &&
	    pg->claim->ttl / 2 > STANDING_CHUNK_FIRST)
		return STANDING_CHUNK_FIRST;
	return standing_chunk(s, pg->claim, STANDING_CHUNK);
}

/*
 * What await() has brought: whether we were woken; the token of a grant, else 0; where
 * we are, if that is told.
 */
static enum rc
read_sleep(struct pg *pg, const struct row *r, enum slept *slept, struct fault *f)
{
	struct standing *s = &lease_of(pg)->lease.standing;
	int64_t code;

	if (!row_integer(r, ANSWER_CODE, SLEPT_IN_VAIN, SLEPT_NOT, &code))
		return refuse_answer(pg, f);
	*slept = (enum slept)code;
	note_wake_lock(pg, r, AWAIT_WAKES);
	if (!standing_read_grant(s, pg->claim, r))
		s->token = 0;
	if (s->token == 0 && *slept == SLEPT_IN_VAIN &&
	    !standing_read_place(s, pg->base.host, r))
		*slept = SLEPT_UNTIL_WOKEN; /* we are no longer known: ask */
	return RC_OK;
}

/* After a sleep in vain: is there reason to ask nevertheless? */
static bool
is_reason_to_ask(const struct standing *s)
{
	if (standing_concerns_us(s) && s->left_ms == 0)
		return true; /* a lease has run out */
	/* whom we sleep behind holds beside others, or is passed over */
	return s->place == 1 && !s->next;
}

/*
 * Sleeps in the server until the one before us has gone; the first in line also for the
 * end of a lease.
 */
static enum rc
sleep_there(
    struct pg *pg, int64_t lock, instant until, enum slept *slept, struct fault *f)
{
	struct lease *l = lease_of(pg);
	struct standing *s = &l->lease.standing;
	const struct claim *claim = pg->claim;
	char ahead[24], ms[24];
	const char *values[] = {claim->key, claim->owner, ahead, ms, l->wake.take,
	    l->session.rehearsed ? "f" : "t"};
	const struct question q = {
	    .sql = "SELECT * FROM dlock.await($1, $2, $3, $4, $5, $6)",
	    .n = sizeof values / sizeof *values,
	    .values = values,
	    .prepare = note_session,
	    .ctx = pg};
	instant now = instant_now(), wake = instant_first(now + next_chunk(pg), until),
		sent;
	struct fields room;
	struct row row;
	PGresult *r;
	enum rc rc;

	wake = standing_wake(s, wake);
	snprintf(ahead, sizeof ahead, "%" PRId64, lock);
	snprintf(ms, sizeof ms, "%" PRId64, wake > now ? ns_to_ms(wake - now) : 1);
	rc = ask_here(&pg->conn, &q, AWAIT_FIELDS,
	    retry_answer(wake, ASK_PATIENCE, until), &sent, &r, f);
	if (rc != RC_OK)
		return rc;
	l->session.rehearsed = true;
	row = field_row(pg->conn.pq, r, 0, &room);
	rc = read_sleep(pg, &row, slept, f);
	pg->conn.pq->clear(r);
	if (rc != RC_OK || *slept != SLEPT_IN_VAIN || s->token)
		return rc;
	if (instant_now() >= until)
		return sql_lease_still_held(&l->lease, f);
	if (is_reason_to_ask(s))
		*slept = SLEPT_UNTIL_WOKEN;
	return RC_OK;
}

/* Sleeps until a notification comes (*notified), or a lease ends, or `until`. */
static enum rc
listen(struct pg *pg, instant until, bool *notified)
{
	struct host *host = pg->base.host;
	instant wake = instant_first(instant_now() + next_chunk(pg), until);

	wake = standing_wake(&lease_of(pg)->lease.standing, wake);
	*notified = connection_was_notified(&pg->conn);
	if (*notified || !pg->conn.pgconn)
		return RC_OK;
	if (host->wait(host, pg->conn.pq->socket(pg->conn.pgconn), POLLIN, wake) ==
	    WOKE_STOP)
		return RC_STOP;
	*notified = connection_was_notified(&pg->conn);
	return RC_OK;
}

/* Has the session our wake-up lock, and done before what await() will do? */
static bool
may_look(const struct pg *pg)
{
	const struct lease *l = lease_of(pg);

	return pg->conn.pgconn && l->session.serial == pg->conn.serial && l->wake.taken &&
	    l->session.rehearsed;
}

/*
 * Who has been notified looks for its grant by an await() that need not sleep, for it
 * waits for the lock that we have ourselves.  So it does without the key's lock, which
 * those who release want.  RC_BUSY: `until` has come.
 */
static enum rc
listen_for_grant(struct pg *pg, instant until, struct fault *f)
{
	const struct sql_lease *l = &lease_of(pg)->lease;
	enum slept slept = SLEPT_IN_VAIN;
	bool notified;
	enum rc rc = listen(pg, until, &notified);

	if (rc == RC_OK && notified && may_look(pg))
		rc = sleep_there(pg, own_wake_lock(pg), until, &slept, f);
	return rc == RC_OK && l->standing.token == 0 && instant_now() >= until
	    ? sql_lease_still_held(l, f)
	    : rc;
}

/* Is the session the one over which we were told where we are? */
static bool
is_same_session(const struct pg *pg)
{
	return lease_of(pg)->session.serial == pg->conn.serial;
}

/*
 * Sleeps until there is reason to ask, or with a grant.  A lock that was free is
 * worth one question at once, for its owner may just have gone; if the same one
 * is before us still, it has lost its session, and must be asked about now and then.
 */
static enum rc
sleep_in_line(struct pg *pg, instant until, struct fault *f)
{
	struct lease *l = lease_of(pg);
	struct standing *s = &l->lease.standing;
	int64_t was_free = l->was_free;
	enum slept slept = SLEPT_IN_VAIN;
	enum rc rc = RC_OK;

	l->was_free = 0;
	if (l->listening && is_same_session(pg))
		return listen_for_grant(pg, until, f);
	if (!l->session.direct || !l->ahead || !is_same_session(pg) ||
	    was_free == l->ahead)
		return sql_lease_sleep(
		    &l->lease, standing_next_question(s, pg->claim), until, f);
	while (rc == RC_OK && slept == SLEPT_IN_VAIN && s->token == 0)
		rc = sleep_there(pg, l->ahead, until, &slept, f);
	if (slept == SLEPT_NOT)
		l->was_free = l->ahead;
	return rc;
}

static enum rc
lease_wait(struct store *store, instant until, struct fault *f)
{
	struct pg *pg = pg_of(store);
	enum rc rc;

	if (!pg->conn.pgconn)
		return RC_OK;
	rc = sleep_in_line(pg, until, f);
	if (rc == RC_AGAIN && said_state(&pg->conn, "57014"))
		return RC_OK; /* somebody has cancelled our sleep: ask */
	if (rc == RC_OK && lease_of(pg)->lease.standing.token)
		note_given_back(pg);
	return rc;
}

static enum rc
lease_try_again(struct store *s, enum rc rc, instant until)
{
	return pg_try_again(pg_of(s), rc, true, until);
}

static const struct sql_lease_calls calls = {lease_ask, lease_wait, lease_try_again};

static enum rc
lease_acquire(struct pg *pg, instant until, struct grant *g, struct fault *f)
{
	struct sql_lease *l = &lease_of(pg)->lease;
	enum rc rc;

	*l = (struct sql_lease){.store = &pg->base,
	    .calls = &calls,
	    .claim = pg->claim,
	    .patience = &pg->patience};
	rc = sql_lease_acquire(l, until, g, f);
	if (rc == RC_OK)
		lease_watch(pg);
	return rc;
}

/* ---- renew and release ---- */

enum { RENEW_IS_OURS, RENEW_WAKES, RENEW_WANTED_BY, RENEW_FIELDS };

static enum rc
lease_renew(struct pg *pg, instant until, struct grant *g, struct fault *f)
{
	struct lease *l = lease_of(pg);
	const struct claim *claim = pg->claim;
	char token[24];
	const char *values[] = {
	    claim->key, claim->owner, token, pg->lease_ms, l->session.pid, l->wake.take};
	const struct question q = {
	    .sql =
		"SELECT code, wakes, wanted_by FROM dlock.renew($1, $2, $3, $4, $5, $6)",
	    .n = sizeof values / sizeof *values,
	    .values = values,
	    .prepare = note_session,
	    .ctx = pg};
	struct fields room;
	struct row row;
	PGresult *r;
	instant sent;
	bool ours;
	enum rc rc;

	pg->base.host->alert = -1;
	snprintf(token, sizeof token, "%" PRIu64, l->lease.token);
	rc = ask_server(&pg->conn, &q, RENEW_FIELDS, until, &sent, &r, f);
	if (rc != RC_OK)
		return sql_lease_not_renewed(&l->lease, rc, pg_lacks_table(pg), f);
	row = field_row(pg->conn.pq, r, 0, &room);
	note_wake_lock(pg, &row, RENEW_WAKES);
	rc = row_boolean(&row, RENEW_IS_OURS, &ours)
	    ? sql_lease_renewed(
		  &l->lease, ours, row_words(&row, RENEW_WANTED_BY), sent, g, f)
	    : pg_makes_no_sense(pg, RC_AGAIN, f);
	pg->conn.pq->clear(r);
	if (rc == RC_OK || rc == RC_REVOKED)
		lease_watch(pg);
	return rc;
}

/* How to say it: what others have to do with the key, and what there is to remember. */
static void
write_release(struct pg *pg, bool old_sessions, bool remembers, struct question *q)
{
	if (remembers) {
		q->sql = old_sessions
		    ? "SELECT dlock.release_among($1, $2, $3, $4, $5), dlock.end_old_sessions($2)"
		    : "SELECT dlock.release_among($1, $2, $3, $4, $5)";
		q->n = 5;
	} else if (old_sessions) {
		q->sql = "SELECT dlock.release($1, $2, $3), dlock.end_old_sessions($2)";
	} else if (lease_of(pg)->lease.among) {
		q->sql = "SELECT dlock.release_among($1, $2, $3)";
	}
}

enum { WAS_NOT, WAS_HELD, WAS_QUEUED };

static enum rc
lease_release(struct pg *pg, int status, instant until, struct fault *f)
{
	struct lease *l = lease_of(pg);
	const struct claim *claim = pg->claim;
	char status_text[16];
	const char *values[] = {
	    claim->key, claim->owner, l->wake.give, status_text, claim->job.once};
	struct question q = {.sql = "SELECT dlock.release($1, $2, $3)",
	    .n = 3,
	    .values = values,
	    .prepare = note_session,
	    .ctx = pg};
	bool old_sessions, readable;
	PGresult *r;
	instant sent;
	int64_t was;
	enum rc rc;

	pg->base.host->alert = -1;
	if (!l->lease.asked)
		return RC_OK;
	snprintf(status_text, sizeof status_text, "%d", status);
	old_sessions = l->wake.abandoned ||
	    (!connection_is_open(&pg->conn) && l->wake.taken);
	write_release(pg, old_sessions, status >= 0 && job_is_wanted(&claim->job), &q);
	rc = ask_server(&pg->conn, &q, old_sessions ? 2 : 1, until, &sent, &r, f);
	if (rc != RC_OK) /* who only waits leaves nothing, whatever is missing */
		return sql_lease_not_released(&l->lease, rc,
		    l->lease.held ? pg_lacks_table(pg) : pg_is_missing(pg), f);
	readable = field_integer(pg->conn.pq, r, 0, WAS_NOT, WAS_QUEUED, &was);
	pg->conn.pq->clear(r);
	rc = readable ? sql_lease_released(
			    &l->lease, was != WAS_NOT, pg->conn.pending.again, until, f)
		      : pg_makes_no_sense(pg, RC_AGAIN, f);
	l->wake.taken = false;
	return rc;
}

const struct mode lease_mode = {
    .name = "lease",
    .caps = CAP_FAIR | CAP_DURABLE | CAP_SHARED | CAP_LIMIT | CAP_JOB | CAP_REVOKE |
	CAP_FORCE | CAP_FREEZE,
    .bytes = sizeof(struct lease),
    .acquire = lease_acquire,
    .renew = lease_renew,
    .release = lease_release,
    .steering = &lease_steering,
};
