/*
 * redis.c - locks in Redis, on whichever server has them (route.h): the store, its settings,
 * acquire, renew, release.  How an operation is asked is left to client.h, waiting to
 * queue.h, looking and steering to look.h and steer.h.
 *
 *  1. Every operation is one run of a script (dialects.h), atomic on the server, by
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
 *     QUEUE_ALIVE; the first in line also asks when a holder's lease has run out.
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
 * 11. A fail-over that kept our hold is survived: the new master renews it.  One that lost
 *     it is a loss.  With wait-replicas, what replicas have not got has not been granted.
 * 12. Whether the server may lose locks is asked once, in one packet with a
 *     question that is sent anyhow: the first renewal, with -v the first of all.
 */
#include "backends/backend.h"

#include "backends/common/setting.h"
#include "backends/common/retry.h"
#include "backends/common/text.h"
#include "look.h"
#include "queue.h"
#include "redlock.h"
#include "steer.h"

#include <stdlib.h>
#include <string.h>

/* from when a master is declared dead until sentinels name the next one */
#define SWITCH (2500 * NS_PER_MS)
/* that the keeper ends a command before its lease, beside the grace */
#define SPARE (500 * NS_PER_MS)
/* in less, a server may have had no time to answer */
#define BRIEF (500 * NS_PER_MS)
/* for giving back what replicas did not confirm */
#define WITHDRAWAL NS_PER_S
enum { REPLICAS_MOST = 100 };

/* What the server has told us that we have. */
struct redis_hold {
	bool is; /* anything at all */
	uint64_t token;
	unsigned slot;
};

/* Where it is, as the user said it. */
struct redis_site {
	struct address address;
	struct tls_settings tls;
	struct address sentinels; /* the same hosts, with their own password */
	char where[WHERE_BYTES];
};

struct redis {
	struct store base;
	struct redis_site site;
	struct client client;
	struct retry patience;
	struct queue queue;
	struct redis_hold hold;
	bool down_after; /* has been spoken of */
};

const struct backend redis_backend;

static struct redis *
redis_of(struct store *s)
{
	return (struct redis *)store_of(s, &redis_backend);
}

/* ---- open ---- */

static enum rc
redis_password_file(struct store *s, const char *value, struct fault *f)
{
	struct address *a = &redis_of(s)->site.address;

	return setting_secret("password-file", value, a->password, sizeof a->password, f);
}

static enum rc
redis_connect_timeout(struct store *s, const char *value, struct fault *f)
{
	return setting_timeout(value, &redis_of(s)->patience.first, f);
}

static enum rc
redis_dialect(struct store *s, const char *value, struct fault *f)
{
	return dialect_choose(&redis_of(s)->client.dialect, value, f);
}

static enum rc
redis_sentinel_password_file(struct store *s, const char *value, struct fault *f)
{
	struct redis *r = redis_of(s);

	if (r->site.address.form != FORM_SENTINEL)
		return fault_set(
		    f, RC_USAGE, "sentinel-password-file is for redis+sentinel:// only");
	return setting_secret("sentinel-password-file", value, r->site.sentinels.password,
	    sizeof r->site.sentinels.password, f);
}

static enum rc
redis_wait_replicas(struct store *s, const char *value, struct fault *f)
{
	int n = endpoint_number(value, strlen(value), REPLICAS_MOST);

	if (n < 1)
		return fault_set(
		    f, RC_USAGE, "wait-replicas is a number from 1 to %d", REPLICAS_MOST);
	redis_of(s)->client.replicas = n;
	return RC_OK;
}

static enum rc
redis_cacert(struct store *s, const char *value, struct fault *f)
{
	return tls_set(&redis_of(s)->site.tls, "cacert", value, f);
}

static enum rc
redis_cert(struct store *s, const char *value, struct fault *f)
{
	return tls_set(&redis_of(s)->site.tls, "cert", value, f);
}

static enum rc
redis_key(struct store *s, const char *value, struct fault *f)
{
	return tls_set(&redis_of(s)->site.tls, "key", value, f);
}

static enum rc
redis_tls_name(struct store *s, const char *value, struct fault *f)
{
	return tls_set(&redis_of(s)->site.tls, "tls-name", value, f);
}

static const struct setting_row settings[] = {
    {"dialect", "NAME",
	"how other clients of the server lock: string, redisson, ... "
	"(default: native)",
	redis_dialect},
    {"password-file", "FILE", "the password, in a file of mode 0600",
	redis_password_file},
    {"sentinel-password-file", "FILE",
	"the sentinels' own password, in a file of mode 0600",
	redis_sentinel_password_file},
    {"wait-replicas", "N",
	"a grant or a renewal counts once N replicas have it (default: 0)",
	redis_wait_replicas},
    {"cacert", "FILE", "with rediss://: the CAs to trust (default: the system's)",
	redis_cacert},
    {"cert", "FILE", "with rediss://: a client certificate, and those of its CAs",
	redis_cert},
    {"key", "FILE", "its key, in a file of mode 0600", redis_key},
    {"tls-name", "NAME",
	"with rediss://: what the server's certificate is for, if not the host's name",
	redis_tls_name},
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
	route_free(&r->client.route);
	queue_close(&r->queue);
	tls_close(r->site.address.tls);
	explicit_bzero(&r->site.address, sizeof r->site.address);
	explicit_bzero(&r->site.sentinels, sizeof r->site.sentinels);
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
	r->base = (struct store){&redis_backend, host, r->site.where,
	    CAP_FAIR | CAP_DURABLE | CAP_SHARED | CAP_LIMIT | CAP_JOB | CAP_REVOKE |
		CAP_FORCE | CAP_FREEZE};
	r->client.host = host;
	r->client.dialect = &dialects[DIALECT_NATIVE];
	retry_init(&r->patience);
	rc = address_parse(&r->site.address, site->url, f);
	route_init(&r->client.route, host, &r->site.address, &r->site.sentinels);
	queue_init(&r->queue, &r->client.route);
	r->site.sentinels = r->site.address;
	*r->site.sentinels.user = *r->site.sentinels.password = '\0';
	r->site.sentinels.db = 0;
	if (rc == RC_OK)
		rc = setting_read(&r->base, site, f);
	if (rc == RC_OK && *r->site.address.user && !*r->site.address.password)
		rc = fault_set(f, RC_USAGE,
		    "the redis URL has a user without a password (there or in -O password-file=FILE)");
	if (rc == RC_OK)
		rc = tls_open_if(r->site.address.secure, "rediss://",
		    &r->site.address.tls, &r->site.tls, f);
	if (rc != RC_OK) {
		redis_close(&r->base);
		return rc;
	}
	r->site.sentinels.tls = r->site.address.tls;
	r->base.caps &= ~r->client.dialect->lacks;
	address_print(&r->site.address, r->site.where, sizeof r->site.where);
	*ret = &r->base;
	return RC_OK;
}

/* ---- which locks these are ---- */

static enum rc
redis_identify(struct store *s, struct identity *id, struct fault *f)
{
	const struct redis *r = redis_of(s);

	(void)f;
	address_identify(id, &r->site.address);
	identity_add(id, "dialect", r->client.dialect->name);
	return RC_OK;
}

/* ---- what a fail-over may do to it ---- */

/* Sentinels cut our connection when they depose the master: no news comes earlier. */
static void
redis_watch(struct redis *r)
{
	if (r->site.address.form == FORM_SENTINEL)
		r->base.host->alert = r->client.route.server.peer.wire.stream.fd;
}

/*
 * Can a lease of `ttl` bear a fail-over?  It is renewed every third; the new master is
 * named some 2.5 s after the old one was declared dead; one attempt, and the time to end
 * the command in (the usual grace), are to be left.
 */
static bool
bears(int64_t ttl, int64_t down_after)
{
	int64_t attempt = instant_first(ttl / 10, 3 * NS_PER_S),
		grace = instant_first(ttl / 6, 5 * NS_PER_S);

	return ttl / 3 + down_after + SWITCH + attempt < ttl / 100 * 99 - SPARE - grace;
}

/* With -v: that a fail-over is a loss with this lease. */
static void
redis_tell_down_after(struct redis *r)
{
	int64_t ms = r->client.route.sentinels && r->base.host->verbose
	    ? sentinels_down_after(r->client.route.sentinels)
	    : 0;
	int64_t down_after = ms * NS_PER_MS, enough = r->client.claim->ttl;

	if (ms == 0 || r->down_after || bears(enough, down_after))
		return;
	r->down_after = true;
	while (!bears(enough, down_after))
		enough += NS_PER_S;
	fault_set(&r->base.host->notice, RC_OK,
	    "%s: a fail-over takes at least %.1f s (down-after-milliseconds %lld, and 2.5 s), "
	    "which a lease of %.0f s does not bear: the lock would be lost; --ttl %llds bears it",
	    r->site.where, (double)(down_after + SWITCH) / NS_PER_S, (long long)ms,
	    (double)r->client.claim->ttl / NS_PER_S, (long long)(enough / NS_PER_S + 1));
}

/* ---- acquire ---- */

/* What the user may see of a lock that others have. */
static void
redis_show(struct redis *r, struct answer *a)
{
	struct host *host = r->base.host;

	secret_blot(a->waiting.holder, r->site.address.password);
	host->seen.position = a->waiting.place;
	host->seen.holding.held = a->waiting.held_ms < 0 ? -1
							 : a->waiting.held_ms * NS_PER_MS;
	memcpy(host->seen.holding.record, a->waiting.holder, sizeof a->waiting.holder);
	host->seen.holding.kind = a->used.kind;
	host->seen.holding.holders = a->waiting.holders;
	host->seen.holding.limit = a->used.limit;
	host->seen.holding.frozen = a->waiting.frozen;
}

/* What was granted does not count, and is given back; it is asked for again. */
static enum rc
redis_withdraw(struct redis *r)
{
	struct answer a;
	struct fault ignored;
	instant sent;

	client_run(&r->client,
	    &(struct request){.operation = RELEASE, .status = STATUS_NONE},
	    instant_now() + WITHDRAWAL, &sent, &a, &ignored);
	return RC_AGAIN;
}

static enum rc
redis_granted(struct redis *r, const struct answer *a, instant sent, struct grant *g,
    struct fault *f)
{
	if (r->client.claim->kind == KIND_LIMIT &&
	    a->granted.slot >= r->client.claim->limit)
		return fault_set(f, RC_PROTOCOL,
		    "%s gave slot %u of a lock with --limit %u", r->site.where,
		    a->granted.slot, r->client.claim->limit);
	if (!client_is_replicated(&r->client, f))
		return redis_withdraw(r);
	r->hold.is = true;
	r->hold.token = a->granted.token;
	r->hold.slot = a->granted.slot;
	*g = (struct grant){.token = a->granted.token,
	    .slot = a->granted.slot,
	    .sent = sent,
	    .lease = r->client.claim->ttl,
	    .anchor = -1};
	redis_watch(r);
	return RC_OK;
}

/* The script has made us leave the queue, or give up the grant by which we were woken. */
static enum rc
redis_skipped(struct redis *r, struct answer *a, struct fault *f)
{
	const struct job *job = &r->client.claim->job;

	if (a->code == ANSWER_DONE ? !job->once : job->cooldown <= 0)
		return fault_set(f, RC_PROTOCOL,
		    "%s gave an answer to what was not asked", r->site.where);
	r->client.route.asked = false; /* nothing is left there to be given back */
	if (a->code == ANSWER_RECENT)
		return refuse_recent(f, job, a->age_ms * NS_PER_MS);
	secret_blot(a->done.who, r->site.address.password);
	return refuse_done(f, job, a->done.began_ms, a->done.who);
}

/* Asks for the lock, or for our place in the queue; `alive` 0: do not queue. */
static enum rc
redis_ask_lock(struct redis *r, int64_t alive, instant until, struct grant *g,
    struct answer *a, struct fault *f)
{
	struct request q = {.operation = ACQUIRE,
	    .alive = alive,
	    .subscribed = queue_is_subscribed(&r->queue),
	    .ticket = r->queue.ticket};
	instant sent;
	enum rc rc = client_run(&r->client, &q, until, &sent, a, f);

	if (rc != RC_OK)
		return rc;
	redis_tell_down_after(r);
	switch (a->code) {
	case ANSWER_HOLDER:
		return redis_granted(r, a, sent, g, f);
	case ANSWER_NOT_HOLDER:
		r->queue.ticket = a->waiting.ticket;
		redis_show(r, a);
		return RC_OK;
	case ANSWER_DONE:
	case ANSWER_RECENT:
		return redis_skipped(r, a, f);
	default:
		return refuse_kind(
		    f, r->site.where, a->used.kind, a->used.limit, r->client.claim);
	}
}

/* Until there is reason to ask, of which one is that a server that was away may be back. */
static enum rc
redis_wait(struct redis *r, const struct answer *a, instant until, struct fault *f)
{
	enum rc rc;

	if (retry_is_outage(&r->patience))
		return RC_OK;
	rc = queue_wait(&r->queue, &r->client, a, until, f);
	return rc == RC_BUSY ? fault_set(f, rc, "%s: still held", r->site.where) : rc;
}

/* The last one before `until` may have no time for an answer: why it failed was said before. */
static enum rc
redis_ask_first(
    struct redis *r, instant until, struct grant *g, struct answer *a, struct fault *f)
{
	instant ends = retry_attempt(&r->patience, until);
	bool brief = r->patience.tries > 0 && ends - instant_now() < BRIEF;
	struct fault before;
	enum rc rc;

	if (brief)
		before = *f;
	rc = redis_ask_lock(r, until ? QUEUE_ALIVE : 0, ends, g, a, f);
	if (brief && rc == RC_AGAIN && instant_now() >= ends)
		*f = before;
	return rc;
}

/*
 * One attempt: asks, after waiting for a reason to if we are in the queue.
 * Each is bounded by itself; retry.h says how many there are.
 */
static enum rc
redis_attempt(struct redis *r, bool queued, instant until, struct grant *g,
    struct answer *a, struct fault *f)
{
	enum rc rc;

	if (!queued)
		return redis_ask_first(r, until, g, a, f);
	rc = redis_wait(r, a, until, f);
	return rc == RC_OK
	    ? redis_ask_lock(r, QUEUE_ALIVE, instant_now() + QUEUE_PATIENCE, g, a, f)
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

	r->client.claim = claim;
	dialect_name(r->client.dialect, &r->client.names, r->site.address.form, claim);
	retry_begin(&r->patience, claim);
	do {
		rc = redis_attempt(r, queued, until, g, &a, f);
		if (rc == RC_OK) {
			retry_end_outage(&r->patience);
			queued = true;
		} else {
			rc = retry_wait(&r->patience, s->host, rc, queued, until);
		}
	} while (rc == RC_OK && !r->hold.is && until);
	if (rc != RC_OK || r->hold.is)
		return rc;
	r->client.route.asked = false; /* who does not queue leaves nothing */
	return fault_set(
	    f, RC_BUSY, "%s: %s", r->site.where, a.waiting.frozen ? "frozen" : "held");
}

/* ---- renew and release ---- */

static enum rc
redis_revoked(struct redis *r, enum rc rc, struct answer *a, struct fault *f)
{
	secret_blot(a->mark, r->site.address.password);
	return refuse_broken(r->base.host, f, rc, r->site.where, a->mark);
}

static enum rc
redis_lost(const struct redis *r, struct fault *f)
{
	return fault_set(f, RC_LOST,
	    "%s no longer has it as ours: it expired, was deleted, or the server lost its data",
	    r->client.route.where);
}

static enum rc
redis_renew(struct store *s, instant until, struct grant *g, struct fault *f)
{
	struct redis *r = redis_of(s);
	struct answer a = {.code = ANSWER_NOT_HOLDER};
	instant sent;
	enum rc rc;

	/* not when we were granted: that would have kept the command waiting */
	queue_close(&r->queue);
	rc = client_run(&r->client,
	    &(struct request){.operation = RENEW, .token = r->hold.token}, until, &sent,
	    &a, f);
	redis_watch(r);
	if (rc != RC_OK)
		return rc == RC_STOP || rc == RC_LOST ? rc : RC_AGAIN;
	if (a.code == ANSWER_NOT_HOLDER && *a.mark)
		return redis_revoked(r, RC_LOST, &a, f);
	if (a.code == ANSWER_NOT_HOLDER || a.granted.token != r->hold.token ||
	    a.granted.slot != r->hold.slot)
		return redis_lost(r, f);
	if (!client_is_replicated(&r->client, f))
		return RC_AGAIN;
	g->sent = sent;
	g->lease = r->client.claim->ttl;
	return a.code == ANSWER_REVOKED ? redis_revoked(r, RC_REVOKED, &a, f) : RC_OK;
}

/* It was not ours any more, or the first one that asked has given it back. */
static enum rc
redis_not_released(struct redis *r, struct answer *a, struct fault *f)
{
	if (*a->mark)
		return redis_revoked(r, RC_LOST, a, f);
	return r->client.route.repeated
	    ? fault_set(f, RC_AGAIN, "%s closed the connection before it answered",
		  r->site.where)
	    : redis_lost(r, f);
}

static enum rc
redis_release(struct store *s, int status, instant until, struct fault *f)
{
	struct redis *r = redis_of(s);
	struct answer a = {.code = ANSWER_NOT_HOLDER};
	instant sent;
	enum rc rc;

	r->base.host->alert = -1;
	if (!r->client.route.asked)
		return RC_OK;
	rc = client_run(&r->client,
	    &(struct request){.operation = RELEASE, .held = r->hold.is, .status = status},
	    until, &sent, &a, f);
	if (rc == RC_OK && a.code == ANSWER_UNREMEMBERED)
		fault_set(&r->base.host->notice, RC_OK,
		    "%s could not write down that this run ended with %d: it does not count",
		    r->site.where, status);
	if (rc == RC_OK && a.code == ANSWER_NOT_HOLDER && r->hold.is)
		rc = redis_not_released(r, &a, f);
	if (rc == RC_OK || rc == RC_LOST)
		r->client.route.asked = r->hold.is = false;
	return rc;
}

/* ---- looking and steering ---- */

/* Pages are larger than what is said to a claim. */
static struct route *
redis_route(struct store *s)
{
	struct route *route = &redis_of(s)->client.route;

	route_let_pages_in(route);
	return route;
}

static enum rc
redis_each(struct store *s, const struct look *look, struct fault *f)
{
	return look_each(redis_route(s), redis_of(s)->client.dialect, look, f);
}

static enum rc
redis_revoke(struct store *s, const struct target *t, const char *record, bool force,
    instant until, struct fault *f)
{
	return steer_revoke(
	    redis_route(s), redis_of(s)->client.dialect, t, record, force, until, f);
}

static enum rc
redis_freeze(struct store *s, const char *key, const char *record, int64_t length,
    instant until, struct fault *f)
{
	return steer_freeze(redis_route(s), key, record, length, until, f);
}

static enum rc
redis_thaw(struct store *s, const char *key, instant until, struct fault *f)
{
	return steer_thaw(redis_route(s), key, until, f);
}

/* The lock of each lies in one slot; those of two keys only where a tag says so. */
static enum rc
redis_together(struct store *s, const char *key, const char *other, struct fault *f)
{
	const struct redis *r = redis_of(s);

	if (r->site.address.form != FORM_CLUSTER || strcmp(key, other) == 0 ||
	    dialect_shares_slot(key, other))
		return RC_OK;
	return fault_set(f, RC_CONFIG,
	    "the keys '%.100s' and '%.100s' may lie on two nodes of the cluster: give them one {tag}, such as {a}%.100s and {a}%.100s",
	    key, other, key, other);
}

const struct backend redis_backend = {
    .name = "redis",
    .schemes = (const char *const[]){"redis", "rediss", "redis+unix", "redis+sentinel",
	"rediss+sentinel", "redis+cluster", "rediss+cluster", "redlock", "redlocks",
	NULL},
    .settings = settings,
    .url_help = "redis[s]://[user:password@]host[:port][/db], redis+unix:///path,\n"
		"redis[s]+sentinel://host,host/MASTER[/db],\n"
		"redis[s]+cluster://host,host, redlock[s]://host,host,host",
    .open = redis_open,
    .close = redis_close,
    .identify = redis_identify,
    .together = redis_together,
    .lock = &(const struct lock_ops){redis_acquire, redis_renew, redis_release},
    .admin = &(
	const struct admin_ops){redis_each, redis_revoke, redis_freeze, redis_thaw},
};
