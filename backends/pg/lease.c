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
 *     next, and nothing is written.  A release wakes one waiter, whoever else
 *     there is.
 *  4. Where the lock before us is free although its owner has not gone, that one
 *     has no session at the moment, or a pooler before it: then we ask now and
 *     then.  So does, behind a pooler (our server process is not the one that we
 *     were told of), every waiter, for nothing is kept in a session there; asking
 *     is also its sign of life, which counts for ALIVE.
 *  5. A waiter that has been granted renews once before it goes on: that request
 *     earns the lease, shows that somebody is there to run, and is on disk before
 *     it is answered, together with the grant.
 *
 * Why locks, and not LISTEN and NOTIFY: a NOTIFY makes every listening session of
 * the database run, so its cost grows with the queue, and commits that notify take
 * turns in the cluster.
 */
#include "pg.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHUNK (10 * NS_PER_S)         /* so long a waiter sleeps in the server */
#define CHUNK_FIRST (2500 * NS_PER_MS) /* and the first in line: less than a grant waits for it */
#define ALIVE_MS "9000"                /* one behind a pooler counts as alive: two questions may be lost */
#define POLL                                                                                               \
	(200 * NS_PER_MS) /* without locks the first in line asks so often, the second half as often, */
#define POLL_MAX (2 * NS_PER_S) /* but all well within the 3 s of a grant that nobody tells them of */

#define BELIEVED                                                                                           \
	INT64_C(1000000000) /* a place, or ms, that a server may tell of: what is reckoned with them fits */

/* What queue() said, or await(). */
struct place {
	int64_t code, token, place, left_ms, held_ms, ahead;
};

enum slept { SLEPT_IN_VAIN, SLEPT_UNTIL_WOKEN, SLEPT_NOT };

/* ---- one question, one answer ---- */

/* Has the session got its wake-up lock?  NULL: it was not to take it. */
static void
note_wake_lock(struct pg *pg, const PGresult *r, int field)
{
	bool wakes;

	if (field_boolean(&pg->session, r, field, &wakes))
		pg->wakes = pg->wakes || wakes;
}

/* Where we are: four fields from `first` on. */
static bool
read_where(struct pg *pg, const PGresult *r, int first, struct place *p)
{
	const struct session *s = &pg->session;
	struct host *host = pg->base.host;

	if (!field_integer(s, r, first, 1, BELIEVED, &p->place))
		return false;
	if (!field_integer(s, r, first + 1, 0, BELIEVED, &p->left_ms))
		p->left_ms = 0; /* nobody holds: the first in line has not come for it yet */
	if (!field_integer(s, r, first + 2, 0, BELIEVED * 1000, &p->held_ms) ||
	    !field_text(s, r, first + 3, host->seen.holder, sizeof host->seen.holder)) {
		p->held_ms = -1;
		host->seen.holder[0] = '\0';
	}
	host->seen.position = p->place;
	host->seen.held = p->held_ms < 0 ? -1 : p->held_ms * NS_PER_MS;
	return true;
}

static bool
read_place(struct pg *pg, const PGresult *r, struct place *p)
{
	const struct session *s = &pg->session;

	if (!field_integer(s, r, 0, -1, 1, &p->code) || !field_boolean(s, r, 7, &pg->direct))
		return false;
	note_wake_lock(pg, r, 8);
	if (p->code != 0)
		return p->code < 0 || field_integer(s, r, 1, 1, INT64_MAX, &p->token);
	if (!field_integer(s, r, 6, INT64_MIN, INT64_MAX, &p->ahead))
		p->ahead = 0;
	return read_where(pg, r, 2, p);
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
	char first_half[17];
	uint64_t wake_lock;

	snprintf(first_half, sizeof first_half, "%.16s", pg->claim->owner);
	if (pg->serial != pg->session.serial) {
		pg->abandoned = pg->abandoned || pg->wakes;
		pg->wakes = pg->direct = false;
		pg->serial = pg->session.serial;
	}
	pg->asked = true;
	snprintf(pg->pid, sizeof pg->pid, "%d", pg->session.pq->backendPID(pg->session.conn));
	wake_lock = strtoull(first_half, NULL, 16);
	snprintf(pg->wakes ? pg->give : pg->take, sizeof pg->give, "%" PRId64, (int64_t)wake_lock);
	snprintf(pg->wakes ? pg->take : pg->give, sizeof pg->take, "0");
}

static enum rc lease_renew(struct pg *, instant until, struct grant *, struct fault *);

/* ---- acquire ---- */

static bool
is_granted(const struct place *p)
{
	return p->code == 1;
}

/* It is ours: by the request that left at `sent`. */
static void
take(struct pg *pg, int64_t token, instant sent, struct grant *g)
{
	pg->held = true;
	pg->token = token;
	*g = (struct grant){.token = token, .sent = sent, .lease = pg->claim->ttl, .anchor = -1};
}

static enum rc
makes_no_sense(struct pg *pg, struct fault *f)
{
	session_close(&pg->session);
	return fault_set(
	    f, RC_PROTOCOL, "%s gave an answer that dlock's functions do not give", pg->session.where);
}

/* The first question of all: is there nobody?  Otherwise *p says that we wait, and nothing else. */
static enum rc
take_free(struct pg *pg, instant until, struct grant *g, struct place *p, struct fault *f)
{
	const struct claim *c = pg->claim;
	char lease[32];
	const char *values[] = {c->key, c->owner, c->record, lease, pg->pid, pg->take};
	const struct question q = {"SELECT granted, direct, wakes FROM dlock.take($1, $2, $3, $4, $5, $6)",
	    sizeof values / sizeof *values, values, note_session, pg};
	const struct session *s = &pg->session;
	PGresult *r;
	instant sent;
	enum rc rc;

	snprintf(lease, sizeof lease, "%s ms", pg->lease_ms);
	rc = pg_ask(pg, &q, 3, until, &sent, &r, f);
	if (rc != RC_OK)
		return rc;
	*p = (struct place){.code = 0};
	if (s->pq->getisnull(r, 0, 0)) {
		pg->among = true;
	} else if (field_integer(s, r, 0, 1, INT64_MAX, &p->token) && field_boolean(s, r, 1, &pg->direct)) {
		note_wake_lock(pg, r, 2);
		p->code = 1;
		take(pg, p->token, sent, g);
	} else {
		rc = makes_no_sense(pg, f);
	}
	s->pq->clear(r);
	return rc;
}

/* Asks for the lock, or for our place in the queue; `alive_ms` "0": do not queue. */
static enum rc
ask(struct pg *pg, const char *alive_ms, instant until, struct grant *g, struct place *p, struct fault *f)
{
	const struct claim *c = pg->claim;
	const char *values[] = {c->key, c->owner, c->record, pg->lease_ms, alive_ms, "1",
	    "1", pg->pid, pg->take};
	const struct question q = {
	    "SELECT code, granted, place, left_ms, held_ms, holder, ahead, direct, wakes "
	    "FROM dlock.queue($1, $2, $3, $4, $5, $6, $7, $8, $9)",
	    sizeof values / sizeof *values, values, note_session, pg};
	PGresult *r;
	instant sent;
	enum rc rc = pg_ask(pg, &q, 9, until, &sent, &r, f);

	if (rc != RC_OK)
		return rc;
	if (!read_place(pg, r, p))
		rc = makes_no_sense(pg, f);
	else if (p->code < 0)
		rc = fault_set(f, RC_PROTOCOL,
		    "%s: this key is in use as a lock of another kind (another --limit)",
		    pg->session.where);
	else if (is_granted(p))
		take(pg, p->token, sent, g);
	pg->session.pq->clear(r);
	return rc;
}

/* When to ask again where no lock will tell us. */
static instant
next_question(struct pg *pg, const struct place *p)
{
	/* A few bits of the owner and a counter: enough to keep a thousand waiters from asking in step. */
	int64_t pause = p->place * POLL < POLL_MAX ? p->place * POLL : POLL_MAX;
	int64_t jitter = pause / 32 * (pg->claim->owner[pg->jitter++ % OWNER_CHARS] % 16);
	instant now = instant_now(), ask_at = now + pause * 3 / 4 + jitter;

	if (p->place == 1 && p->left_ms > 0)
		ask_at = instant_first(ask_at, now + (p->left_ms + 5) * NS_PER_MS);
	return ask_at;
}

/* Sleeps here.  RC_BUSY: `until` has come. */
static enum rc
sleep_here(struct pg *pg, instant wake, instant until, struct fault *f)
{
	struct host *host = pg->base.host;

	if (host->wait(host, -1, 0, instant_first(wake, until)) == WOKE_STOP)
		return RC_STOP;
	return instant_now() >= until ? fault_set(f, RC_BUSY, "%s: still held", pg->session.where) : RC_OK;
}

/*
 * So long one sleep in the server is.  Whoever is before us may become the holder
 * meanwhile and be cut off: so less than a lease.  And not in step with others.
 */
static int64_t
chunk(struct pg *pg, const struct place *p)
{
	int64_t most = pg->claim->ttl / 2 < CHUNK ? pg->claim->ttl / 2 : CHUNK;

	if ((p->place == 1 || !pg->wakes) && most > CHUNK_FIRST)
		return CHUNK_FIRST;
	return most - most / 64 * (pg->claim->owner[pg->jitter++ % OWNER_CHARS] % 16);
}

/* What await() has brought: whether we were woken; the token of a grant, else 0; where we are, if that is told. */
static enum rc
read_sleep(struct pg *pg, const PGresult *r, struct place *p, enum slept *slept, struct fault *f)
{
	int64_t code;

	if (!field_integer(&pg->session, r, 0, SLEPT_IN_VAIN, SLEPT_NOT, &code))
		return makes_no_sense(pg, f);
	*slept = (enum slept)code;
	note_wake_lock(pg, r, 6);
	if (!field_integer(&pg->session, r, 1, 1, INT64_MAX, &p->token))
		p->token = 0;
	if (p->token == 0 && *slept == SLEPT_IN_VAIN && !read_where(pg, r, 2, p))
		*slept = SLEPT_UNTIL_WOKEN; /* we are no longer known: ask */
	return RC_OK;
}

/* Sleeps in the server until the one before us has gone; the first in line also for the end of a lease. */
static enum rc
sleep_there(struct pg *pg, struct place *p, instant until, enum slept *slept, struct fault *f)
{
	const struct claim *c = pg->claim;
	char ahead[24], ms[24];
	const char *values[] = {c->key, c->owner, ahead, ms, pg->take, pg->rehearsed == pg->serial ? "f" : "t"};
	const struct question q = {"SELECT code, granted, place, left_ms, held_ms, holder, wakes "
				   "FROM dlock.await($1, $2, $3, $4, $5, $6)",
	    sizeof values / sizeof *values, values, note_session, pg};
	instant now = instant_now(), wake = instant_first(now + chunk(pg, p), until), sent;
	PGresult *r;
	enum rc rc;

	if (p->place == 1 && p->left_ms > 0)
		wake = instant_first(wake, now + (p->left_ms + 5) * NS_PER_MS);
	snprintf(ahead, sizeof ahead, "%" PRId64, p->ahead);
	snprintf(ms, sizeof ms, "%" PRId64, wake > now ? ns_to_ms(wake - now) : 1);
	rc = session_ask_here(&pg->session, &q, 7, wake + ASK_PATIENCE, &sent, &r, f);
	if (rc != RC_OK)
		return rc;
	pg->rehearsed = pg->serial;
	rc = read_sleep(pg, r, p, slept, f);
	pg->session.pq->clear(r);
	if (rc == RC_OK && *slept == SLEPT_IN_VAIN && p->token == 0 && instant_now() >= until)
		return fault_set(f, RC_BUSY, "%s: still held", pg->session.where);
	if (rc == RC_OK && p->place == 1 && p->left_ms == 0 && *slept == SLEPT_IN_VAIN)
		*slept = SLEPT_UNTIL_WOKEN; /* a lease has run out */
	return rc;
}

/* A grant that we have been told of becomes ours by a renewal.  *g is set if it did. */
static enum rc
confirm(struct pg *pg, struct place *p, struct grant *g, struct fault *f)
{
	instant now = instant_now();
	enum rc rc;

	take(pg, p->token, now, g);
	rc = lease_renew(pg, now + ASK_PATIENCE, g, f);
	p->code = rc == RC_OK;
	pg->held = rc == RC_OK;
	return rc == RC_LOST ? RC_OK : rc; /* it came too late: ask */
}

static bool
is_settled(struct pg *pg, const struct place *p)
{
	return pg->direct && p->ahead && pg->session.conn && pg->serial == pg->session.serial;
}

/*
 * Returns when there is reason to ask, or with a grant.  A lock that was free is
 * worth one question at once, for its owner may just have gone; if the same one
 * is before us still, it has lost its session, and must be asked about now and then.
 */
static enum rc
attend(struct pg *pg, struct place *p, int64_t *was_free, instant until, struct grant *g, struct fault *f)
{
	enum slept slept = SLEPT_IN_VAIN;
	enum rc rc = RC_OK;

	if (!is_settled(pg, p) || *was_free == p->ahead) {
		*was_free = 0;
		return sleep_here(pg, next_question(pg, p), until, f);
	}
	p->token = 0;
	while (rc == RC_OK && slept == SLEPT_IN_VAIN && p->token == 0)
		rc = sleep_there(pg, p, until, &slept, f);
	*was_free = slept == SLEPT_NOT ? p->ahead : 0;
	if (session_said(&pg->session, "57014"))
		return RC_OK; /* somebody has cancelled our sleep */
	return rc == RC_OK && p->token ? confirm(pg, p, g, f) : rc;
}

/*
 * We are in the queue: sleep, ask, until we are granted.  When a connection has
 * broken, so may have those of a thousand others: no attempt before its turn.
 */
static enum rc
wait_in_queue(struct pg *pg, instant until, struct grant *g, struct place *p, struct fault *f)
{
	int64_t was_free = 0;
	enum rc rc = RC_OK;

	while (rc == RC_OK && !is_granted(p)) {
		rc = pg->session.conn ? attend(pg, p, &was_free, until, g, f) : RC_OK;
		if (rc == RC_OK && !is_granted(p))
			rc = ask(pg, ALIVE_MS, instant_now() + ASK_PATIENCE, g, p, f);
		if (rc == RC_OK)
			patience_end_outage(&pg->patience);
		else
			rc = pg_try_again(pg, rc, true, until);
	}
	return rc;
}

static enum rc
ask_first(struct pg *pg, const char *alive_ms, instant until, struct grant *g, struct place *p, struct fault *f)
{
	enum rc rc = pg->among ? RC_OK : take_free(pg, until, g, p, f);

	return rc == RC_OK && pg->among ? ask(pg, alive_ms, until, g, p, f) : rc;
}

static enum rc
lease_acquire(struct pg *pg, instant until, struct grant *g, struct fault *f)
{
	instant first_by = patience_first(&pg->patience, until);
	struct place p = {.code = 0};
	enum rc rc, next;

	pg->among = pg->claim->kind != KIND_EXCLUSIVE; /* take() is for mutexes */
	do {
		rc = ask_first(pg, until ? ALIVE_MS : "0", pg_attempt_ends(pg, first_by), g, &p, f);
		next = rc == RC_AGAIN && until ? pg_try_again(pg, rc, false, first_by) : rc;
	} while (rc == RC_AGAIN && next == RC_OK);
	if (rc == RC_AGAIN)
		rc = next;
	patience_end_outage(&pg->patience);
	if (rc == RC_OK && !is_granted(&p)) {
		if (until)
			rc = wait_in_queue(pg, until, g, &p, f);
		else
			rc = fault_set(f, RC_BUSY, "%s: held", pg->session.where);
	}
	if (rc == RC_BUSY && !until)
		pg->asked = false; /* who does not queue leaves nothing */
	return rc;
}

/* ---- renew and release ---- */

static enum rc
not_ours(struct pg *pg, struct fault *f)
{
	return fault_set(f, RC_LOST,
	    "%s no longer has it as ours: it expired, was deleted, or the server lost its data",
	    pg->session.where);
}

static enum rc
lease_renew(struct pg *pg, instant until, struct grant *g, struct fault *f)
{
	const struct claim *c = pg->claim;
	char token[24];
	const char *values[] = {c->key, c->owner, token, pg->lease_ms, pg->pid, pg->take};
	const struct question q = {
	    "SELECT code, wakes FROM dlock.renew($1, $2, $3, $4, $5, $6)", 6, values, note_session, pg};
	int64_t code = -1;
	PGresult *r;
	instant sent;
	enum rc rc;

	snprintf(token, sizeof token, "%" PRIu64, pg->token);
	rc = session_ask(&pg->session, &q, true, 2, until, &sent, &r, f);
	if (rc != RC_OK)
		return pg_is_missing(pg) ? not_ours(pg, f)
		       : rc == RC_STOP   ? RC_STOP
					 : RC_AGAIN; /* a table dropped is a lock lost */
	note_wake_lock(pg, r, 1);
	if (!field_integer(&pg->session, r, 0, 0, 2, &code))
		rc = fault_set(
		    f, RC_AGAIN, "%s gave an answer that dlock's functions do not give", pg->session.where);
	pg->session.pq->clear(r);
	if (code == 0)
		return not_ours(pg, f);
	if (code == 1) {
		g->sent = sent;
		g->lease = c->ttl;
	}
	return rc;
}

/* Reads what release() said: 1 held until now, 2 waited, 0 neither. */
static enum rc
read_release(struct pg *pg, const PGresult *r, struct fault *f)
{
	int64_t code;

	if (!field_integer(&pg->session, r, 0, 0, 2, &code))
		return fault_set(
		    f, RC_AGAIN, "%s gave an answer that dlock's functions do not give", pg->session.where);
	if (code == 0 && pg->held && (pg->session.repeated || pg->unsure))
		return fault_set(
		    f, RC_AGAIN, "%s closed the connection before it answered", pg->session.where);
	if (code == 0 && pg->held)
		return not_ours(pg, f);
	return RC_OK;
}

static enum rc
lease_release(struct pg *pg, instant until, struct fault *f)
{
	const struct claim *c = pg->claim;
	const char *values[] = {c->key, c->owner, pg->give};
	struct question q = {"SELECT dlock.release($1, $2, $3)", 3, values, note_session, pg};
	bool old_sessions;
	PGresult *r;
	instant sent;
	enum rc rc;

	if (!pg->asked)
		return RC_OK;
	old_sessions = pg->abandoned || (!session_is_open(&pg->session) && pg->wakes);
	if (old_sessions)
		q.sql = "SELECT dlock.release($1, $2, $3), dlock.end_old_sessions($2)";
	else if (pg->among)
		q.sql = "SELECT dlock.release_among($1, $2, $3)";
	rc = session_ask(&pg->session, &q, true, old_sessions ? 2 : 1, until, &sent, &r, f);
	if (rc != RC_OK) {
		pg->unsure = true;
		return pg_is_missing(pg) ? (pg->held ? not_ours(pg, f) : RC_OK) : rc;
	}
	rc = read_release(pg, r, f);
	pg->session.pq->clear(r);
	if (rc == RC_OK || rc == RC_LOST)
		pg->asked = pg->held = false;
	pg->wakes = false;
	return rc;
}

const struct mode lease_mode = {
    .name = "lease",
    .caps = CAP_FAIR | CAP_DURABLE,
    .acquire = lease_acquire,
    .renew = lease_renew,
    .release = lease_release,
};
