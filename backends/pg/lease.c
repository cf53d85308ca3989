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

#include "backends/refuse.h"
#include "backends/kind.h"

#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHUNK (10 * NS_PER_S) /* so long a waiter sleeps in the server */
/* and the first in line: less than a grant waits for it */
#define CHUNK_FIRST (2500 * NS_PER_MS)
/* one behind a pooler counts as alive: two questions may be lost */
#define ALIVE_MS "9000"
/* without locks the first in line asks so often, the second half as often, */
#define POLL (200 * NS_PER_MS)
/* but all well within the 3 s of a grant that nobody tells them of */
#define POLL_MAX (2 * NS_PER_S)

/* a place, or ms, that a server may tell of: what is reckoned with them fits */
#define BELIEVED INT64_C(1000000000)

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
	bool asked;  /* the server may know of us */
	bool held;   /* it has said that we hold */
	bool unsure; /* a release went unanswered: it may be done */
	/* somebody else may have to do with the key: enter_queue(), not take_unclaimed() */
	bool among;
	uint64_t token;
	struct lease_session session;
	struct wake_lock wake;
	unsigned jitter; /* counts what must not be done in step with others */
};

static struct lease *
lease_of(const struct pg *pg)
{
	return pg_own(pg, &lease_mode);
}

/* What enter_queue() said, or await(). */
struct place {
	int64_t code, token, slot, place, left_ms, held_ms, ahead;
	bool next;      /* the end of the lease of who holds is ours to notice */
	bool listening; /* a notification will come */
};

/* The columns of both, as far as they agree. */
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
	NEXT
};

/* And those that only one of them has. */
enum { AWAIT_WAKES = NEXT + 1, AWAIT_FIELDS };
enum {
	AHEAD = NEXT + 1,
	LISTENING,
	DIRECT,
	WAKES,
	DONE_BY,
	BEGAN_MS,
	AGE_MS,
	WHO,
	JOIN_FIELDS
};

enum slept { SLEPT_IN_VAIN, SLEPT_UNTIL_WOKEN, SLEPT_NOT };

/* ---- one question, one answer ---- */

/* Has the session got its wake-up lock?  NULL: it was not to take it. */
static void
note_wake_lock(struct pg *pg, const PGresult *r, int field)
{
	struct lease *l = lease_of(pg);
	bool wakes;

	if (field_boolean(pg->conn.pq, r, field, &wakes))
		l->wake.taken = l->wake.taken || wakes;
}

/* The kind of those who hold, or are in our way; false: no kind that we know. */
static bool
read_kind(struct pg *pg, const PGresult *r, enum lock_kind *kind, unsigned *limit)
{
	const struct pq *pq = pg->conn.pq;
	int64_t room;
	char word[16];

	if (!field_text(pq, r, HELD_KIND, word, sizeof word) ||
	    !field_integer(pq, r, HELD_ROOM, 0, LIMIT_MAX, &room))
		return false;
	*limit = room;
	return kind_of_word(word, kind);
}

/* Has nobody got it but a freeze? */
static bool
is_frozen(const struct pg *pg, const PGresult *r)
{
	char word[16];

	return field_text(pg->conn.pq, r, HELD_KIND, word, sizeof word) &&
	    strcmp(word, KIND_WORD_FREEZE) == 0;
}

/* Who holds, or has frozen it, for people.  It may be nobody. */
static void
lease_see_holders(struct pg *pg, const PGresult *r, int64_t held_ms)
{
	const struct pq *pq = pg->conn.pq;
	struct host *host = pg->base.host;
	int64_t holders;

	host->seen.held = held_ms < 0 ? -1 : held_ms * NS_PER_MS;
	if (held_ms < 0)
		host->seen.holder[0] = '\0';
	if (!field_integer(pq, r, HOLDERS, 0, BELIEVED, &holders) ||
	    !read_kind(pg, r, &host->seen.kind, &host->seen.limit)) {
		host->seen.kind = KIND_EXCLUSIVE;
		host->seen.limit = holders = 0;
	}
	host->seen.holders = holders;
	host->seen.frozen = is_frozen(pg, r);
}

/* Where we are in the queue. */
static bool
read_where(struct pg *pg, const PGresult *r, struct place *p)
{
	const struct pq *pq = pg->conn.pq;
	struct host *host = pg->base.host;

	if (!field_integer(pq, r, PLACE, 1, BELIEVED, &p->place) ||
	    !field_boolean(pq, r, NEXT, &p->next))
		return false;
	if (!field_integer(pq, r, LEFT_MS, 0, BELIEVED, &p->left_ms))
		/* nobody holds: the first in line has not come for it yet */
		p->left_ms = 0;
	if (!field_integer(pq, r, HELD_MS, 0, BELIEVED * 1000, &p->held_ms) ||
	    !field_text(pq, r, HOLDER, host->seen.holder, sizeof host->seen.holder))
		p->held_ms = -1;
	host->seen.position = p->place;
	lease_see_holders(pg, r, p->held_ms);
	return true;
}

/* The token of a grant and, of a limited one, the slot; false: none that make sense. */
static bool
read_grant(struct pg *pg, const PGresult *r, struct place *p)
{
	const struct claim *claim = pg->claim;
	unsigned slots = claim->kind == KIND_LIMIT ? claim->limit : 1;

	return field_integer(pg->conn.pq, r, TOKEN, 1, INT64_MAX, &p->token) &&
	    field_integer(pg->conn.pq, r, SLOT, 0, slots - 1, &p->slot);
}

enum { IN_USE = -1, QUEUED, GRANTED, DONE };

/* What enter_queue() says. */
static bool
read_place(struct pg *pg, const PGresult *r, struct place *p)
{
	struct lease *l = lease_of(pg);
	const struct pq *pq = pg->conn.pq;

	if (!field_integer(pq, r, CODE, IN_USE, DONE, &p->code) ||
	    !field_boolean(pq, r, DIRECT, &l->session.direct))
		return false;
	note_wake_lock(pg, r, WAKES);
	if (p->code == GRANTED)
		return read_grant(pg, r, p);
	if (p->code != QUEUED)
		return true;
	if (!field_integer(pq, r, AHEAD, INT64_MIN, INT64_MAX, &p->ahead))
		p->ahead = 0;
	return field_boolean(pq, r, LISTENING, &p->listening) && read_where(pg, r, p);
}

/*
 * Our wake-up lock is for as long as we wait and, with an exclusive lock, hold:
 * what comes behind another holder waits for no single one of them.
 */
static bool
wants_wake_lock(const struct pg *pg)
{
	return kind_is_exclusive(pg->claim->kind) || !lease_of(pg)->held;
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
	l->asked = true;
	snprintf(l->session.pid, sizeof l->session.pid, "%d",
	    pg->conn.pq->backendPID(pg->conn.pgconn));
	snprintf(l->wake.take, sizeof l->wake.take, "0");
	snprintf(l->wake.give, sizeof l->wake.give, "0");
	if (l->wake.taken || wants_wake_lock(pg))
		snprintf(l->wake.taken ? l->wake.give : l->wake.take, sizeof l->wake.give,
		    "%" PRId64, own_wake_lock(pg));
}

static enum rc lease_renew(struct pg *, instant until, struct grant *, struct fault *);
static enum rc lease_release(struct pg *, int status, instant until, struct fault *);

/* ---- acquire ---- */

static bool
is_granted(const struct place *p)
{
	return p->code == GRANTED;
}

/* It is ours: by the request that left at `sent`. */
static void
note_granted(struct pg *pg, const struct place *p, instant sent, struct grant *g)
{
	struct lease *l = lease_of(pg);

	l->held = true;
	l->token = p->token;
	if (!wants_wake_lock(pg))
		l->wake.taken = false; /* the server has given it back */
	*g = (struct grant){.token = p->token,
	    .slot = p->slot,
	    .sent = sent,
	    .lease = pg->claim->ttl,
	    .anchor = -1};
}

/* Nothing that comes over this connection is believed any more. */
static enum rc
refuse_answer(struct pg *pg, struct fault *f)
{
	connection_close(&pg->conn);
	return pg_makes_no_sense(pg, RC_PROTOCOL, f);
}

/*
 * The first question of all: is there nobody?  Otherwise *p says that we wait, and
 * nothing else.
 */
static enum rc
take_unclaimed(
    struct pg *pg, instant until, struct grant *g, struct place *p, struct fault *f)
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
	const struct pq *pq = pg->conn.pq;
	PGresult *r;
	instant sent;
	enum rc rc;

	snprintf(lease, sizeof lease, "%s ms", pg->lease_ms);
	rc = pg_ask(pg, &q, 3, until, &sent, &r, f);
	if (rc != RC_OK)
		return rc;
	*p = (struct place){.code = QUEUED};
	if (pq->getisnull(r, 0, 0)) {
		l->among = true;
	} else if (field_integer(pq, r, 0, 1, INT64_MAX, &p->token) &&
	    field_boolean(pq, r, 1, &l->session.direct)) {
		note_wake_lock(pg, r, 2);
		p->code = GRANTED;
		note_granted(pg, p, sent, g);
	} else {
		rc = refuse_answer(pg, f);
	}
	pq->clear(r);
	return rc;
}

/* Another kind is in use: which one. */
static enum rc
refuse_ours(struct pg *pg, const PGresult *r, struct fault *f)
{
	enum lock_kind kind;
	unsigned limit;

	if (!read_kind(pg, r, &kind, &limit))
		return refuse_answer(pg, f);
	return refuse_kind(f, pg->conn.where, kind, limit, pg->claim);
}

/* The job has been done: when, and by whom. */
static enum rc
tell_done(struct pg *pg, const PGresult *r, struct fault *f)
{
	const struct pq *pq = pg->conn.pq;
	const struct job *job = &pg->claim->job;
	int64_t began_ms, age_ms;
	char by[16], who[128];

	if (pq->getisnull(r, 0, TOKEN))
		lease_of(pg)->asked = false; /* it has nothing of ours */
	if (!field_text(pq, r, DONE_BY, by, sizeof by) ||
	    !field_integer(pq, r, AGE_MS, 0, INT64_MAX / NS_PER_MS, &age_ms))
		return refuse_answer(pg, f);
	if (strcmp(by, "cooldown") == 0)
		return refuse_recent(f, job, age_ms * NS_PER_MS);
	if (!job->once ||
	    !field_integer(pq, r, BEGAN_MS, 0, INT64_MAX / NS_PER_MS, &began_ms))
		return refuse_answer(pg, f);
	if (!field_text(pq, r, WHO, who, sizeof who))
		who[0] = '\0';
	return refuse_done(f, job, began_ms, who);
}

/* What enter_queue() has brought; a grant is by the request that left at `sent`. */
static enum rc
take_answer(struct pg *pg, const PGresult *r, instant sent, struct grant *g,
    struct place *p, struct fault *f)
{
	if (!read_place(pg, r, p))
		return refuse_answer(pg, f);
	if (p->code == IN_USE)
		return refuse_ours(pg, r, f);
	if (p->code == DONE)
		return tell_done(pg, r, f);
	if (is_granted(p))
		note_granted(pg, p, sent, g);
	return RC_OK;
}

/* Asks for the lock, or for our place in the queue; `alive_ms` "0": do not queue. */
static enum rc
ask_for_place(struct pg *pg, const char *alive_ms, instant until, struct grant *g,
    struct place *p, struct fault *f)
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
	PGresult *r;
	instant sent;
	enum rc rc;

	snprintf(room, sizeof room, "%u", claim->kind == KIND_LIMIT ? claim->limit : 0);
	snprintf(
	    cooldown_ms, sizeof cooldown_ms, "%" PRId64, ns_to_ms(claim->job.cooldown));
	rc = pg_ask(pg, &q, JOIN_FIELDS, until, &sent, &r, f);
	if (rc != RC_OK)
		return rc;
	rc = take_answer(pg, r, sent, g, p, f);
	pg->conn.pq->clear(r);
	return rc;
}

/* Is the end of the holder's lease ours to notice? */
static bool
concerns_us(const struct place *p)
{
	return p->next || p->place == 1;
}

/* When to ask again where no lock will tell us. */
static instant
next_question(struct pg *pg, const struct place *p)
{
	struct lease *l = lease_of(pg);
	/*
	 * A few bits of the owner and a counter: enough to keep a thousand waiters from
	 * asking in step.
	 */
	int64_t pause = p->place * POLL < POLL_MAX ? p->place * POLL : POLL_MAX;
	int64_t jitter = pause / 32 * (pg->claim->owner[l->jitter++ % OWNER_CHARS] % 16);
	instant now = instant_now(), ask_at = now + pause * 3 / 4 + jitter;

	if (concerns_us(p) && p->left_ms > 0)
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
	return instant_now() >= until
	    ? fault_set(f, RC_BUSY, "%s: still held", pg->conn.where)
	    : RC_OK;
}

/*
 * So long one sleep in the server is.  Whoever is before us may become the holder
 * meanwhile and be cut off: so less than a lease.  And not in step with others.
 */
static int64_t
next_chunk(struct pg *pg, const struct place *p)
{
	struct lease *l = lease_of(pg);
	int64_t most = pg->claim->ttl / 2 < CHUNK ? pg->claim->ttl / 2 : CHUNK;

	if ((p->place == 1 || !l->wake.taken) && most > CHUNK_FIRST)
		return CHUNK_FIRST;
	return most - most / 64 * (pg->claim->owner[l->jitter++ % OWNER_CHARS] % 16);
}

/*
 * What await() has brought: whether we were woken; the token of a grant, else 0; where
 * we are, if that is told.
 */
static enum rc
read_sleep(
    struct pg *pg, const PGresult *r, struct place *p, enum slept *slept, struct fault *f)
{
	int64_t code;

	if (!field_integer(pg->conn.pq, r, CODE, SLEPT_IN_VAIN, SLEPT_NOT, &code))
		return refuse_answer(pg, f);
	*slept = (enum slept)code;
	note_wake_lock(pg, r, AWAIT_WAKES);
	if (!read_grant(pg, r, p))
		p->token = 0;
	if (p->token == 0 && *slept == SLEPT_IN_VAIN && !read_where(pg, r, p))
		*slept = SLEPT_UNTIL_WOKEN; /* we are no longer known: ask */
	return RC_OK;
}

/* After a sleep in vain: is there reason to ask nevertheless? */
static bool
is_reason_to_ask(const struct place *p)
{
	if (concerns_us(p) && p->left_ms == 0)
		return true; /* a lease has run out */
	/* whom we sleep behind holds beside others, or is passed over */
	return p->place == 1 && !p->next;
}

/*
 * Sleeps in the server until the one before us has gone; the first in line also for the
 * end of a lease.
 */
static enum rc
sleep_there(
    struct pg *pg, struct place *p, instant until, enum slept *slept, struct fault *f)
{
	struct lease *l = lease_of(pg);
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
	instant now = instant_now(), wake = instant_first(now + next_chunk(pg, p), until),
		sent;
	PGresult *r;
	enum rc rc;

	if (concerns_us(p) && p->left_ms > 0)
		wake = instant_first(wake, now + (p->left_ms + 5) * NS_PER_MS);
	snprintf(ahead, sizeof ahead, "%" PRId64, p->ahead);
	snprintf(ms, sizeof ms, "%" PRId64, wake > now ? ns_to_ms(wake - now) : 1);
	rc = ask_here(&pg->conn, &q, AWAIT_FIELDS, wake + ASK_PATIENCE, &sent, &r, f);
	if (rc != RC_OK)
		return rc;
	l->session.rehearsed = true;
	rc = read_sleep(pg, r, p, slept, f);
	pg->conn.pq->clear(r);
	if (rc == RC_OK && *slept == SLEPT_IN_VAIN && p->token == 0 &&
	    instant_now() >= until)
		return fault_set(f, RC_BUSY, "%s: still held", pg->conn.where);
	if (rc == RC_OK && *slept == SLEPT_IN_VAIN && p->token == 0 &&
	    is_reason_to_ask(p))
		*slept = SLEPT_UNTIL_WOKEN;
	return rc;
}

/* A grant that we have been told of becomes ours by a renewal.  *g is set if it did. */
static enum rc
confirm_lease(struct pg *pg, struct place *p, struct grant *g, struct fault *f)
{
	struct lease *l = lease_of(pg);
	instant now = instant_now();
	enum rc rc;

	note_granted(pg, p, now, g);
	rc = lease_renew(pg, now + ASK_PATIENCE, g, f);
	if (rc == RC_REVOKED)
		rc = RC_OK; /* the next renewal will say so again */
	p->code = rc == RC_OK ? GRANTED : QUEUED;
	l->held = rc == RC_OK;
	return rc == RC_LOST ? RC_OK : rc; /* it came too late: ask */
}

/* Sleeps until a notification comes (*notified), or a lease ends, or `until`. */
static enum rc
listen(struct pg *pg, const struct place *p, instant until, bool *notified)
{
	struct host *host = pg->base.host;
	instant now = instant_now(), wake = instant_first(now + next_chunk(pg, p), until);

	if (p->left_ms > 0)
		wake = instant_first(wake, now + (p->left_ms + 5) * NS_PER_MS);
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
listen_for_grant(struct pg *pg, struct place *p, instant until, struct fault *f)
{
	enum slept slept = SLEPT_IN_VAIN;
	bool notified;
	enum rc rc = listen(pg, p, until, &notified);

	if (rc == RC_OK && notified && may_look(pg)) {
		p->ahead = own_wake_lock(pg);
		rc = sleep_there(pg, p, until, &slept, f);
	}
	return rc == RC_OK && p->token == 0 && instant_now() >= until
	    ? fault_set(f, RC_BUSY, "%s: still held", pg->conn.where)
	    : rc;
}

/* Is the session the one over which we were told to listen? */
static bool
is_listening(struct pg *pg, const struct place *p)
{
	return p->listening && pg->conn.pgconn &&
	    lease_of(pg)->session.serial == pg->conn.serial;
}

static bool
has_direct_session(struct pg *pg, const struct place *p)
{
	struct lease *l = lease_of(pg);

	return l->session.direct && p->ahead && pg->conn.pgconn &&
	    l->session.serial == pg->conn.serial;
}

/*
 * Returns when there is reason to ask, or with a grant.  A lock that was free is
 * worth one question at once, for its owner may just have gone; if the same one
 * is before us still, it has lost its session, and must be asked about now and then.
 */
static enum rc
wait_for_turn(struct pg *pg, struct place *p, int64_t *was_free, instant until,
    struct grant *g, struct fault *f)
{
	enum slept slept = SLEPT_IN_VAIN;
	enum rc rc = RC_OK;

	p->token = 0;
	if (is_listening(pg, p)) {
		*was_free = 0;
		rc = listen_for_grant(pg, p, until, f);
	} else if (!has_direct_session(pg, p) || *was_free == p->ahead) {
		*was_free = 0;
		rc = sleep_here(pg, next_question(pg, p), until, f);
	} else {
		while (rc == RC_OK && slept == SLEPT_IN_VAIN && p->token == 0)
			rc = sleep_there(pg, p, until, &slept, f);
		*was_free = slept == SLEPT_NOT ? p->ahead : 0;
	}
	if (said_state(&pg->conn, "57014"))
		return RC_OK; /* somebody has cancelled our sleep */
	if (rc != RC_OK || !p->token || job_is_wanted(&pg->claim->job))
		return rc;
	return confirm_lease(pg, p, g, f);
}

/*
 * We are in the queue: sleep, ask, until we are granted.  When a connection has
 * broken, so may have those of a thousand others: no attempt before its turn.
 */
static enum rc
wait_for_lease(
    struct pg *pg, instant until, struct grant *g, struct place *p, struct fault *f)
{
	int64_t was_free = 0;
	enum rc rc = RC_OK;

	while (rc == RC_OK && !is_granted(p)) {
		rc = pg->conn.pgconn ? wait_for_turn(pg, p, &was_free, until, g, f)
				     : RC_OK;
		if (rc == RC_OK && !is_granted(p))
			rc = ask_for_place(
			    pg, ALIVE_MS, instant_now() + ASK_PATIENCE, g, p, f);
		if (rc == RC_OK)
			patience_end_outage(&pg->patience);
		else
			rc = pg_try_again(pg, rc, true, until);
	}
	return rc;
}

static enum rc
ask_first(struct pg *pg, const char *alive_ms, instant until, struct grant *g,
    struct place *p, struct fault *f)
{
	struct lease *l = lease_of(pg);
	bool asked_before = l->asked;
	enum rc rc = l->among ? RC_OK : take_unclaimed(pg, until, g, p, f);

	if (rc == RC_OK && l->among)
		rc = ask_for_place(pg, alive_ms, until, g, p, f);
	if (rc == RC_CONFIG && !asked_before && !pg->conn.pending.again)
		/* nothing of the schema dlock was called, nor will be */
		l->asked = false;
	return rc;
}

/*
 * A job that has been done wants no lock any more.  If this goes unheard, the caller's
 * release says it again.
 */
static void
leave_done(struct pg *pg)
{
	struct fault unheard;

	(void)lease_release(pg, STATUS_NONE, instant_now() + ASK_PATIENCE, &unheard);
}

static enum rc
lease_acquire(struct pg *pg, instant until, struct grant *g, struct fault *f)
{
	struct lease *l = lease_of(pg);
	struct patience *patience = &pg->patience;
	instant first_by = patience_first(patience, until);
	struct place p = {.code = QUEUED};
	enum rc rc;

	l->among = !kind_is_exclusive(pg->claim->kind) || job_is_wanted(&pg->claim->job);
	do
		rc = ask_first(pg, until ? ALIVE_MS : "0",
		    patience_attempt_by(patience, first_by), g, &p, f);
	while (patience_first_again(patience, pg->base.host, until, &rc));
	if (rc == RC_OK && !is_granted(&p)) {
		if (until)
			rc = wait_for_lease(pg, until, g, &p, f);
		else
			rc = fault_set(f, RC_BUSY, "%s: held", pg->conn.where);
	}
	if (rc == RC_BUSY && !until)
		l->asked = false; /* who does not queue leaves nothing */
	if (rc == RC_DONE)
		leave_done(pg);
	return rc;
}

/* ---- renew and release ---- */

static enum rc
lease_not_ours(struct pg *pg, struct fault *f)
{
	return fault_set(f, RC_LOST,
	    "%s no longer has it as ours: it expired, was deleted, or the server lost its data",
	    pg->conn.where);
}

enum { RENEW_CODE, RENEW_WAKES, RENEW_WANTED_BY, RENEW_FIELDS };

/* What renew() said; who asks for the lock, or has taken it away. */
static enum rc
read_renewal(struct pg *pg, const PGresult *r, struct fault *f)
{
	const char *by = field_text_in(pg->conn.pq, r, 0, RENEW_WANTED_BY);
	int64_t code;

	if (!field_integer(pg->conn.pq, r, RENEW_CODE, 0, 1, &code))
		return pg_makes_no_sense(pg, RC_AGAIN, f);
	if (by)
		return refuse_broken(
		    pg->base.host, f, code ? RC_REVOKED : RC_LOST, pg->conn.where, by);
	return code ? RC_OK : lease_not_ours(pg, f);
}

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
	PGresult *r;
	instant sent;
	enum rc rc;

	snprintf(token, sizeof token, "%" PRIu64, l->token);
	rc = ask_server(&pg->conn, &q, RENEW_FIELDS, until, &sent, &r, f);
	if (rc != RC_OK)
		return pg_is_missing(pg) ? lease_not_ours(pg, f)
		    : rc == RC_STOP      ? RC_STOP
					 : RC_AGAIN; /* a table dropped is a lock lost */
	note_wake_lock(pg, r, RENEW_WAKES);
	rc = read_renewal(pg, r, f);
	pg->conn.pq->clear(r);
	if (rc == RC_OK || rc == RC_REVOKED) {
		g->sent = sent;
		g->lease = claim->ttl;
	}
	return rc;
}

/* Reads what release() said: 1 held until now, 2 waited, 0 neither. */
static enum rc
read_release(struct pg *pg, const PGresult *r, struct fault *f)
{
	struct lease *l = lease_of(pg);
	int64_t code;

	if (!field_integer(pg->conn.pq, r, 0, 0, 2, &code))
		return pg_makes_no_sense(pg, RC_AGAIN, f);
	if (code == 0 && l->held && (pg->conn.pending.again || l->unsure))
		return fault_set(f, RC_AGAIN,
		    "%s closed the connection before it answered", pg->conn.where);
	if (code == 0 && l->held)
		return lease_not_ours(pg, f);
	return RC_OK;
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
	} else if (lease_of(pg)->among) {
		q->sql = "SELECT dlock.release_among($1, $2, $3)";
	}
}

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
	bool old_sessions;
	PGresult *r;
	instant sent;
	enum rc rc;

	if (!l->asked)
		return RC_OK;
	snprintf(status_text, sizeof status_text, "%d", status);
	old_sessions = l->wake.abandoned ||
	    (!connection_is_open(&pg->conn) && l->wake.taken);
	write_release(pg, old_sessions, status >= 0 && job_is_wanted(&claim->job), &q);
	rc = ask_server(&pg->conn, &q, old_sessions ? 2 : 1, until, &sent, &r, f);
	if (rc != RC_OK) {
		l->unsure = true;
		return pg_is_missing(pg) ? (l->held ? lease_not_ours(pg, f) : RC_OK) : rc;
	}
	rc = read_release(pg, r, f);
	pg->conn.pq->clear(r);
	if (rc == RC_OK || rc == RC_LOST)
		l->asked = l->held = false;
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
