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
 *  3. A waiter on a direct connection sleeps in the server, on the advisory
 *     lock (the bell) of who is next before it, in chunks of CHUNK: a sleeping
 *     statement keeps a snapshot, for which CREATE INDEX CONCURRENTLY waits.
 *     A release wakes one waiter, whoever else there is.  Where the bell is
 *     free although its owner has not gone, that one has no session at the
 *     moment, or a pooler before it: then we ask now and then.
 *  4. Behind a pooler (our server process is not the one that we were told of)
 *     nothing is kept in a session: waiters ask now and then, the first in
 *     line more often.
 *  5. A waiter that has been granted asks once more: that request earns the
 *     lease.  Asking is also the sign of life, which counts for ALIVE.
 *
 * Why bells, and not LISTEN and NOTIFY: with 200 waiters for one key, a hand-off
 * (release sent to grant received) took 4.4 ms and 3.3 ms of the server's
 * processors with bells, 8.2 ms and 7.3 ms with a private channel for each
 * waiter.  A NOTIFY makes every listening session of the database run, so its
 * cost grows with the queue, and commits that notify take turns in the cluster.
 */
#include "pg.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHUNK (2500 * NS_PER_MS) /* so long a waiter sleeps in the server: less than a grant waits for it */
#define ALIVE_MS "9000"          /* and counts as alive: two beats may be lost */
#define POLL                                                                                               \
	(200 * NS_PER_MS) /* without bells the first in line asks so often, the second half as often, */
#define POLL_MAX (2 * NS_PER_S) /* but all well within the 3 s of a grant that nobody tells them of */

#define BELIEVED                                                                                           \
	INT64_C(1000000000) /* a place, or ms, that a server may tell of: what is reckoned with them fits */

/* What acquire() said. */
struct place {
	int64_t code, token, place, left_ms, held_ms, ahead;
};

enum rang { RANG_IN_VAIN, RANG, RANG_FREE };

/* ---- one question, one answer ---- */

/* Has the session got its bell?  NULL: it was not to take it. */
static void
note_bell(struct pg *pg, const PGresult *r, int field)
{
	bool rings;

	if (field_boolean(&pg->session, r, field, &rings))
		pg->rings = pg->rings || rings;
}

static bool
read_place(struct pg *pg, const PGresult *r, struct place *p)
{
	const struct session *s = &pg->session;
	struct host *host = pg->base.host;

	if (!field_integer(s, r, 0, -1, 1, &p->code) || !field_boolean(s, r, 7, &pg->direct))
		return false;
	note_bell(pg, r, 8);
	if (p->code != 0)
		return p->code < 0 || field_integer(s, r, 1, 1, INT64_MAX, &p->token);
	if (!field_integer(s, r, 2, 1, INT64_MAX, &p->place))
		return false;
	if (!field_integer(s, r, 3, 0, INT64_MAX, &p->left_ms))
		p->left_ms = 0; /* nobody holds: the first in line has not come for it yet */
	if (!field_integer(s, r, 4, 0, INT64_MAX, &p->held_ms) ||
	    !field_text(s, r, 5, host->seen.holder, sizeof host->seen.holder)) {
		p->held_ms = -1;
		host->seen.holder[0] = '\0';
	}
	if (!field_integer(s, r, 6, INT64_MIN, INT64_MAX, &p->ahead))
		p->ahead = 0;
	p->place = p->place < BELIEVED ? p->place : BELIEVED;
	p->left_ms = p->left_ms < BELIEVED ? p->left_ms : BELIEVED;
	p->held_ms = p->held_ms < BELIEVED * 1000 ? p->held_ms : BELIEVED * 1000;
	return true;
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
	uint64_t bell;

	snprintf(first_half, sizeof first_half, "%.16s", pg->want->owner);
	if (pg->serial != pg->session.serial) {
		pg->abandoned = pg->abandoned || pg->rings;
		pg->rings = pg->direct = false;
		pg->serial = pg->session.serial;
	}
	pg->asked = true;
	snprintf(pg->pid, sizeof pg->pid, "%d", pg->session.pq->backendPID(pg->session.conn));
	bell = strtoull(first_half, NULL, 16);
	snprintf(pg->rings ? pg->give : pg->take, sizeof pg->give, "%" PRId64, (int64_t)bell);
	snprintf(pg->rings ? pg->take : pg->give, sizeof pg->take, "0");
}

/* ---- acquire ---- */

static bool
is_granted(const struct place *p)
{
	return p->code == 1;
}

static void
show_place(struct pg *pg, const struct place *p)
{
	pg->base.host->seen.position = p->place;
	pg->base.host->seen.held = p->held_ms < 0 ? -1 : p->held_ms * NS_PER_MS;
}

/* It is ours: by the request that left at `sent`. */
static void
take(struct pg *pg, int64_t token, instant sent, struct grant *g)
{
	pg->held = true;
	pg->token = token;
	*g = (struct grant){.tokens = {token}, .sent = sent, .lease = pg->want->ttl, .anchor = -1};
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
grab(struct pg *pg, instant until, struct grant *g, struct place *p, struct fault *f)
{
	const struct want *w = pg->want;
	char lease[32];
	const char *values[] = {
	    w->keys[0], w->owner, w->record, lease, pg->weight, pg->capacity, pg->pid, pg->take};
	const struct question q = {
	    "SELECT granted, direct, rings FROM dlock.grab($1, $2, $3, $4, $5, $6, $7, $8)",
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
		note_bell(pg, r, 2);
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
	const struct want *w = pg->want;
	const char *values[] = {w->keys[0], w->owner, w->record, pg->lease_ms, alive_ms, pg->weight,
	    pg->capacity, pg->pid, pg->take};
	const struct question q = {
	    "SELECT code, granted, place, left_ms, held_ms, holder, ahead, direct, rings "
	    "FROM dlock.acquire($1, $2, $3, $4, $5, $6, $7, $8, $9)",
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
	else
		show_place(pg, p);
	pg->session.pq->clear(r);
	return rc;
}

/* When to ask again where no bell will tell us. */
static instant
next_beat(struct pg *pg, const struct place *p)
{
	/* A few bits of the owner and a counter: enough to keep a thousand waiters from asking in step. */
	int64_t pause = p->place * POLL < POLL_MAX ? p->place * POLL : POLL_MAX;
	int64_t jitter = pause / 32 * (pg->want->owner[pg->beats++ % OWNER_CHARS] % 16);
	instant now = instant_now(), beat = now + pause * 3 / 4 + jitter;

	if (p->place == 1 && p->left_ms > 0)
		beat = instant_first(beat, now + (p->left_ms + 5) * NS_PER_MS);
	return beat;
}

/* Sleeps here.  RC_BUSY: `until` has come. */
static enum rc
sleep_here(struct pg *pg, instant beat, instant until, struct fault *f)
{
	struct host *host = pg->base.host;

	if (host->wait(host, -1, 0, instant_first(beat, until)) == WOKE_STOP)
		return RC_STOP;
	return instant_now() >= until ? fault_set(f, RC_BUSY, "%s: still held", pg->session.where) : RC_OK;
}

/* Sleeps in the server until the bell before us rings; the first in line also for the end of a lease. */
static enum rc
sleep_there(struct pg *pg, const struct place *p, instant until, enum rang *rang, struct fault *f)
{
	char bell[24], ms[24];
	const char *values[] = {bell, ms};
	const struct question q = {"SELECT dlock.await($1, $2)", 2, values, NULL, NULL};
	instant now = instant_now(), wake = instant_first(now + CHUNK, until), sent;
	int64_t answer;
	PGresult *r;
	enum rc rc;

	if (p->place == 1 && p->left_ms > 0)
		wake = instant_first(wake, now + (p->left_ms + 5) * NS_PER_MS);
	snprintf(bell, sizeof bell, "%" PRId64, p->ahead);
	snprintf(ms, sizeof ms, "%" PRId64, wake > now ? ns_to_ms(wake - now) : 1);
	rc = session_ask(&pg->session, &q, false, 1, wake + ASK_LEAST, &sent, &r, f);
	if (rc == RC_AGAIN)
		return RC_OK; /* asking will show whether that is an outage */
	if (rc == RC_STOP)
		return rc;
	if (rc != RC_OK)
		return session_said(&pg->session, "57014") ? RC_OK : rc;
	*rang = field_integer(&pg->session, r, 0, RANG_IN_VAIN, RANG_FREE, &answer) ? (enum rang)answer : RANG_IN_VAIN;
	pg->session.pq->clear(r);
	if (*rang == RANG_IN_VAIN && instant_now() >= until)
		return fault_set(f, RC_BUSY, "%s: still held", pg->session.where);
	return RC_OK;
}

/*
 * Returns when there is reason to ask.  A bell that was free is worth one
 * question at once, for its owner may just have gone; if the same one is before
 * us still, it has lost its session, and must be asked about now and then.
 */
static enum rc
attend(struct pg *pg, const struct place *p, int64_t *deaf, instant until, struct fault *f)
{
	enum rang rang = RANG_IN_VAIN;
	enum rc rc;

	if (!pg->direct || !p->ahead || !pg->session.conn || *deaf == p->ahead) {
		*deaf = 0;
		return sleep_here(pg, next_beat(pg, p), until, f);
	}
	rc = sleep_there(pg, p, until, &rang, f);
	*deaf = rang == RANG_FREE ? p->ahead : 0;
	return rc;
}

/* We are in the queue: sleep, ask, until we are granted. */
static enum rc
wait_in_queue(struct pg *pg, instant until, struct grant *g, struct place *p, struct fault *f)
{
	int64_t deaf = 0;
	enum rc rc = RC_OK;

	while (rc == RC_OK && !is_granted(p)) {
		rc = attend(pg, p, &deaf, until, f);
		if (rc == RC_OK)
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
	enum rc rc = pg->among ? RC_OK : grab(pg, until, g, p, f);

	return rc == RC_OK && pg->among ? ask(pg, alive_ms, until, g, p, f) : rc;
}

static enum rc
lease_acquire(struct pg *pg, instant until, struct grant *g, struct fault *f)
{
	instant first_by = patience_first(&pg->patience, until);
	struct place p;
	enum rc rc, next;

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
	const struct want *w = pg->want;
	char token[24];
	const char *values[] = {w->keys[0], w->owner, token, pg->lease_ms, pg->pid, pg->take};
	const struct question q = {
	    "SELECT code, rings FROM dlock.renew($1, $2, $3, $4, $5, $6)", 6, values, note_session, pg};
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
	note_bell(pg, r, 1);
	if (!field_integer(&pg->session, r, 0, 0, 2, &code))
		rc = fault_set(
		    f, RC_AGAIN, "%s gave an answer that dlock's functions do not give", pg->session.where);
	pg->session.pq->clear(r);
	if (code == 0)
		return not_ours(pg, f);
	if (code == 1) {
		g->sent = sent;
		g->lease = w->ttl;
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
	const struct want *w = pg->want;
	const char *values[] = {w->keys[0], w->owner, pg->give};
	struct question q = {"SELECT dlock.release($1, $2, $3)", 3, values, note_session, pg};
	PGresult *r;
	instant sent;
	enum rc rc;

	if (!pg->asked)
		return RC_OK;
	if (pg->abandoned || (!session_is_open(&pg->session) && pg->rings))
		q.sql = "SELECT dlock.release($1, $2, $3), dlock.hush($2)";
	rc = session_ask(&pg->session, &q, true, 1 + (strstr(q.sql, "hush") != NULL), until, &sent, &r, f);
	if (rc != RC_OK) {
		pg->unsure = true;
		return pg_is_missing(pg) ? (pg->held ? not_ours(pg, f) : RC_OK) : rc;
	}
	rc = read_release(pg, r, f);
	pg->session.pq->clear(r);
	if (rc == RC_OK || rc == RC_LOST)
		pg->asked = pg->held = false;
	pg->rings = false;
	return rc;
}

const struct mode lease_mode = {
    .name = "lease",
    .acquire = lease_acquire,
    .renew = lease_renew,
    .release = lease_release,
};
