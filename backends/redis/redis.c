/*
 * redis.c - locks on one Redis server: the store, its settings, acquire, wait, renew,
 * release; and to whom looking (look.h) and steering (steer.h) are left.
 *
 *  1. Every operation is one run of a script (dialect.h), atomic on the server, by
 *     the server's clock; the first lines of lock.lua describe what is stored.
 *  2. Each of them is idempotent for an owner, so that one whose answer got
 *     lost MAY be sent again; renew and release only ever touch a hold or a
 *     place that is this owner's, and create nothing.
 *  3. It is asked for by its hash first; a server that does not know it (it was
 *     restarted) is sent the whole script.
 *  4. An uncontended acquire, a renewal and a release are one round trip each;
 *     AUTH and SELECT travel in front of the first one (server.h).
 *  5. A waiter is told of its grant on a second connection, subscribed to a
 *     channel of its own; it then asks once more, and that request earns the
 *     lease.  Meanwhile it asks every BEAT, by which it counts as alive for
 *     ALIVE; the first in line also asks when a holder's lease has run out.
 *  6. The lease outlives the connection.  One that was idle and is found
 *     closed is opened anew within the same call.  An answer that is overdue
 *     closes it (wire.h).
 *  7. RC_LOST is said on the script's word alone, or when the key has become
 *     something else (WRONGTYPE); every other trouble while holding is RC_AGAIN.
 *  8. After an outage of the server a waiter asks with its old ticket, which is
 *     its place, whatever the server still knows.
 *  9. A hold is known by its token: a renewal that finds us holder by another one
 *     (the server lost our grant, and gave us a later one) is a loss.  So is
 *     another slot than ours.
 * 10. Who takes the lock away marks our row, which a renewal reads anyhow (RC_REVOKED),
 *     or removes us; who freezes the key sets one beside it, and nobody is granted
 *     anything until it is gone or its time is over.
 * 11. Whether the server may lose locks is asked once, in one packet with a
 *     question that is sent anyhow: the first renewal, with -v the first of all.
 */
#include "backends/backend.h"

#include "address.h"
#include "backends/patience.h"
#include "backends/refuse.h"
#include "backends/secret.h"
#include "backends/setting.h"
#include "dialect.h"
#include "look.h"
#include "redlock.h"
#include "server.h"
#include "steer.h"

#include <poll.h>
#include <stdlib.h>
#include <string.h>

/* a waiter asks at least so often, and half a second later at most */
#define BEAT (3300 * NS_PER_MS)
/* and is believed alive for so long: two beats may be lost */
#define ALIVE (9 * NS_PER_S)
#define ASK_PATIENCE (3 * NS_PER_S) /* for an answer while in the queue */
/* well within the grace of a grant nobody tells us of */
#define UNSUBSCRIBED_BEAT NS_PER_S

/* ms; a server that says less again and again is asked no more often */
enum { LEFT_LEAST = 50 };

/* Our place in the queue, while we wait. */
struct redis_queue {
	struct server subscription; /* to our channel */
	instant subscribe_due;      /* not to be tried again before */
	uint64_t ticket;            /* the place, as the server dealt it; 0: none yet */
	unsigned beats;             /* for their jitter */
};

/* What the server has told us that we have. */
struct redis_hold {
	bool is; /* anything at all */
	uint64_t token;
	unsigned slot;
};

struct redis {
	struct store base;
	const struct claim *claim;
	const struct dialect *dialect;
	struct names names; /* of the claim */
	struct address address;
	char where[WHERE_BYTES];
	struct patience patience;
	struct server commands; /* questions and answers */
	struct redis_queue queue;
	struct redis_hold hold;
};

const struct backend redis_backend;

static struct redis *
redis_of(struct store *s)
{
	return (struct redis *)store_of(s, &redis_backend);
}

/* ---- one request, one answer ---- */

static enum rc
redis_ask(struct redis *r, const struct request *q, bool whole, instant until,
    redisReply **reply, struct fault *f)
{
	struct question question = {.ping_first = q->operation == RELEASE,
	    .inspect = q->operation == RENEW ||
		(q->operation == ACQUIRE && r->base.host->verbose)};
	char *command;
	int length = r->dialect->write(&command, &r->names, r->claim, q, whole);
	enum rc rc;

	if (length < 0)
		return fault_set(f, RC_SYSTEM, "out of memory");
	question.command = command;
	question.length = length;
	rc = server_ask(&r->commands, &question, until, reply, f);
	redisFreeCommand(command);
	return rc;
}

/* What is said to the user of a reply; RC_OK: it is an answer. */
static enum rc
redis_judge(struct redis *r, const struct request *q, enum reading reading,
    const redisReply *reply, struct fault *f)
{
	enum rc rc;

	switch (reading) {
	case READ_ANSWER:
		return RC_OK;
	case READ_NONSENSE:
		server_close(&r->commands);
		return fault_set(f, RC_PROTOCOL,
		    "%s gave an answer that dlock's script does not give", r->where);
	case READ_UNKNOWN_SCRIPT:
	case READ_ERROR:
	case READ_FOREIGN:
		break;
	}
	rc = server_refused(&r->commands, reply->str, f);
	return reading == READ_FOREIGN && q->operation != ACQUIRE ? RC_LOST : rc;
}

/* Runs an operation.  *sent: just before the request left that was answered. */
static enum rc
redis_run(struct redis *r, const struct request *q, instant until, instant *sent,
    struct answer *a, struct fault *f)
{
	enum reading reading = READ_UNKNOWN_SCRIPT;
	enum rc rc = RC_OK;

	r->commands.repeated = false;
	for (int whole = 0; rc == RC_OK && reading == READ_UNKNOWN_SCRIPT && whole < 2;
	     whole++) {
		redisReply *reply = NULL;

		*sent = instant_now();
		rc = redis_ask(r, q, whole, until, &reply, f);
		if (rc != RC_OK || !reply)
			return rc;
		reading = r->dialect->read(a, q, reply);
		if (reading != READ_UNKNOWN_SCRIPT || whole)
			rc = redis_judge(r, q, reading, reply, f);
		freeReplyObject(reply);
	}
	return rc;
}

/* ---- open ---- */

static enum rc
redis_password_file(struct store *s, const char *value, struct fault *f)
{
	struct address *a = &redis_of(s)->address;

	return setting_secret("password-file", value, a->password, sizeof a->password, f);
}

static enum rc
redis_connect_timeout(struct store *s, const char *value, struct fault *f)
{
	return setting_patience(value, &redis_of(s)->patience.first, f);
}

static const struct setting_row settings[] = {
    {"password-file", "FILE", "the password, in a file of mode 0600",
	redis_password_file},
    {"connect-timeout", "DURATION",
	"for a server that does not answer, without --wait (default: 5s)",
	redis_connect_timeout},
    {0},
};

static void
redis_close(struct store *s)
{
	struct redis *r = s ? redis_of(s) : NULL;

	if (!r)
		return;
	server_close(&r->commands);
	server_close(&r->queue.subscription);
	explicit_bzero(&r->address, sizeof r->address);
	free(r);
}

static enum rc
redis_open(
    struct store **ret, struct host *host, const struct site *site, struct fault *f)
{
	struct redis *r;
	enum rc rc;

	if (redlock_is_meant(site->url))
		return redlock_open(ret, host, site, f);
	r = calloc(1, sizeof *r);
	if (!r)
		return fault_set(f, RC_SYSTEM, "out of memory");
	r->base = (struct store){&redis_backend, host, r->where,
	    CAP_FAIR | CAP_DURABLE | CAP_SHARED | CAP_LIMIT | CAP_JOB | CAP_REVOKE |
		CAP_FORCE | CAP_FREEZE};
	r->dialect = &dialect_native;
	patience_init(&r->patience);
	server_init(&r->commands, host, &r->address, r->where);
	server_init(&r->queue.subscription, host, &r->address, r->where);
	rc = address_parse(&r->address, site->url, f);
	if (rc == RC_OK)
		rc = setting_read(&r->base, site, f);
	if (rc == RC_OK && *r->address.user && !*r->address.password)
		rc = fault_set(f, RC_USAGE,
		    "the redis URL has a user without a password (there or in -O password-file=FILE)");
	if (rc != RC_OK) {
		redis_close(&r->base);
		return rc;
	}
	address_print(&r->address, r->where, sizeof r->where);
	*ret = &r->base;
	return RC_OK;
}

/* ---- acquire ---- */

/* What the user may see of a lock that others have. */
static void
redis_show(struct redis *r, struct answer *a)
{
	struct host *host = r->base.host;

	secret_blot(a->holder, r->address.password);
	host->seen.position = a->place;
	host->seen.held = a->held_ms < 0 ? -1 : a->held_ms * NS_PER_MS;
	memcpy(host->seen.holder, a->holder, sizeof a->holder);
	host->seen.kind = a->kind;
	host->seen.holders = a->holders;
	host->seen.limit = a->limit;
	host->seen.frozen = a->frozen;
}

static enum rc
redis_granted(struct redis *r, const struct answer *a, instant sent, struct grant *g,
    struct fault *f)
{
	if (r->claim->kind == KIND_LIMIT && a->slot >= r->claim->limit)
		return fault_set(f, RC_PROTOCOL,
		    "%s gave slot %u of a lock with --limit %u", r->where, a->slot,
		    r->claim->limit);
	r->hold.is = true;
	r->hold.token = a->token;
	r->hold.slot = a->slot;
	*g = (struct grant){.token = a->token,
	    .slot = a->slot,
	    .sent = sent,
	    .lease = r->claim->ttl,
	    .anchor = -1};
	return RC_OK;
}

/* The script has made us leave the queue, or give up the grant by which we were woken. */
static enum rc
redis_skipped(struct redis *r, struct answer *a, struct fault *f)
{
	const struct job *job = &r->claim->job;

	if (a->code == ANSWER_DONE ? !job->once : job->cooldown <= 0)
		return fault_set(
		    f, RC_PROTOCOL, "%s gave an answer to what was not asked", r->where);
	r->commands.asked = false; /* nothing is left there to be given back */
	if (a->code == ANSWER_RECENT)
		return refuse_recent(f, job, a->age_ms * NS_PER_MS);
	secret_blot(a->who, r->address.password);
	return refuse_done(f, job, a->began_ms, a->who);
}

/* Asks for the lock, or for our place in the queue; `alive` 0: do not queue. */
static enum rc
redis_ask_lock(struct redis *r, int64_t alive, instant until, struct grant *g,
    struct answer *a, struct fault *f)
{
	struct request q = {.operation = ACQUIRE,
	    .alive = alive,
	    .subscribed = server_is_open(&r->queue.subscription),
	    .ticket = r->queue.ticket};
	instant sent;
	enum rc rc = redis_run(r, &q, until, &sent, a, f);

	if (rc != RC_OK)
		return rc;
	switch (a->code) {
	case ANSWER_HOLDER:
		return redis_granted(r, a, sent, g, f);
	case ANSWER_NOT_HOLDER:
		r->queue.ticket = a->ticket;
		redis_show(r, a);
		return RC_OK;
	case ANSWER_DONE:
	case ANSWER_RECENT:
		return redis_skipped(r, a, f);
	default:
		return refuse_kind(f, r->where, a->kind, a->limit, r->claim);
	}
}

/* From its answer on, a message to us arrives. */
static enum rc
redis_subscribe(struct redis *r, instant until, struct fault *f)
{
	const char *argv[] = {"SUBSCRIBE", r->names.channel};
	redisReply *reply = NULL;
	char *command;
	int length = redisFormatCommandArgv(&command, 2, argv, NULL);
	struct question q = {.command = command, .length = length, .messages = true};
	enum rc rc;

	if (length < 0)
		return fault_set(f, RC_SYSTEM, "out of memory");
	rc = server_ask(&r->queue.subscription, &q, until, &reply, f);
	redisFreeCommand(command);
	if (rc != RC_OK || !reply)
		return rc;
	if (reply->type == REDIS_REPLY_ERROR)
		rc = server_refused(&r->queue.subscription, reply->str, f);
	else if (reply->type != REDIS_REPLY_ARRAY)
		rc = fault_set(
		    f, RC_PROTOCOL, "%s gave a wrong answer to SUBSCRIBE", r->where);
	freeReplyObject(reply);
	if (rc != RC_OK)
		server_close(&r->queue.subscription);
	return rc;
}

/*
 * When to ask again although no message came: the next beat, or the end of a lease if we
 * are first.
 */
static instant
redis_next_beat(struct redis *r, const struct answer *a)
{
	/*
	 * A few bits of the owner and a counter: enough to keep a thousand waiters from
	 * asking in step.
	 */
	int64_t jitter = (r->claim->owner[r->queue.beats++ % OWNER_CHARS] % 16) * 30 *
	    NS_PER_MS;
	instant now = instant_now(), beat = now + BEAT + jitter;

	if (!server_is_open(&r->queue.subscription))
		beat = now + UNSUBSCRIBED_BEAT;
	if (a->place == 1 && a->left_ms > 0)
		beat = instant_first(beat,
		    now +
			(a->left_ms < LEFT_LEAST ? LEFT_LEAST : a->left_ms + 5) *
			    NS_PER_MS);
	return beat;
}

/*
 * Sleeps until a message comes, or it is time to ask again.  RC_BUSY: `until`
 * has come.  RC_AGAIN: the subscription is gone.
 */
static enum rc
redis_await_message(struct redis *r, instant beat, instant until, struct fault *f)
{
	struct host *host = r->base.host;
	enum rc rc;

	switch (host->wait(host, server_descriptor(&r->queue.subscription), POLLIN,
	    instant_first(beat, until))) {
	case WOKE_STOP:
		return RC_STOP;
	case WOKE_TIMEOUT:
		return instant_now() >= until
		    ? fault_set(f, RC_BUSY, "%s: still held", r->where)
		    : RC_OK;
	case WOKE_READY:
		break;
	}
	rc = server_take_message(&r->queue.subscription, instant_now() + ASK_PATIENCE, f);
	return rc == RC_PROTOCOL ? RC_OK : rc; /* what it says does not matter: we ask */
}

/*
 * Returns when there is reason to ask: a message, a beat, or a subscription just
 * begun, since a message may have gone out before; or that a server that was
 * away may be back.  Without a subscription (the server has no room for a second
 * connection) beats must do; it is tried again now and then.
 */
static enum rc
redis_wait_in_queue(
    struct redis *r, const struct answer *a, instant until, struct fault *f)
{
	instant now = instant_now();
	enum rc rc;

	if (patience_is_outage(&r->patience))
		return RC_OK;
	if (!server_is_open(&r->queue.subscription) && now >= r->queue.subscribe_due) {
		r->queue.subscribe_due = now + UNSUBSCRIBED_BEAT;
		rc = redis_subscribe(r, now + ASK_PATIENCE, f);
		if (rc != RC_AGAIN)
			return rc;
	}
	return redis_await_message(r, redis_next_beat(r, a), until, f);
}

/*
 * One attempt: asks, after waiting for a reason to if we are in the queue.
 * Each is bounded by itself; patience.h says how many there are.
 */
static enum rc
redis_attempt(struct redis *r, bool queued, instant until, struct grant *g,
    struct answer *a, struct fault *f)
{
	enum rc rc;

	if (!queued)
		return redis_ask_lock(
		    r, until ? ALIVE : 0, patience_attempt(&r->patience, until), g, a, f);
	rc = redis_wait_in_queue(r, a, until, f);
	return rc == RC_OK
	    ? redis_ask_lock(r, ALIVE, instant_now() + ASK_PATIENCE, g, a, f)
	    : rc;
}

static enum rc
redis_acquire(struct store *s, const struct claim *claim, instant until, struct grant *g,
    struct fault *f)
{
	struct redis *r = redis_of(s);
	struct answer a = {.code = ANSWER_NOT_HOLDER};
	bool queued = false;
	enum rc rc;

	r->claim = claim;
	r->dialect->name(&r->names, claim);
	patience_begin(&r->patience, claim);
	do {
		rc = redis_attempt(r, queued, until, g, &a, f);
		if (rc == RC_OK) {
			patience_end_outage(&r->patience);
			queued = true;
		} else {
			rc = patience_retry(&r->patience, s->host, rc, queued, until);
		}
	} while (rc == RC_OK && !r->hold.is && until);
	if (rc != RC_OK || r->hold.is)
		return rc;
	r->commands.asked = false; /* who does not queue leaves nothing */
	return fault_set(f, RC_BUSY, "%s: %s", r->where, a.frozen ? "frozen" : "held");
}

/* ---- renew and release ---- */

static enum rc
redis_revoked(struct redis *r, enum rc rc, struct answer *a, struct fault *f)
{
	secret_blot(a->mark, r->address.password);
	return refuse_broken(r->base.host, f, rc, r->where, a->mark);
}

static enum rc
redis_lost(const struct redis *r, struct fault *f)
{
	return fault_set(f, RC_LOST,
	    "%s no longer has it as ours: it expired, was deleted, or the server lost its data",
	    r->where);
}

static enum rc
redis_renew(struct store *s, instant until, struct grant *g, struct fault *f)
{
	struct redis *r = redis_of(s);
	struct answer a = {.code = ANSWER_NOT_HOLDER};
	instant sent;
	enum rc rc;

	/* not when we were granted: that would have kept the command waiting */
	server_close(&r->queue.subscription);
	rc = redis_run(r, &(struct request){.operation = RENEW}, until, &sent, &a, f);
	if (rc != RC_OK)
		return rc == RC_STOP || rc == RC_LOST ? rc : RC_AGAIN;
	if (a.code == ANSWER_NOT_HOLDER && *a.mark)
		return redis_revoked(r, RC_LOST, &a, f);
	if (a.code == ANSWER_NOT_HOLDER || a.token != r->hold.token ||
	    a.slot != r->hold.slot)
		return redis_lost(r, f);
	g->sent = sent;
	g->lease = r->claim->ttl;
	return a.code == ANSWER_REVOKED ? redis_revoked(r, RC_REVOKED, &a, f) : RC_OK;
}

static enum rc
redis_release(struct store *s, int status, instant until, struct fault *f)
{
	struct redis *r = redis_of(s);
	struct answer a = {.code = ANSWER_NOT_HOLDER};
	instant sent;
	enum rc rc;

	if (!r->commands.asked)
		return RC_OK;
	rc = redis_run(r, &(struct request){.operation = RELEASE, .status = status},
	    until, &sent, &a, f);
	if (rc == RC_OK && a.code == ANSWER_UNREMEMBERED)
		fault_set(&r->base.host->notice, RC_OK,
		    "%s could not write down that this run ended with %d: it does not count",
		    r->where, status);
	if (rc == RC_OK && a.code == ANSWER_NOT_HOLDER && r->hold.is)
		rc = r->commands.repeated
		    ? fault_set(f, RC_AGAIN,
			  "%s closed the connection before it answered", r->where)
		    : redis_lost(r, f);
	if (rc == RC_OK || rc == RC_LOST)
		r->commands.asked = r->hold.is = false;
	return rc;
}

/* ---- looking and steering ---- */

/* Pages are larger than what is said to a claim. */
static struct server *
redis_server(struct store *s)
{
	struct server *server = &redis_of(s)->commands;

	wire_bound(&server->wire, &resp_pages);
	return server;
}

static enum rc
redis_each(struct store *s, const struct look *look, struct fault *f)
{
	return look_each(redis_server(s), look, f);
}

static enum rc
redis_revoke(struct store *s, const struct target *t, const char *record, bool force,
    instant until, struct fault *f)
{
	return steer_revoke(redis_server(s), t, record, force, until, f);
}

static enum rc
redis_freeze(struct store *s, const char *key, const char *record, int64_t length,
    instant until, struct fault *f)
{
	return steer_freeze(redis_server(s), key, record, length, until, f);
}

static enum rc
redis_thaw(struct store *s, const char *key, instant until, struct fault *f)
{
	return steer_thaw(redis_server(s), key, until, f);
}

const struct backend redis_backend = {
    .name = "redis",
    .schemes = (const char *const[]){"redis", "redis+unix", "redlock", NULL},
    .settings = settings,
    .url_help =
	"redis://[user:password@]host[:port][/db], redis+unix:///path, redlock://h1,h2,h3",
    .open = redis_open,
    .close = redis_close,
    .lock = &(const struct lock_ops){redis_acquire, redis_renew, redis_release},
    .admin = &(
	const struct admin_ops){redis_each, redis_revoke, redis_freeze, redis_thaw},
};
