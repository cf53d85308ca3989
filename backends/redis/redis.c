/*
 * redis.c - locks in Redis, on whichever server has them (route.h): acquire, renew, release.
 *
 * Waiting is left to queue.c, looking and steering to look.c and steer.c.
 *
 *  1. Every operation is one run of a script (dialects.h), atomic on the server, by
 *     the server's clock; the first lines of lock.lua describe what is stored.
 *  2. Each of them is idempotent for an owner, so that one whose answer got
 *     lost MAY be sent again; renew and release only ever touch a hold or a
 *     place that is this owner's, and create nothing.
 *  3. An uncontended acquire, a renewal and a release are one round trip each.
 *  4. A waiter is told of its grant on a second connection (queue.c); it then asks once
 *     more, and that request earns the lease.  A holder is told there of a break, from its
 *     first renewal on; what the break is, its next renewal says.
 *  5. The lease outlives the connection.
 *  6. RC_LOST is said on the script's word alone, or when the key has become
 *     something else (WRONGTYPE); every other trouble while holding is RC_AGAIN.
 *  7. After an outage of the server a waiter asks with its old ticket, which is
 *     its place, whatever the server still knows.
 *  8. A hold is known by its token: a renewal that finds us holder by another one
 *     (the server lost our grant, and gave us a later one) is a loss.  So is
 *     another slot than ours.
 *  9. A fail-over that kept our hold is survived: the new master renews it.  One that lost
 *     it is a loss.  With wait-replicas, what replicas have not got has not been granted, and
 *     a job that others are to skip has not been confirmed.
 * 10. Whether the server may lose locks is asked once, in one packet with a
 *     question that is sent anyhow: the first renewal once a third of the lease is over,
 *     with -v the first of all.
 */
#include "redis.h"

#include "backends/common/alert.h"
#include "backends/common/job.h"
#include "backends/common/refuse.h"
#include "backends/common/url.h"

#include <string.h>
#include <sys/epoll.h>

/* from when a master is declared dead until sentinels name the next one */
#define SWITCH (2500 * NS_PER_MS)
/* that the keeper ends a command before its lease, beside the grace */
#define SPARE (500 * NS_PER_MS)
/* in less, a server may have had no time to answer */
#define BRIEF (500 * NS_PER_MS)
/* for giving back what replicas did not confirm */
#define WITHDRAWAL NS_PER_S
/* a run that is shorter pays for no renewal, and for no connection to listen on */
#define FIRST_RENEWAL NS_PER_S
/* as the time until the next renewal */
#define AT_ONCE 1
/* after a connection has been lost, until others have theirs again */
#define SETTLED (10 * NS_PER_S)

/* ---- what a holder hears between two renewals ---- */

/* Can the holder be asked to give it up? */
static bool
redis_can_hear(const struct redis *r)
{
	return r->store.base.caps & CAP_REVOKE;
}

/*
 * A break; and that sentinels have deposed the master, since they cut connections then: no news
 * comes earlier.  Before 6.0 they leave those of listeners alone, so that both are watched.
 */
static void
redis_watch(struct redis *r)
{
	bool listens = redis_can_hear(r) && queue_is_subscribed(&r->queue);
	int ear = listens ? r->queue.listener.peer.stream.fd : -1,
	    master = r->store.address.form == FORM_SENTINEL
	    ? r->route.server.peer.stream.fd
	    : -1;
	struct epoll_event e = {.events = EPOLLIN};

	if (ear >= 0 && master >= 0 && r->both == 0)
		r->both = epoll_create1(EPOLL_CLOEXEC);
	if (ear >= 0 && master >= 0 && r->both > 0) {
		/* what it watches already stays so; what was closed is watched no more */
		epoll_ctl(r->both, EPOLL_CTL_ADD, ear, &e);
		epoll_ctl(r->both, EPOLL_CTL_ADD, master, &e);
		ear = r->both;
	}
	r->store.base.host->alert = ear >= 0 ? ear : master;
}

/* ---- what a fail-over may do to it ---- */

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

int64_t
redis_lease_for_switch(const struct redis *r, int64_t ttl, int64_t *takes)
{
	int64_t ms = r->route.sentinels ? sentinels_down_after(r->route.sentinels) : 0;

	*takes = ms > 0 ? ms * NS_PER_MS + SWITCH : 0;
	while (ms > 0 && !bears(ttl, ms * NS_PER_MS))
		ttl += NS_PER_S;
	return ttl;
}

/* With -v: that a fail-over is a loss with this lease. */
static void
redis_tell_down_after(struct redis *r)
{
	int64_t ttl = r->claim->ttl, takes,
		enough = r->store.base.host->verbose
	    ? redis_lease_for_switch(r, ttl, &takes)
	    : ttl;

	if (enough == ttl || r->down_after)
		return;
	r->down_after = true;
	fault_set(&r->store.base.host->notice, RC_OK,
	    "%s: a fail-over takes at least %.1f s (down-after-milliseconds %lld, and 2.5 s), "
	    "longer than a lease of %.0f s allows: the lock would be lost; use --ttl %llds",
	    r->store.where, (double)takes / NS_PER_S, (long long)ns_to_ms(takes - SWITCH),
	    (double)ttl / NS_PER_S, (long long)(enough / NS_PER_S + 1));
}

/* ---- an operation, and its answer ---- */

enum rc
redis_refused(struct redis *r, const struct request *q, char *text, struct fault *f)
{
	bool lost = q->operation != ACQUIRE && resp_says(text, "WRONGTYPE");
	/* it was the master when we queued: a fail-over may be under way, and end here */
	bool demoted = q->operation == ACQUIRE && r->queued &&
	    resp_says(text, "READONLY");
	enum rc rc = peer_refuses(
	    &r->route.server.peer, false, r->names.keys[0], text, f);

	return lost ? RC_LOST : demoted ? RC_AGAIN : rc;
}

static enum rc
redis_run_script(struct redis *r, const struct request *q, instant until,
    struct answer *a, struct fault *f)
{
	struct question how = {.ping_first = q->operation == RELEASE,
	    .inspect = (q->operation == RENEW && instant_now() >= r->hold.inspect_from) ||
		(q->operation == ACQUIRE && r->store.base.host->verbose),
	    .claimed = q->operation != RELEASE,
	    .settles = q->operation == RELEASE && q->held,
	    .replicas = q->operation == RELEASE && !q->counts ? 0 : r->store.replicas};
	const struct dialect *d = r->store.dialect;
	struct script_call call;
	redisReply *reply;
	enum rc rc;

	dialect_say(d, &call, &r->names, r->claim, q);
	rc = script_ask(&r->route, &call, how, until, &reply, f);
	if (rc != RC_OK)
		return rc;
	if (reply->type != REDIS_REPLY_ERROR)
		rc = answer_read(a, reply, q->operation) ? RC_OK
							 : script_nonsense(&r->route, f);
	else if (!d->plain || !resp_is_no_scripts(reply->str))
		rc = redis_refused(r, q, reply->str, f);
	else if (r->store.replicas)
		rc = fault_set(f, RC_CONFIG,
		    "%s runs no scripts for us ('%.150s'), which -O wait-replicas= needs",
		    r->route.server.peer.where, reply->str);
	else
		r->plainly = true;
	freeReplyObject(reply);
	return rc;
}

/*
 * RC_OK: *answer, and route.sent is just before the request left that was answered.
 * RC_LOST: the key is no lock any more.  Else as route_ask().
 */
static enum rc
redis_run(struct redis *r, const struct request *q, instant until, struct answer *a,
    struct fault *f)
{
	enum rc rc = RC_OK;

	r->route.repeated = false;
	if (!r->plainly)
		rc = redis_run_script(r, q, until, a, f);
	return rc == RC_OK && r->plainly ? transaction_run(r, q, until, a, f) : rc;
}

bool
redis_is_replicated(const struct redis *r, struct fault *f)
{
	const struct server *s = r->route.answered;
	int64_t got = s->acknowledged;

	if (r->store.replicas == 0 || got >= r->store.replicas)
		return true;
	if (*s->unacknowledged.text)
		fault_set(f, RC_AGAIN, "%.600s (wait-replicas)", s->unacknowledged.text);
	else
		fault_set(f, RC_AGAIN,
		    "%s: %d of its replicas confirmed the lock, not %d (wait-replicas)",
		    s->peer.where, got > 0 ? (int)got : 0, r->store.replicas);
	return false;
}

/* ---- acquire ---- */

/* What replicas did not confirm does not count: it is given back, and asked for again. */
static enum rc
redis_granted(struct redis *r, const struct answer *a, struct grant *g, struct fault *f)
{
	struct request back = {.operation = RELEASE, .outcome = NO_OUTCOME};
	struct answer given;
	struct fault ignored;

	if (r->claim->kind == KIND_LIMIT && a->slot >= r->claim->limit)
		return fault_set(f, RC_PROTOCOL,
		    "%s gave slot %u of a lock with --limit %u", r->store.where, a->slot,
		    r->claim->limit);
	if (!redis_is_replicated(r, f)) {
		redis_run(r, &back, instant_now() + WITHDRAWAL, &given, &ignored);
		return RC_AGAIN;
	}
	r->hold.is = true;
	r->hold.unsure = false;
	r->hold.token = a->token;
	r->hold.slot = a->slot;
	r->hold.inspect_from = r->route.sent + r->claim->ttl / 3;
	*g = (struct grant){.token = a->token,
	    .slot = a->slot,
	    .sent = r->route.sent,
	    .lease = r->claim->ttl,
	    .soon = redis_can_hear(r) ? instant_first(FIRST_RENEWAL, r->claim->ttl / 3)
				      : 0,
	    .anchor = -1};
	redis_watch(r);
	return RC_OK;
}

/* The script has made us leave the queue, or give up the grant by which we were woken. */
static enum rc
redis_skipped(struct redis *r, struct answer *a, struct fault *f)
{
	const struct job *job = &r->claim->job;

	if (a->code == ANSWER_DONE ? !job->once : job->cooldown <= 0)
		return fault_set(f, RC_PROTOCOL,
		    "%s sent an answer that does not fit the question", r->store.where);
	r->route.asked = false; /* nothing is left there to be given back */
	if (a->code == ANSWER_RECENT)
		return refuse_recent(f, job, a->age_ms * NS_PER_MS);
	return refuse_done(
	    r->store.base.host, f, job, (int)a->status, a->began_ms, a->who);
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
	struct host *host = r->store.base.host;
	enum rc rc = redis_run(r, &q, until, a, f);

	if (rc != RC_OK)
		return rc;
	redis_tell_down_after(r);
	switch (a->code) {
	case ANSWER_HOLDER:
		return redis_granted(r, a, g, f);
	case ANSWER_NOT_HOLDER:
		r->queue.ticket = a->ticket;
		host->seen.position = a->place;
		host->seen.holding = a->holding;
		return RC_OK;
	case ANSWER_DONE:
	case ANSWER_RECENT:
		return redis_skipped(r, a, f);
	default:
		return refuse_kind(
		    f, r->store.where, a->holding.kind, a->holding.limit, r->claim);
	}
}

/* The last one before `until` may have no time for an answer: why it failed was said before. */
static enum rc
redis_ask_first(
    struct redis *r, instant until, struct grant *g, struct answer *a, struct fault *f)
{
	instant ends = retry_attempt(&r->store.patience, until);
	bool brief = r->store.patience.tries > 0 && ends - instant_now() < BRIEF;
	struct fault before;
	enum rc rc;

	if (brief)
		before = *f;
	rc = redis_ask_lock(r, until ? QUEUE_ALIVE : 0, ends, g, a, f);
	if (brief && rc == RC_AGAIN && instant_now() >= ends)
		*f = before;
	return rc;
}

/* The server's clock names the period of a job, and with that one of its keys. */
static enum rc
redis_name_period(struct redis *r, instant until, struct fault *f)
{
	const struct claim *claim = r->claim;
	struct script_call c;
	redisReply *reply;
	int64_t us;
	enum rc rc;

	if (!claim->job.per || *claim->job.per->id)
		return RC_OK;
	script_begin(&c, r->store.dialect->claims);
	for (int i = 0; i < r->names.nkeys; i++)
		script_key(&c, r->names.keys[i]);
	script_word(&c, "clock");
	script_word(&c, claim->owner);
	rc = script_run(&r->route, &c, until, &reply, f, "i", &us);
	if (rc != RC_OK)
		return rc;
	freeReplyObject(reply);
	rc = job_name_period(&claim->job, us, r->store.where, f);
	dialect_name(r->store.dialect, &r->names, r->store.address.form, claim);
	return rc;
}

/*
 * One attempt: asks, after waiting for a reason to if we are in the queue; that a server which
 * was away may be back is one.  Each is bounded by itself; retry.h says how many there are.
 */
static enum rc
redis_attempt(
    struct redis *r, instant until, struct grant *g, struct answer *a, struct fault *f)
{
	enum rc rc = RC_OK;

	if (!r->queued) {
		rc = redis_name_period(r, retry_attempt(&r->store.patience, until), f);
		return rc == RC_OK ? redis_ask_first(r, until, g, a, f) : rc;
	}
	if (!retry_is_outage(&r->store.patience))
		rc = queue_wait(&r->queue, &r->names, r->claim->owner, a, until, f);
	if (rc == RC_BUSY)
		return fault_set(f, rc, "%s: still held", r->store.where);
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
	struct claim named = *claim;
	enum rc rc;

	r->claim = claim;
	r->queued = false;
	named.key = store_key(&r->store, claim->key);
	dialect_name(r->store.dialect, &r->names, r->store.address.form, &named);
	retry_begin(&r->store.patience, claim);
	do {
		rc = redis_attempt(r, until, g, &a, f);
		if (rc == RC_OK) {
			retry_end_outage(&r->store.patience);
			r->queued = true;
		} else {
			rc = retry_wait(
			    &r->store.patience, s->host, rc, r->queued, until);
		}
	} while (rc == RC_OK && !r->hold.is && until);
	if (rc != RC_OK || r->hold.is)
		return rc;
	r->route.asked = false; /* who does not queue leaves nothing */
	return fault_set(
	    f, RC_BUSY, "%s: %s", r->store.where, a.holding.frozen ? "frozen" : "held");
}

/* ---- renew and release ---- */

static enum rc
redis_revoked(struct redis *r, enum rc rc, struct answer *a, struct fault *f)
{
	return refuse_broken(r->store.base.host, f, rc, r->store.where, a->who);
}

static enum rc
redis_lost(const struct redis *r, struct fault *f)
{
	return fault_set(f, RC_LOST,
	    "%s no longer names us as the holder: the lock expired or was deleted, or the server lost its data",
	    r->route.server.peer.where);
}

static enum rc
redis_renewed(struct redis *r, struct answer *a, struct grant *g, struct fault *f)
{
	if (a->code == ANSWER_NOT_HOLDER && *a->who)
		return redis_revoked(r, RC_LOST, a, f);
	if (a->code == ANSWER_NOT_HOLDER || a->token != r->hold.token ||
	    a->slot != r->hold.slot)
		return redis_lost(r, f);
	if (!redis_is_replicated(r, f))
		return RC_AGAIN;
	g->sent = r->route.sent;
	g->lease = r->claim->ttl;
	g->soon = 0;
	return a->code == ANSWER_REVOKED ? redis_revoked(r, RC_REVOKED, a, f) : RC_OK;
}

/*
 * Begins to listen, unless we do.  When the next renewal is due: 0 as usual, else so early that what
 * was not heard is known, or that this can be tried again.
 */
static int64_t
redis_hear(struct redis *r, bool anew, instant until)
{
	int64_t last = r->unheard, ttl = r->claim->ttl;

	r->unheard = 0;
	if (anew) /* as each renewal is where a proxy ends idle connections (alert.h) */
		return instant_first(
		    alert_space(ttl) > SETTLED ? alert_space(ttl) : SETTLED, ttl / 3);
	if (queue_hear(&r->queue, &r->names, until))
		return AT_ONCE;
	if (!queue_is_subscribed(&r->queue) && !r->queue.deaf)
		r->unheard = alert_unheard(ttl, last);
	return r->unheard;
}

/*
 * Renewals come first, those of others, too: what only listens is to cost no hold.  So whoever has
 * lost a connection gives the other one back, and listens again when renewals are regular.
 */
static enum rc
redis_renew(struct store *s, instant until, struct grant *g, struct fault *f)
{
	struct redis *r = redis_of(s);
	struct answer a = {.code = ANSWER_NOT_HOLDER};
	unsigned before = r->route.server.peer.begun;
	bool anew;
	enum rc rc;

	if (redis_can_hear(r))
		queue_forget_messages(&r->queue);
	else /* not when we were granted: that would have kept the command waiting */
		server_close(&r->queue.listener);
	rc = redis_run(r, &(struct request){.operation = RENEW, .token = r->hold.token},
	    until, &a, f);
	anew = r->route.server.peer.begun != before;
	if (anew || rc != RC_OK)
		server_close(&r->queue.listener);
	if (rc == RC_OK)
		rc = redis_renewed(r, &a, g, f);
	else if (rc != RC_STOP && rc != RC_LOST)
		rc = RC_AGAIN;
	if (rc == RC_OK && redis_can_hear(r))
		g->soon = redis_hear(r, anew, until);
	redis_watch(r);
	return rc;
}

/* The lock is given back, but that the run ended so could not be written down. */
static void
redis_note_unremembered(struct redis *r, int status)
{
	const struct job *job = &r->claim->job;

	job_note_unshown(r->store.base.host, job, r->store.where, status);
	if (job_is_wanted(job))
		fault_set(&r->store.base.host->notice, RC_OK,
		    "%s could not record that this run ended with %d: the job does not count as done",
		    r->store.where, status);
}

static enum rc
redis_release(struct store *s, struct outcome o, instant until, struct fault *f)
{
	struct redis *r = redis_of(s);
	struct request back = {.operation = RELEASE, .held = r->hold.is, .outcome = o};
	struct answer a = {.code = ANSWER_NOT_HOLDER};
	enum rc rc;

	r->store.base.host->alert = -1;
	if (!r->route.asked)
		return RC_OK;
	back.counts = r->hold.is && job_is_wanted(&r->claim->job) &&
	    (o.status == 0 || (o.ended && r->claim->job.no_retry));
	rc = redis_run(r, &back, until, &a, f);
	/* a user who may not write what is only shown keeps the lock for nobody */
	if (rc == RC_DENIED && job_is_shown(&r->claim->job)) {
		redis_note_unremembered(r, o.status);
		back.outcome = NO_OUTCOME;
		rc = redis_run(r, &back, until, &a, f);
	}
	if (rc == RC_OK && a.code == ANSWER_UNREMEMBERED)
		redis_note_unremembered(r, o.status);
	/* a fail-over would forget the run, and the job would be run again */
	if (rc == RC_OK && a.code != ANSWER_NOT_HOLDER && back.counts)
		r->hold.unsure = !redis_is_replicated(r, f);
	if (rc == RC_OK && r->hold.unsure)
		return a.code == ANSWER_NOT_HOLDER
		    ? fault_set(f, RC_AGAIN,
			  "%s: its replicas have not confirmed the run", r->store.where)
		    : RC_AGAIN;
	/* it was not ours any more, or the first one that asked has given it back */
	if (rc == RC_OK && a.code == ANSWER_NOT_HOLDER && r->hold.is && *a.who)
		rc = redis_revoked(r, RC_LOST, &a, f);
	else if (rc == RC_OK && a.code == ANSWER_NOT_HOLDER && r->hold.is)
		rc = r->route.repeated
		    ? fault_set(f, RC_AGAIN,
			  "%s closed the connection before it answered", r->store.where)
		    : redis_lost(r, f);
	if (rc == RC_OK || rc == RC_LOST)
		r->route.asked = r->hold.is = false;
	return rc;
}

/* The lock of each lies in one slot; those of two keys only where a tag says so. */
static enum rc
redis_together(struct store *s, const char *key, const char *other, struct fault *f)
{
	struct redis *r = redis_of(s);

	if (r->store.address.form != FORM_CLUSTER || strcmp(key, other) == 0 ||
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
    .user_needs_password = true,
    .settings = redis_settings,
    .url_help = "redis" TLS_SCHEME
		"://[user:password@]host[:port][/db], redis+unix:///path,\n"
		"redis" TLS_SCHEME "+sentinel://host,host/MASTER[/db],\n"
		"redis" TLS_SCHEME "+cluster://host,host, redlock" TLS_SCHEME
		"://host,host,host",
    .open = redis_open,
    .close = redis_close,
    .identify = redis_identify,
    .together = redis_together,
    .lock = &(const struct lock_ops){redis_acquire, redis_renew, redis_release},
    .admin = &(const struct admin_ops){look_each, steer_revoke, steer_freeze, steer_thaw,
	steer_forget, redis_check, look_beside},
};
