/*
 * acquire.c - takes a lock in etcd, or waits for it.
 *
 * What is asked, each in one packet:
 *
 *  1. First: the lease, and a transaction that puts our key if nobody is in the queue and
 *     there is no freeze.  Otherwise it is a survey (queue.h).
 *  2. Who is to wait gets a lease for its place, and joins the queue with it.
 *  3. While it waits, it renews both leases.
 *  4. When nobody is in the way any more, and with --limit all before us have their permits:
 *     a transaction that puts our key once more, as held,
 *     with the lease of the hold; before it the lease itself, where that may not be there.
 *     The key is put only if it is the one that has stood there all the time, and there is
 *     no freeze.  Otherwise it is a survey.
 */
#include "etcd.h"

#include "backends/common/job.h"
#include "backends/common/refuse.h"

#include <poll.h>
#include <stdio.h>
#include <string.h>

/* Of a place in the queue: longer than a waiter may be away (RETRY_RETURN). */
#define PLACE_LEASE (10 * NS_PER_S)
#define FIRST_RENEWAL (500 * NS_PER_MS) /* when the hold is watched */
/* so long, and so often, -n looks whether those before it have taken their permits */
#define TURN_MOST NS_PER_S
#define TURN_PACE (20 * NS_PER_MS)

/* How often a waiter renews its leases: so often that that of the hold is always fresh. */
static int64_t
beat_of(const struct etcd *e)
{
	return instant_first(PLACE_LEASE, e->claim->ttl) / 3;
}

/* A length of time; one that is too long is cut, and one below 0 is 0. */
static int64_t
us_to_ns(int64_t us)
{
	return us < 0 ? 0 : (us < NEVER / 1000 ? us : NEVER / 1000) * 1000;
}

/* ---- what the user is told ---- */

/* RC_BUSY: somebody is before us, or it is frozen. */
static enum rc
say_busy(struct etcd *e, struct fault *f)
{
	struct holding *h = &e->base.host->seen.holding;
	const struct queue *q = &e->queue;
	const struct queue_entry *first = &q->first_holder;
	int64_t now = cluster_time(&e->cluster), since = EPOCH_NONE;
	const char *record = "";

	*h = (struct holding){
	    .kind = KIND_EXCLUSIVE, .holders = q->holders, .frozen = q->frozen};
	if (q->holders > 0) {
		h->kind = first->name.kind;
		h->limit = first->name.limit;
		since = first->value.since;
		record = first->value.record;
	} else if (q->frozen) {
		since = q->freeze.since;
		record = q->freeze.record;
	}
	h->held = since == EPOCH_NONE ? -1 : us_to_ns(now - since);
	snprintf(h->record, sizeof h->record, "%s", record);
	return fault_set(f, RC_BUSY, "%s: %s", e->server_name,
	    q->frozen && !q->holders ? "frozen" : "held");
}

/* Our place among those who wait.  Of a long queue only its head is read. */
static void
count_position(struct etcd *e)
{
	const struct queue *q = &e->queue;
	unsigned at = q->ahead - q->holders + 1;

	if (q->ahead >= HEAD && kind_is_exclusive(e->claim->kind))
		at = q->create == q->revision ? (unsigned)(q->count - q->holders)
		    : e->position > at        ? e->position - 1
					      : at;
	e->position = at;
	e->base.host->seen.position = q->create > 0 ? at : 0;
}

/* Is it used as another kind?  Has a run of this job ended with 0, so that nothing is to do? */
static enum rc
check_claim(const struct etcd *e, struct fault *f)
{
	const struct job *job = &e->claim->job;
	const struct queue *q = &e->queue;
	const struct run *done = q->same_id.token ? &q->same_id : &q->final;
	int64_t age = cluster_time(&e->cluster) - q->good.began;
	char who[RECORD_BYTES];

	if (q->mixed)
		return refuse_kind(f, e->server_name, q->other, q->other_limit, e->claim);
	if (job->once && done->token) {
		job_who(done->record, who, sizeof who);
		return refuse_done(e->base.host, f, job,
		    done == &q->final ? done->status : 0, done->began / 1000, who);
	}
	if (q->good.token && job_is_recent(job, age))
		return refuse_recent(f, job, us_to_ns(age));
	return RC_OK;
}

/* ---- taking it ---- */

static enum rc
fail_gone(const struct etcd *e, struct fault *f)
{
	return fault_set(f, RC_AGAIN, "%s: our lease has ended before we could use it",
	    e->server_name);
}

/* Adds our key: as held with the lease of the hold, or as waiting with that of its place. */
static void
put_own(const struct etcd *e, struct text *ops, bool held)
{
	struct queue_value v = {.held = held,
	    .since = cluster_time(&e->cluster),
	    .slot = held && e->claim->kind == KIND_LIMIT ? (int)e->slot : -1};
	char text[KV_VALUE_BYTES];

	snprintf(v.owner, sizeof v.owner, "%s", e->claim->owner);
	snprintf(v.record, sizeof v.record, "%s", e->claim->record);
	queue_value_write(text, &v);
	kv_op_put(ops, e->own, text, held ? e->lease : e->place_lease);
}

/* Reads a survey; and its other pages, where all who are before us matter. */
static enum rc
take_survey(struct etcd *e, const json_t *txn, size_t i, instant until, struct fault *f)
{
	struct queue *q = &e->queue;
	enum rc rc = RC_OK;

	queue_read(q, txn, i);
	while (rc == RC_OK && !q->whole && !kind_is_exclusive(e->claim->kind)) {
		const struct kv_range more = names_page(
		    q->names, PAGE, q->read_to, q->revision);
		int64_t before = q->read_to;
		json_t *page = cluster_answer(
		    &e->cluster, call_range(&more), until, &rc, f);

		if (page)
			queue_read_more(q, page);
		if (page && !q->whole && q->read_to <= before)
			rc = fault_set(f, RC_PROTOCOL,
			    "%s tells the same keys again: is this an etcd server?",
			    e->server_name);
		json_decref(page);
	}
	count_position(e);
	return rc;
}

/*
 * The lease was granted, or proved to be there (credit.h), by requests that left then: for so
 * many seconds; 0: it was not.
 */
static void
note_lease(struct etcd *e, int64_t ttl)
{
	if (ttl > 0) {
		e->lease_sent = e->cluster.sent;
		e->lease_ttl = etcd_lease_ns(ttl);
	}
}

/* Is more than half of it left? */
static bool
is_lease_fresh(const struct etcd *e)
{
	return e->lease_sent && instant_now() < e->lease_sent + e->lease_ttl / 2;
}

/* Our key has just been put as held, with the lease.  Where that is not proved, it is renewed. */
static enum rc
begin_hold(struct etcd *e, instant until, struct grant *g, struct fault *f)
{
	int64_t revision;
	enum rc rc;

	if (e->queue.create <= 0)
		return fault_set(f, RC_PROTOCOL,
		    "%s says that our key is there, and does not show it",
		    e->server_name);
	e->token = e->queue.create;
	e->began = cluster_time(&e->cluster);
	*g = (struct grant){.token = (uint64_t)e->token,
	    .slot = e->slot,
	    .sent = e->lease_sent,
	    .lease = e->lease_ttl,
	    .anchor = -1};
	rc = check_claim(e, f);
	if (rc == RC_OK && !is_lease_fresh(e))
		rc = etcd_renew_lease(e, until, g, &revision, f);
	if (rc == RC_REVOKED) /* somebody broke it while its answer was lost */
		rc = RC_OK;   /* the next renewal says so again */
	g->soon = instant_first(FIRST_RENEWAL, g->lease / 3);
	e->granted = rc == RC_OK;
	if (rc == RC_LOST)
		return fail_gone(e, f);
	return rc == RC_BUSY ? RC_AGAIN : rc; /* the fault says why it is not proved */
}

/*
 * Joins the queue, unless we are in it already.  RC_OK: and surveys it.  With another place, the
 * lease of the hold is another one, too.
 */
static enum rc
join(struct etcd *e, instant until, struct fault *f)
{
	struct txn t = {0};
	struct call calls[3], *txn;
	enum rc rc;
	int n = 0;

	e->place_lease = lease_of(e->claim->owner, e->claim->key, 2 * e->nth + 1);
	kv_if(&t.compare, e->own, NULL, "EQUAL", 0);
	put_own(e, &t.success, false);
	queue_ask(&e->queue, true, &t.success);
	queue_ask(&e->queue, true, &t.failure);
	if (!e->lease_sent)
		calls[n++] = call_grant(e->lease, e->claim->ttl);
	calls[n++] = call_grant(e->place_lease, PLACE_LEASE);
	*(txn = &calls[n++]) = call_txn(&t);
	rc = cluster_calls(&e->cluster, calls, n, until, f);
	e->beat = e->cluster.sent + beat_of(e);
	if (rc == RC_OK && txn->code != CODE_OK)
		rc = fail_gone(e, f);
	if (rc == RC_OK && !e->lease_sent)
		note_lease(e, kv_number(calls[0].answer, "TTL"));
	if (rc == RC_OK)
		rc = take_survey(e, txn->answer, call_has_succeeded(txn), until, f);
	calls_free(calls, n);
	return rc != RC_OK || e->queue.create ? rc : fail_gone(e, f);
}

/* Another place, with other leases; what we knew of our key is no more so. */
static void
name_place(struct etcd *e)
{
	const struct claim *c = e->claim;
	struct queue_name n;

	e->nth++;
	e->lease = lease_of(c->owner, c->key, 2 * e->nth);
	e->lease_sent = 0;
	e->queue.create = 0;
	queue_name_write(&n, e->lease, c->kind, c->limit);
	key_below(e->own, e->names.queue, n.text);
	key_below(e->mark, e->names.marks, n.text);
}

/*
 * Takes the lock: if nobody is in the queue; or from our place there.  Who is alone for itself
 * need not have seen that nobody is before it any more: the transaction asks.  RC_BUSY: not yet,
 * and this was a survey.
 */
static enum rc
take(struct etcd *e, instant until, struct grant *g, struct fault *f)
{
	struct queue *q = &e->queue;
	const struct names *l = &e->names;
	int64_t create = q->create;
	bool alone = kind_is_exclusive(e->claim->kind),
	     limited = e->claim->kind == KIND_LIMIT, taken;
	/* who is going to join surveys the queue then */
	bool others = create || !e->waits || !alone;
	char permit[LONG_BYTES];
	struct call calls[2], *txn;
	struct txn t = {0};
	enum rc rc;
	int n = 0;

	if (create)
		kv_if(&t.compare, e->own, NULL, "EQUAL", create);
	else
		kv_if(&t.compare, l->queue, l->queue_end, "EQUAL", 0);
	if (create && alone)
		kv_if(&t.compare, l->queue, l->queue_end, "GREATER", create - 1);
	kv_if(&t.compare, l->freeze, NULL, "EQUAL", 0);
	names_permit(permit, l, e->slot);
	/* or it is ours, by an answer that got lost */
	if (limited && !(create && q->value.held && q->value.slot == (int)e->slot))
		kv_if(&t.compare, permit, NULL, "EQUAL", 0);
	put_own(e, &t.success, true);
	if (limited)
		kv_op_put(&t.success, permit, "", e->lease);
	queue_ask(q, false, &t.success);
	queue_ask(q, others, &t.failure);
	if (!is_lease_fresh(e)) /* one that is there is renewed behind it */
		calls[n++] = call_grant(e->lease, e->claim->ttl);
	*(txn = &calls[n++]) = call_txn(&t);
	rc = cluster_calls(&e->cluster, calls, n, until, f);
	taken = rc == RC_OK && call_has_succeeded(txn);
	if (rc == RC_OK && txn->code != CODE_OK) {
		e->lease_sent = 0;
		rc = fail_gone(e, f);
	}
	if (rc == RC_OK && n > 1)
		note_lease(e, kv_number(calls[0].answer, "TTL"));
	if (rc == RC_OK)
		rc = take_survey(e, txn->answer, taken ? 1 + limited : 0, until, f);
	if (rc == RC_OK)
		rc = taken ? begin_hold(e, until, g, f) : say_busy(e, f);
	calls_free(calls, n);
	if (!taken && create && q->create != create)
		name_place(e);
	return rc;
}

/*
 * One of N takes the permit that it was given already (the answer got lost), or the lowest one
 * that no holder has.  One that stands there without its holder is passed over until its lease
 * ends.
 */
static enum rc
claim_permit(struct etcd *e, instant until, struct grant *g, struct fault *f)
{
	struct queue *q = &e->queue;
	unsigned least = 0;
	enum rc rc = RC_BUSY;

	while (rc == RC_BUSY && q->create && !q->frozen && queue_lets_in(q)) {
		e->slot = q->value.held && q->value.slot >= 0 ? (unsigned)q->value.slot
							      : queue_permit(q, least);
		if (e->slot >= e->claim->limit)
			break;
		rc = take(e, until, g, f);
		least = e->slot + 1;
	}
	return rc == RC_BUSY ? say_busy(e, f) : rc;
}

/* A freeze whose time is over is deleted by whoever meets it. */
static enum rc
end_freeze(struct etcd *e, instant until, struct fault *f)
{
	const struct queue *q = &e->queue;
	struct txn t = {0};
	enum rc rc;

	if (!q->frozen || q->freeze.until == EPOCH_NONE ||
	    cluster_time(&e->cluster) < q->freeze.until)
		return RC_OK;
	kv_if_unchanged(&t.compare, e->names.freeze, q->freeze_modified);
	kv_op_delete(&t.success, e->names.freeze, NULL);
	json_decref(cluster_answer(&e->cluster, call_txn(&t), until, &rc, f));
	if (rc == RC_OK)
		e->queue.frozen = false;
	return rc;
}

/* The server's clock names the period of a job, before it is asked whether that is done. */
static enum rc
name_period(struct etcd *e, instant until, struct fault *f)
{
	const struct job *job = &e->claim->job;
	enum rc rc;

	if (!job->per || *job->per->id)
		return RC_OK;
	e->cluster.date = 0;
	json_decref(cluster_answer(&e->cluster, etcd_call_read(e), until, &rc, f));
	return rc == RC_OK
	    ? job_name_period(job, e->cluster.date > 0 ? cluster_time(&e->cluster) : -1,
		  e->server_name, f)
	    : rc;
}

/* What the survey means: must we give up?  Is only a freeze in the way that is over? */
static enum rc
heed_survey(struct etcd *e, instant until, struct fault *f)
{
	enum rc rc = check_claim(e, f);

	return rc == RC_OK ? end_freeze(e, until, f) : rc;
}

static enum rc
survey(struct etcd *e, instant until, struct fault *f)
{
	struct txn t = {0};
	enum rc rc;
	json_t *answer;

	queue_ask(&e->queue, true, &t.success);
	answer = cluster_answer(&e->cluster, call_txn(&t), until, &rc, f);
	if (answer)
		rc = take_survey(e, answer, 0, until, f);
	json_decref(answer);
	return rc;
}

/*
 * There is a permit for everybody before us, and one for us, but they have yet to take theirs.
 * Who does not wait gives them the moment that this needs.
 */
static enum rc
await_permits(struct etcd *e, instant until, struct fault *f)
{
	struct host *host = e->base.host;
	const struct queue *q = &e->queue;
	instant most = instant_first(until, instant_now() + TURN_MOST);
	enum rc rc = RC_OK;

	while (rc == RC_OK && q->create && !q->frozen && queue_has_room(q) &&
	    !queue_lets_in(q) && instant_now() < most) {
		if (host->wait(host, -1, 0, instant_now() + TURN_PACE) == WOKE_STOP)
			return RC_STOP;
		rc = survey(e, until, f);
	}
	return rc;
}

/*
 * One attempt.  RC_OK: granted.  RC_BUSY: not yet.  Who has seen that there is a queue does not try
 * again to take the lock at once when an answer is late: that reads the whole queue.  Who does not
 * wait joins it only beside those with whom it may hold the lock at once.
 */
static enum rc
attempt(struct etcd *e, instant until, struct grant *g, struct fault *f)
{
	struct queue *q = &e->queue;
	bool alone = kind_is_exclusive(e->claim->kind), surveyed = !q->create;
	enum rc rc = RC_OK;

	if (!q->create && !e->busy) {
		e->slot = 0;
		rc = name_period(e, until, f);
		if (rc == RC_OK)
			rc = take(e, until, g, f);
		if (rc == RC_BUSY)
			rc = heed_survey(e, until, f);
		else
			return rc;
		e->busy = e->waits || (!q->frozen && queue_has_room(q)) || q->create;
		if (rc == RC_OK && !e->busy)
			return say_busy(e, f);
	}
	if (rc == RC_OK && surveyed)
		rc = join(e, until, f);
	if (rc == RC_OK && (surveyed ? alone && !q->whole : !alone))
		rc = survey(e, until, f);
	if (rc == RC_OK && !e->waits)
		rc = await_permits(e, until, f);
	if (rc == RC_OK)
		rc = heed_survey(e, until, f);
	if (rc != RC_OK)
		return rc;
	if (!q->create)
		name_place(e);
	if (!q->create || ((surveyed || !alone) && (q->frozen || !queue_lets_in(q))))
		return say_busy(e, f);
	return e->claim->kind == KIND_LIMIT ? claim_permit(e, until, g, f)
					    : take(e, until, g, f);
}

/*
 * Renews our place; now and then also the lease of a hold to come, which then need not be granted
 * when our turn has come, and looks whether our key is there and who is watched, since a watch may
 * fall silent.  RC_OK: it does so, or we have lost our place.
 */
static enum rc
renew_place(
    struct etcd *e, const struct watched *w, bool *events, instant until, struct fault *f)
{
	int64_t often = instant_first(e->claim->ttl / 3, PLACE_LEASE);
	bool all = e->adrift || instant_now() >= e->lease_sent + often;
	const struct kv_range own = {.key = e->own},
			      other = {.key = w->key, .end = w->end, .count_only = true};
	struct call calls[4] = {call_lease("/v3/lease/keepalive", e->place_lease)};
	struct kv kv;
	enum rc rc;

	if (all) {
		calls[1] = call_range(&own);
		calls[2] = call_lease("/v3/lease/keepalive", e->lease);
		calls[3] = call_range(&other);
	}
	e->cluster.answer_by = 0; /* meanwhile nothing else renews the place */
	rc = cluster_calls(&e->cluster, calls, all ? 4 : 1, until, f);
	if (rc == RC_OK)
		e->beat = e->cluster.sent + beat_of(e);
	if (rc == RC_OK && all) {
		struct credit c = credit_of(&calls[1], calls[3].code == CODE_OK);

		if (credit_proves(&c))
			note_lease(e, c.ttl);
		e->queue.revision = kv_header(calls[1].answer, "revision");
		/* that there are many, or one that may have been written again, says nothing */
		*events = w->end || w->puts || kv_number(calls[3].answer, "count") == 0;
		if (!kv_read(&kv, calls[1].answer, 0) || kv.create != e->queue.create)
			name_place(e);
	} else if (rc == RC_OK && kv_number(calls[0].answer, "TTL") <= 0) {
		/* our key may be on the other lease already */
		e->lease_sent = e->beat = 0;
	}
	calls_free(calls, 4);
	return rc;
}

/*
 * Sleeps until something has happened that may let us in.  RC_OK: ask again.  RC_BUSY: `until`
 * has come.  RC_AGAIN: the server does not answer.  Who has lost the watch, but not its place, goes
 * on with reads: if a thousand asked for the lock by a write whenever an answer is late, all
 * answers would be late.
 */
static enum rc
await_turn(struct etcd *e, instant until, struct fault *f)
{
	struct host *host = e->base.host;
	const struct queue *q = &e->queue;
	struct watch_list w;
	bool events = false, silent = false;
	enum rc rc = RC_OK;
	instant thaws = NEVER;

	queue_watch(q, &w);
	if (e->adrift)
		rc = renew_place(e, &w.at[1], &events,
		    retry_answer(instant_now(), ANSWER_MOST, until), f);
	if (rc != RC_OK)
		return rc;
	e->adrift = false;
	retry_end_outage(&e->retry);
	if (q->frozen && q->freeze.until != EPOCH_NONE)
		thaws = instant_after(instant_now() + NS_PER_MS,
		    us_to_ns(q->freeze.until - cluster_time(&e->cluster)));
	if (q->create && !events)
		rc = watch_begin(&e->cluster, w.at, q->revision + 1,
		    retry_answer(instant_now(), ANSWER_MOST, until), f);
	while (rc == RC_OK && q->create && !events && !silent && instant_now() < thaws) {
		instant wake = instant_first(instant_first(e->beat, thaws), until);
		enum woke woke = host->wait(
		    host, e->cluster.watch.stream.fd, POLLIN, wake);

		if (woke == WOKE_STOP)
			return RC_STOP;
		if (woke == WOKE_READY && instant_now() < wake)
			rc = watch_read(&e->cluster, &events, wake, f);
		if (rc == RC_AGAIN && instant_now() >= wake) /* it told a part */
			rc = RC_OK;
		if (rc == RC_OK && !events && instant_now() >= until)
			return say_busy(e, f);
		if (rc == RC_OK && !events && instant_now() >= e->beat)
			rc = renew_place(e, &w.at[1], &events,
			    retry_answer(instant_now(), ANSWER_MOST, until), f);
		/* the watched member was passed over, or its watch has ended */
		silent = e->cluster.watched != e->cluster.member ||
		    e->cluster.watch.stream.fd < 0;
	}
	e->adrift = q->create && !events && (rc == RC_AGAIN || (rc == RC_OK && silent));
	return rc;
}

static void
start_claim(struct etcd *e, const struct claim *claim)
{
	e->claim = claim;
	names_of(&e->names, e->root, e->name, claim->key);
	e->queue.names = &e->names;
	e->queue.claim = claim;
	e->queue.own = e->own;
	e->asked = true;
	e->granted = e->busy = e->adrift = false;
	e->place_lease = 0;
	name_place(e);
	retry_begin(&e->retry, claim);
}

enum rc
etcd_acquire(struct store *s, const struct claim *claim, instant until, struct grant *g,
    struct fault *f)
{
	struct etcd *e = etcd_of(s);
	instant began = instant_now();
	bool heard = false;
	enum rc rc;

	start_claim(e, claim);
	e->waits = until != 0;
	do {
		instant by = heard ? retry_answer(instant_now(), ANSWER_MOST, until)
				   : retry_attempt(&e->retry, until);

		e->cluster.answer_by = e->waits ? instant_after(until, NS_PER_S) : 0;
		rc = e->adrift ? RC_BUSY : attempt(e, by, g, f);
		heard = heard || e->cluster.dated >= began;
		if (rc == RC_BUSY && until)
			rc = await_turn(e, until, f);
		if (rc == RC_AGAIN)
			http_close(&e->cluster.watch);
		rc = retry_wait(&e->retry, s->host, rc, heard, until);
	} while (rc == RC_OK && !e->granted);
	e->cluster.answer_by = 0;
	http_close(&e->cluster.watch);
	if (rc == RC_OK)
		rc = etcd_warn_of_version(e, instant_now() + NS_PER_S);
	if (rc == RC_DONE) {
		struct fault ignored;

		if (etcd_lock.release(
			s, NO_OUTCOME, instant_now() + NS_PER_S, &ignored) == RC_STOP)
			return RC_STOP;
	}
	return rc;
}
