/*
 * lock.c - holds a lock in etcd: acquire, renew, release.
 *
 * What is asked, each in one packet:
 *
 *  1. First: the lease, and a transaction that puts our key if nobody is in the queue and
 *     there is no freeze.  Otherwise it is a survey (queue.h).
 *  2. Who is to wait gets a lease for its place, and joins the queue with it.
 *  3. When nobody is in the way any more: the lease, a keep-alive of it, and a transaction
 *     that puts our key once more, as held, with that lease.  It is made only if our key is
 *     the one that has stood there all the time, and there is no freeze.  Otherwise it is a
 *     survey.
 *  4. A renewal is a keep-alive and a read of our key and of the mark beside it (credit.h).
 *  5. A release deletes our key, writes what is remembered of a job, and revokes the leases.
 */
#include "etcd.h"

#include "backends/common/text.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Of a place in the queue: longer than a waiter may be away (RETRY_RETURN). */
#define PLACE_LEASE (12 * NS_PER_S)
#define ANSWER_MOST (5 * NS_PER_S) /* for an answer while waiting */
#define WATCH_MOST (2 * NS_PER_S)  /* to open one under a hold */

enum {
	TRIES = 3,      /* of a proof that came to nothing */
	CALLS_MOST = 4, /* in one packet */
	RUN_DAYS = 400, /* so long runs are remembered */
	PERMIT_KEY_BYTES = QUEUE_BYTES + 16,
};

/* etcd counts in seconds. */
static int64_t
lease_seconds(int64_t ns)
{
	return (ns_to_ms(ns) + 999) / 1000;
}

static int64_t
place_ttl(const struct etcd *e)
{
	return instant_first(PLACE_LEASE, e->claim->ttl);
}

/* ---- calls ---- */

static struct call
call_grant(int64_t lease, int64_t ttl)
{
	return (struct call){"/v3/lease/grant",
	    json_pack("{s:I, s:I}", "ID", (json_int_t)lease, "TTL",
		(json_int_t)lease_seconds(ttl)),
	    NULL, 0};
}

static struct call
call_lease(const char *path, int64_t lease)
{
	return (struct call){path, json_pack("{s:I}", "ID", (json_int_t)lease), NULL, 0};
}

static struct call
call_txn(json_t *compare, json_t *success, json_t *failure)
{
	return (struct call){"/v3/kv/txn", kv_txn(compare, success, failure), NULL, 0};
}

static bool
has_succeeded(const struct call *txn)
{
	return json_is_true(json_object_get(txn->answer, "succeeded"));
}

static enum rc
ask(struct etcd *e, struct call *calls, int n, instant until, instant *sent,
    struct fault *f)
{
	bool repeated;

	e->asked = true;
	return cluster_calls(&e->cluster, calls, n, until, sent, &repeated, f);
}

static const char *
permit_key(const struct etcd *e, unsigned slot, char out[PERMIT_KEY_BYTES])
{
	snprintf(out, PERMIT_KEY_BYTES, "%s%06u", e->names.permits, slot);
	return out;
}

/* Adds what makes the hold ours to a transaction: our key, and one of N's permit. */
static void
add_hold(struct etcd *e, json_t *compare, json_t *success)
{
	struct queue_value v = {.held = true,
	    .since = cluster_time(&e->cluster),
	    .slot = e->claim->kind == KIND_LIMIT ? (int)e->slot : -1};
	char text[KV_VALUE_BYTES], permit[PERMIT_KEY_BYTES];

	snprintf(v.owner, sizeof v.owner, "%s", e->claim->owner);
	snprintf(v.record, sizeof v.record, "%s", e->claim->record);
	queue_value_write(text, &v);
	json_array_append_new(compare, kv_if(e->names.freeze, NULL, "EQUAL", 0));
	json_array_append_new(success, kv_op_put(e->own, text, e->lease));
	if (e->claim->kind != KIND_LIMIT)
		return;
	permit_key(e, e->slot, permit);
	json_array_append_new(compare, kv_if(permit, NULL, "EQUAL", 0));
	json_array_append_new(success, kv_op_put(permit, "", e->lease));
}

/* ---- what the user is told ---- */

static enum rc
fail_gone(const struct etcd *e, struct fault *f)
{
	return fault_set(f, RC_AGAIN, "%s: our lease has ended before we could use it",
	    e->server_name);
}

/* RC_BUSY: somebody is before us, or it is frozen. */
static enum rc
fail_busy(struct etcd *e, struct fault *f)
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
	}
	if (q->frozen) {
		since = q->freeze.since;
		record = q->freeze.record;
	}
	h->held = since == EPOCH_NONE ? -1 : now > since ? (now - since) * 1000 : 0;
	snprintf(h->record, sizeof h->record, "%s", record);
	secret_blot(h->record, e->address.password);
	return fault_set(f, RC_BUSY, "%s: %s", e->server_name,
	    q->frozen && !q->holders ? "frozen" : "held");
}

/* Our place among those who wait.  Of a long queue only its head is read. */
static void
count_position(struct etcd *e)
{
	const struct queue *q = &e->queue;
	unsigned at = q->ahead - q->holders + 1;

	if (q->ahead >= PAGE && kind_is_exclusive(e->claim->kind))
		at = q->create == q->revision ? (unsigned)(q->count - q->holders)
		    : e->position > at        ? e->position - 1
					      : at;
	e->position = at;
	e->base.host->seen.position = q->create > 0 ? at : 0;
}

/* Has a run of this job ended with 0 already, so that there is nothing to do? */
static enum rc
check_job(const struct etcd *e, struct fault *f)
{
	const struct job *job = &e->claim->job;
	const struct queue *q = &e->queue;
	int64_t age = cluster_time(&e->cluster) - q->good.began;

	if (job->once && q->same_id.token)
		return refuse_done(f, job, q->same_id.began / 1000, "");
	if (job->cooldown > 0 && q->good.token && age < job->cooldown / 1000)
		return refuse_recent(f, job, age > 0 ? age * 1000 : 0);
	return RC_OK;
}

/*
 * Once, with -v: versions in which an old leader that wakes up may end leases that live
 * (etcd #12528).
 */
static void
warn_of_version(struct etcd *e, instant until)
{
	struct call call = {"/v3/maintenance/status", json_object(), NULL, 0};
	int major = 0, minor = 0, patch = 0;
	struct fault ignored;
	const char *version;
	instant sent;

	if (e->warned || !e->base.host->verbose)
		return;
	e->warned = true;
	if (ask(e, &call, 1, until, &sent, &ignored) == RC_OK) {
		version = json_string_value(json_object_get(call.answer, "version"));
		if (version && sscanf(version, "%d.%d.%d", &major, &minor, &patch) == 3 &&
		    major == 3 && minor < 6 && patch < (minor == 5 ? 13 : 31))
			fault_set(&e->base.host->notice, RC_OK,
			    "%s is version %d.%d.%d, where a leader that was stopped for seconds may end leases that live when it goes on (mended in 3.4.31 and 3.5.13); see dlock-etcd(7)",
			    e->server_name, major, minor, patch);
	}
	calls_free(&call, 1);
}

/* ---- renew ---- */

/* RC_LOST, with the record of who took it by force, if any. */
static enum rc
fail_lost(struct etcd *e, const json_t *mark, struct fault *f)
{
	struct kv kv;

	if (kv_read(&kv, mark, 0)) {
		secret_blot(kv.value, e->address.password);
		return refuse_broken(e->base.host, f, RC_LOST, e->server_name, kv.value);
	}
	return fault_set(f, RC_LOST,
	    "%s no longer has it as ours: its lease has ended, or its key was deleted",
	    e->server_name);
}

/* Opens the watch of our key and of its mark, which wakes the keeper; without it: later. */
static void
watch_hold(struct etcd *e, int64_t revision)
{
	const struct watched keys[] = {
	    {e->own, NULL, .deletions = true}, {e->mark, NULL, .puts = true}};
	struct fault ignored;
	bool events;

	if (watch_fd(&e->cluster) < 0 ||
	    watch_read(&e->cluster, &events, &ignored) != RC_OK)
		watch_begin(&e->cluster, keys, 2, revision + 1,
		    instant_now() + WATCH_MOST, &ignored);
	e->base.host->alert = watch_fd(&e->cluster);
}

/*
 * What the answers to a keep-alive and to a read of our key and its mark mean.  RC_BUSY: they
 * prove nothing.
 */
static enum rc
judge_renewal(struct etcd *e, const struct call *alive, const struct call *read,
    struct grant *g, struct fault *f)
{
	const json_t *mark = kv_response(read->answer, 1);
	int64_t ttl = kv_number(alive->answer, "TTL");
	struct kv own, m;

	if (read->code != CODE_OK)
		return fail_gone(e, f);
	if (!kv_read(&own, kv_response(read->answer, 0), 0) || own.create != e->token)
		return fail_lost(e, mark, f);
	if (alive->code != CODE_OK || ttl <= 0 ||
	    !credit_proves(&e->credit, kv_header(alive->answer, "raft_term"),
		kv_header(read->answer, "raft_term")))
		return fault_set(f, RC_BUSY,
		    "%s changes its leader: it cannot say how long our lease lasts",
		    e->server_name);
	g->lease = ttl * NS_PER_S;
	if (!kv_read(&m, mark, 0))
		return RC_OK;
	secret_blot(m.value, e->address.password);
	return refuse_broken(e->base.host, f, RC_REVOKED, e->server_name, m.value);
}

static enum rc
renew_lease(
    struct etcd *e, instant until, struct grant *g, int64_t *revision, struct fault *f)
{
	enum rc rc = RC_BUSY;
	instant sent;

	for (int i = 0; rc == RC_BUSY && i < TRIES; i++) {
		json_t *reads = json_array();
		struct call calls[2];

		json_array_append_new(
		    reads, kv_op_range(&(struct kv_range){.key = e->own}));
		json_array_append_new(
		    reads, kv_op_range(&(struct kv_range){.key = e->mark}));
		calls[0] = call_lease("/v3/lease/keepalive", e->lease);
		calls[1] = call_txn(json_array(), reads, NULL);
		rc = ask(e, calls, 2, until, &sent, f);
		if (rc == RC_OK)
			rc = judge_renewal(e, &calls[0], &calls[1], g, f);
		*revision = kv_header(calls[1].answer, "revision");
		calls_free(calls, 2);
		if (rc == RC_BUSY) /* perhaps of this member only */
			cluster_turn(&e->cluster);
	}
	if (rc == RC_OK || rc == RC_REVOKED)
		g->sent = sent;
	return rc;
}

static enum rc
etcd_renew(struct store *s, instant until, struct grant *g, struct fault *f)
{
	struct etcd *e = etcd_of(s);
	int64_t revision;
	enum rc rc = renew_lease(e, until, g, &revision, f);

	if (rc == RC_OK)
		watch_hold(e, revision);
	s->host->alert = watch_fd(&e->cluster);
	return rc == RC_OK || rc == RC_REVOKED || rc == RC_LOST || rc == RC_STOP
	    ? rc
	    : RC_AGAIN;
}

/* ---- acquire ---- */

/* Reads a survey; and its other pages, where all who are before us matter. */
static enum rc
take_survey(struct etcd *e, const json_t *txn, size_t i, instant until, struct fault *f)
{
	struct queue *q = &e->queue;
	enum rc rc = RC_OK;
	instant sent;

	queue_read(q, txn, i);
	while (rc == RC_OK && !q->whole && !kind_is_exclusive(e->claim->kind)) {
		struct call call = {"/v3/kv/range", queue_ask_more(q), NULL, 0};

		rc = ask(e, &call, 1, until, &sent, f);
		if (rc == RC_OK && call.code != CODE_OK)
			rc = fault_set(f, RC_AGAIN,
			    "%s has forgotten what it said (compaction)", e->server_name);
		if (rc == RC_OK)
			queue_read_more(q, call.answer);
		calls_free(&call, 1);
	}
	count_position(e);
	return rc;
}

/*
 * Our key has just been put as held, with a lease that was granted or kept alive by requests
 * that left at `sent`.  Where that does not prove the lease, it is renewed.
 */
static enum rc
begin_hold(struct etcd *e, const struct call *grant, const struct call *alive,
    const struct call *txn, instant sent, instant until, struct grant *g, struct fault *f)
{
	int64_t term = kv_header(txn->answer, "raft_term"), revision;
	const struct call *from = grant->code == CODE_OK ? grant : alive;
	int64_t ttl = from ? kv_number(from->answer, "TTL") : 0;
	bool proved = from == grant ? credit_proves(&e->credit, term, term)
	    : from ? credit_proves(&e->credit, kv_header(from->answer, "raft_term"), term)
		   : false;
	enum rc rc;

	e->token = e->queue.create;
	e->joined = true;
	e->began = cluster_time(&e->cluster);
	watch_end(&e->cluster);
	*g = (struct grant){.token = (uint64_t)e->token,
	    .slot = e->slot,
	    .sent = sent,
	    .lease = ttl * NS_PER_S,
	    .anchor = -1};
	rc = check_job(e, f);
	if (rc == RC_OK && (!proved || ttl <= 0))
		rc = renew_lease(e, until, g, &revision, f);
	e->granted = rc == RC_OK;
	if (rc == RC_REVOKED || rc == RC_LOST || rc == RC_BUSY)
		rc = fail_gone(e, f);
	return rc;
}

/* RC_OK: granted.  RC_BUSY: not yet; the queue says why. */
static enum rc
ask_first(struct etcd *e, instant until, struct grant *g, struct fault *f)
{
	json_t *compare = json_array(), *success = json_array();
	struct queue *q = &e->queue;
	struct call calls[2];
	size_t puts;
	instant sent;
	enum rc rc;

	q->create = 0;
	e->slot = 0;
	json_array_append_new(
	    compare, kv_if(e->names.queue, e->names.queue_end, "EQUAL", 0));
	add_hold(e, compare, success);
	puts = json_array_size(success);
	calls[0] = call_grant(e->lease, e->claim->ttl);
	calls[1] = call_txn(compare, queue_ask(q, success), queue_ask(q, json_array()));
	rc = ask(e, calls, 2, until, &sent, f);
	if (rc == RC_OK && calls[1].code != CODE_OK)
		rc = fail_gone(e, f);
	if (rc == RC_OK)
		rc = take_survey(
		    e, calls[1].answer, has_succeeded(&calls[1]) ? puts : 0, until, f);
	if (rc == RC_OK && has_succeeded(&calls[1]))
		rc = begin_hold(e, &calls[0], NULL, &calls[1], sent, until, g, f);
	else if (rc == RC_OK)
		rc = fail_busy(e, f);
	calls_free(calls, 2);
	e->joined = q->create > 0;
	return rc;
}

/* Joins the queue, unless we are in it already.  RC_OK: and surveys it. */
static enum rc
join(struct etcd *e, instant until, struct fault *f)
{
	struct queue_value v = {.since = cluster_time(&e->cluster), .slot = -1};
	json_t *success = json_array(), *failure = json_array();
	char text[KV_VALUE_BYTES];
	struct queue *q = &e->queue;
	struct call calls[3];
	instant sent;
	enum rc rc;

	snprintf(v.owner, sizeof v.owner, "%s", e->claim->owner);
	snprintf(v.record, sizeof v.record, "%s", e->claim->record);
	queue_value_write(text, &v);
	json_array_append_new(success, kv_op_put(e->own, text, e->place_lease));
	calls[0] = call_grant(e->place_lease, place_ttl(e));
	calls[1] = call_lease("/v3/lease/keepalive", e->place_lease);
	calls[2] = call_txn(json_pack("[o]", kv_if(e->own, NULL, "EQUAL", 0)),
	    queue_ask(q, success), queue_ask(q, failure));
	rc = ask(e, calls, 3, until, &sent, f);
	if (rc == RC_OK && calls[2].code != CODE_OK)
		rc = fail_gone(e, f);
	if (rc == RC_OK)
		rc = take_survey(e, calls[2].answer, has_succeeded(&calls[2]), until, f);
	calls_free(calls, 3);
	if (rc != RC_OK)
		return rc;
	e->joined = q->create > 0;
	e->beat = sent + place_ttl(e) / 3;
	return e->joined ? RC_OK : fail_gone(e, f);
}

/* Only a survey. */
static enum rc
survey(struct etcd *e, instant until, struct fault *f)
{
	struct call call = call_txn(
	    json_array(), queue_ask(&e->queue, json_array()), NULL);
	instant sent;
	enum rc rc = ask(e, &call, 1, until, &sent, f);

	if (rc == RC_OK && call.code != CODE_OK)
		rc = fail_gone(e, f);
	if (rc == RC_OK)
		rc = take_survey(e, call.answer, 0, until, f);
	calls_free(&call, 1);
	return rc;
}

/*
 * Takes the lock from our place in the queue.  Who is alone for itself need not have seen that
 * nobody is before it any more: the transaction asks.  RC_BUSY: not yet, and this was a survey.
 */
static enum rc
take(struct etcd *e, instant until, struct grant *g, struct fault *f)
{
	json_t *compare = json_array(), *success = json_array();
	struct queue *q = &e->queue;
	int64_t create = q->create;
	struct call calls[3];
	size_t puts;
	instant sent;
	enum rc rc;

	json_array_append_new(compare, kv_if(e->own, NULL, "EQUAL", create));
	if (kind_is_exclusive(e->claim->kind))
		json_array_append_new(compare,
		    kv_if(e->names.queue, e->names.queue_end, "GREATER", create - 1));
	add_hold(e, compare, success);
	puts = json_array_size(success);
	calls[0] = call_grant(e->lease, e->claim->ttl);
	calls[1] = call_lease("/v3/lease/keepalive", e->lease);
	calls[2] = call_txn(compare, queue_ask(q, success), queue_ask(q, json_array()));
	rc = ask(e, calls, 3, until, &sent, f);
	if (rc == RC_OK && calls[2].code != CODE_OK)
		rc = fail_gone(e, f);
	if (rc == RC_OK)
		rc = take_survey(
		    e, calls[2].answer, has_succeeded(&calls[2]) ? puts : 0, until, f);
	if (rc == RC_OK && has_succeeded(&calls[2]))
		rc = begin_hold(e, &calls[0], &calls[1], &calls[2], sent, until, g, f);
	else if (rc == RC_OK)
		rc = fail_busy(e, f);
	e->gone = q->create != create;
	e->joined = !e->gone;
	calls_free(calls, 3);
	return rc;
}

/*
 * One of N takes the lowest permit that no holder has.  One that stands there without its
 * holder is passed over until its lease ends.
 */
static enum rc
take_permit(struct etcd *e, instant until, struct grant *g, struct fault *f)
{
	struct queue *q = &e->queue;
	unsigned least = 0;
	enum rc rc = RC_BUSY;

	while (rc == RC_BUSY && e->joined && !q->frozen && queue_lets_in(q)) {
		e->slot = queue_permit(q, least);
		if (e->slot >= e->claim->limit)
			break;
		rc = take(e, until, g, f);
		least = e->slot + 1;
	}
	return rc == RC_BUSY ? fail_busy(e, f) : rc;
}

/* A freeze whose time is over is deleted by whoever meets it. */
static enum rc
end_freeze(struct etcd *e, instant until, struct fault *f)
{
	const struct queue *q = &e->queue;
	struct call call;
	instant sent;
	enum rc rc;

	if (!q->frozen || q->freeze.until == EPOCH_NONE ||
	    cluster_time(&e->cluster) < q->freeze.until)
		return RC_OK;
	call = call_txn(
	    json_pack("[o]", kv_if_unchanged(e->names.freeze, q->freeze_modified)),
	    json_pack("[o]", kv_op_delete(e->names.freeze)), NULL);
	rc = ask(e, &call, 1, until, &sent, f);
	if (rc == RC_OK)
		e->queue.frozen = false;
	calls_free(&call, 1);
	return rc;
}

/* Takes the lock from the queue, if the last survey or a new one lets us in. */
static enum rc
go_on(struct etcd *e, bool surveyed, instant until, struct grant *g, struct fault *f)
{
	struct queue *q = &e->queue;
	bool alone = kind_is_exclusive(e->claim->kind);
	enum rc rc = RC_OK;

	if (!surveyed && !alone)
		rc = survey(e, until, f);
	if (rc == RC_OK)
		rc = end_freeze(e, until, f);
	if (rc != RC_OK)
		return rc;
	if (!q->create) {
		e->gone = true;
		e->joined = false;
	}
	if (q->mixed)
		return refuse_kind(f, e->server_name, q->other, q->other_limit, e->claim);
	rc = check_job(e, f);
	if (rc != RC_OK)
		return rc;
	if (!e->joined || ((surveyed || !alone) && (q->frozen || !queue_lets_in(q))))
		return fail_busy(e, f);
	return e->claim->kind == KIND_LIMIT ? take_permit(e, until, g, f)
					    : take(e, until, g, f);
}

/* Another place, with other leases. */
static void
name_place(struct etcd *e)
{
	const struct claim *c = e->claim;
	struct queue_name n;

	e->lease = lease_of(c->owner, c->key, 2 * e->nth);
	e->place_lease = c->ttl > PLACE_LEASE ? lease_of(c->owner, c->key, 2 * e->nth + 1)
					      : e->lease;
	e->nth++;
	e->joined = e->gone = false;
	e->queue.create = 0;
	queue_name_write(&n, e->lease, c->kind, c->limit);
	snprintf(e->own, sizeof e->own, "%s%s", e->names.queue, n.text);
	snprintf(e->mark, sizeof e->mark, "%s%s", e->names.marks, n.text);
}

/* One attempt.  RC_OK: granted.  RC_BUSY: not yet. */
static enum rc
attempt(struct etcd *e, bool waits, instant until, struct grant *g, struct fault *f)
{
	struct queue *q = &e->queue;
	enum rc rc;

	if (e->joined)
		return go_on(e, false, until, g, f);
	rc = ask_first(e, until, g, f);
	if (rc == RC_BUSY && q->frozen) {
		rc = end_freeze(e, until, f);
		if (rc == RC_OK)
			rc = q->frozen ? fail_busy(e, f) : ask_first(e, until, g, f);
	}
	if (rc != RC_BUSY)
		return rc;
	if (q->mixed)
		return refuse_kind(f, e->server_name, q->other, q->other_limit, e->claim);
	rc = check_job(e, f);
	if (rc != RC_OK)
		return rc;
	/* who does not wait joins only those beside whom it may hold the lock at once */
	if (!waits && (q->frozen || !queue_lets_in(q)) && !e->joined)
		return fail_busy(e, f);
	rc = join(e, until, f);
	return rc == RC_OK ? go_on(e, true, until, g, f) : rc;
}

/* Renews our place.  RC_OK with !e->joined: we have lost it. */
static enum rc
renew_place(struct etcd *e, instant until, struct fault *f)
{
	const struct kv_range own = {.key = e->own};
	struct call calls[2] = {call_lease("/v3/lease/keepalive", e->place_lease),
	    {"/v3/kv/range", kv_range(&own), NULL, 0}};
	instant sent;
	enum rc rc = ask(e, calls, 2, until, &sent, f);
	struct kv kv;

	if (rc == RC_OK) {
		e->joined = calls[1].code == CODE_OK &&
		    kv_read(&kv, calls[1].answer, 0) && kv.create == e->queue.create &&
		    kv_number(calls[0].answer, "TTL") > 0;
		e->gone = !e->joined;
		e->beat = sent + place_ttl(e) / 3;
	}
	calls_free(calls, 2);
	return rc;
}

/*
 * Sleeps until something has happened that may let us in.  RC_OK: ask again.  RC_BUSY: `until`
 * has come.  RC_AGAIN: the server does not answer.
 */
static enum rc
await_turn(struct etcd *e, instant until, struct fault *f)
{
	struct host *host = e->base.host;
	const struct queue *q = &e->queue;
	struct watch_list w;
	bool events = false;
	enum rc rc = RC_OK;
	instant thaws = NEVER;

	retry_end_outage(&e->retry);
	queue_watch(q, &w);
	if (q->frozen && q->freeze.until != EPOCH_NONE)
		thaws = instant_now() +
		    (q->freeze.until - cluster_time(&e->cluster)) * 1000 + NS_PER_MS;
	if (e->joined)
		rc = watch_begin(&e->cluster, w.at, w.n, q->revision + 1,
		    instant_now() + ANSWER_MOST, f);
	while (rc == RC_OK && e->joined && !events && instant_now() < thaws) {
		instant wake = instant_first(instant_first(e->beat, thaws), until);
		enum woke woke = host->wait(host, watch_fd(&e->cluster), POLLIN, wake);

		if (woke == WOKE_STOP)
			return RC_STOP;
		if (woke == WOKE_READY)
			rc = watch_read(&e->cluster, &events, f);
		else if (instant_now() >= until)
			return fail_busy(e, f);
		else if (instant_now() >= e->beat)
			rc = renew_place(e, instant_now() + ANSWER_MOST, f);
		/* the watched member has gone silent; or only a permit is missing, of nobody */
		if (rc == RC_OK &&
		    (e->cluster.watched != e->cluster.member ||
			(woke == WOKE_TIMEOUT && !q->frozen && queue_lets_in(q))))
			break;
	}
	return rc;
}

static void
begin_claim(struct etcd *e, const struct claim *claim)
{
	e->claim = claim;
	names_of(&e->names, e->root, e->name, claim->key);
	e->queue.names = &e->names;
	e->queue.claim = claim;
	e->queue.own = e->own;
	e->asked = e->granted = false;
	name_place(e);
	retry_begin(&e->retry, claim);
}

static enum rc
etcd_acquire(struct store *s, const struct claim *claim, instant until, struct grant *g,
    struct fault *f)
{
	struct etcd *e = etcd_of(s);
	bool heard = false;
	enum rc rc;

	begin_claim(e, claim);
	do {
		instant by = heard ? instant_now() + ANSWER_MOST
				   : retry_attempt(&e->retry, until);

		if (e->gone)
			name_place(e);
		rc = attempt(e, until != 0, by, g, f);
		heard = heard || rc == RC_BUSY;
		if (rc == RC_BUSY && until)
			rc = await_turn(e, until, f);
		if (rc == RC_AGAIN)
			watch_end(&e->cluster);
		rc = retry_wait(&e->retry, s->host, rc, heard, until);
	} while (rc == RC_OK && !e->granted);
	watch_end(&e->cluster);
	if (rc == RC_OK)
		warn_of_version(e, instant_now() + NS_PER_S);
	if (rc == RC_DONE) {
		struct fault ignored;

		if (s->backend->lock->release(
			s, STATUS_NONE, instant_now() + NS_PER_S, &ignored) == RC_STOP)
			return RC_STOP;
	}
	return rc;
}

/* ---- release ---- */

static void
add_run(struct etcd *e, json_t *success, int status)
{
	const struct job *job = &e->claim->job;
	struct run r = {.began = e->began,
	    .ended = cluster_time(&e->cluster),
	    .token = e->token,
	    .status = status};
	int64_t lease = lease_of(e->claim->owner, e->names.jobs, 0);
	char key[QUEUE_BYTES + ENCODED_BYTES], text[KV_VALUE_BYTES];

	if (job->once)
		encode_key(r.once, sizeof r.once, job->once);
	snprintf(r.record, sizeof r.record, "%s", e->claim->record);
	run_write(text, &r);
	snprintf(key, sizeof key, "%slast", e->names.jobs);
	json_array_append_new(success, kv_op_put(key, text, lease));
	if (status != 0)
		return;
	snprintf(key, sizeof key, "%sgood", e->names.jobs);
	json_array_append_new(success, kv_op_put(key, text, lease));
	snprintf(key, sizeof key, "%sid/%s", e->names.jobs, r.once);
	if (job->once)
		json_array_append_new(success, kv_op_put(key, text, lease));
}

/* What a release is made of; returns how many calls. */
static int
make_release(struct etcd *e, struct call *calls, int *txn, int status)
{
	json_t *compare, *success = json_array(), *failure = json_array();
	char permit[PERMIT_KEY_BYTES];
	bool job = e->granted && status != STATUS_NONE && job_is_wanted(&e->claim->job);
	int n = 0;

	json_array_append_new(success, kv_op_delete(e->own));
	if (e->claim->kind == KIND_LIMIT && e->granted)
		json_array_append_new(
		    success, kv_op_delete(permit_key(e, e->slot, permit)));
	if (job) {
		add_run(e, success, status);
		calls[n++] = call_grant(lease_of(e->claim->owner, e->names.jobs, 0),
		    RUN_DAYS * 86400 * NS_PER_S);
	}
	json_array_append_new(failure, kv_op_range(&(struct kv_range){.key = e->mark}));
	json_array_append_new(failure, kv_op_range(&(struct kv_range){.key = e->own}));
	compare = e->granted ? json_pack("[o]", kv_if(e->own, NULL, "EQUAL", e->token))
			     : json_array();
	*txn = n;
	calls[n++] = call_txn(compare, success, failure);
	calls[n++] = call_lease("/v3/lease/revoke", e->lease);
	if (e->place_lease != e->lease && e->queue.create)
		calls[n++] = call_lease("/v3/lease/revoke", e->place_lease);
	return n;
}

static enum rc
etcd_release(struct store *s, int status, instant until, struct fault *f)
{
	struct etcd *e = etcd_of(s);
	struct call calls[CALLS_MOST];
	bool repeated, unsure = e->unsure;
	instant sent;
	enum rc rc;
	int n, txn;

	s->host->alert = -1;
	watch_end(&e->cluster);
	if (!e->asked)
		return RC_OK;
	n = make_release(e, calls, &txn, status);
	e->unsure = true;
	rc = cluster_calls(&e->cluster, calls, n, until, &sent, &repeated, f);
	if (rc == RC_OK && calls[txn].code != CODE_OK)
		rc = RC_AGAIN;
	if (rc == RC_OK) {
		bool granted = e->granted;

		e->asked = e->joined = e->granted = e->unsure = false;
		if (granted && !has_succeeded(&calls[txn]))
			rc = unsure || repeated
			    ? fault_set(f, RC_AGAIN,
				  "%s has not answered whether it was still ours",
				  e->server_name)
			    : fail_lost(e, kv_response(calls[txn].answer, 0), f);
	}
	calls_free(calls, n);
	return rc == RC_OK || rc == RC_LOST || rc == RC_STOP ? rc : RC_AGAIN;
}

const struct lock_ops etcd_lock = {etcd_acquire, etcd_renew, etcd_release};
