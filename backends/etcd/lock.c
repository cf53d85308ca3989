/*
 * lock.c - holds a lock in etcd: renew, release.
 *
 * A renewal is a read, a keep-alive, and a read of our key and of the mark beside it (credit.h).
 * A release deletes our key.  The lease has nothing more then, and ends by itself: to revoke it is
 * one more write to the disk.  It is revoked behind a job, if it is a long one, or where a permit
 * may be left on it.
 */
#include "etcd.h"

#include "backends/common/job.h"
#include "backends/common/refuse.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LEFT_MOST (60 * NS_PER_S) /* a longer lease is revoked */
#define SHORT (200 * NS_PER_MS)   /* for the rest of what has begun to come */

enum {
	TRIES = 3,      /* of a proof that came to nothing */
	RUN_DAYS = 400, /* so long runs are remembered */
	MONTH = 30,     /* days; those of one month share a lease */
};

/* ---- calls ---- */

struct call
etcd_call_read(const struct etcd *e)
{
	return call_range(&(struct kv_range){.key = e->own, .count_only = true});
}

/* ---- renew ---- */

/* RC_OK: nobody has left a mark.  Otherwise `rc`, with the record of who did. */
static enum rc
read_mark(struct etcd *e, enum rc rc, const json_t *mark, struct fault *f)
{
	struct kv kv;

	if (!kv_read(&kv, mark, 0))
		return RC_OK;
	return refuse_broken(e->base.host, f, rc, e->server_name, kv.value);
}

static enum rc
say_lost(struct etcd *e, const json_t *mark, struct fault *f)
{
	enum rc rc = read_mark(e, RC_LOST, mark, f);

	return rc != RC_OK
	    ? rc
	    : fault_set(f, RC_LOST,
		  "%s no longer has it as ours: its lease has ended, or its key was deleted",
		  e->server_name);
}

/*
 * Opens the watch of our key and of its mark, which wakes the keeper; without it: later.  Of a
 * member that does not renew the lease nobody knows whether it is silent.
 */
static enum rc
watch_hold(struct etcd *e, int64_t revision, instant until)
{
	const struct watched keys[2] = {{.key = e->own}, {.key = e->mark, .puts = true}};
	struct fault ignored;
	enum rc rc = RC_OK;

	if (e->cluster.watch.stream.fd < 0 || e->cluster.watched != e->cluster.member)
		rc = watch_begin(&e->cluster, keys, revision + 1, until, &ignored);
	return rc == RC_STOP ? RC_STOP : RC_OK;
}

struct credit
credit_of(const struct call calls[3], bool ours)
{
	struct credit c = {.ours = ours};

	for (int i = 0; i < 3; i++)
		c.member[i] = kv_header(calls[i].answer, "member_id");
	c.ttl = calls[1].code == CODE_OK ? kv_number(calls[1].answer, "TTL") : 0;
	return c;
}

/*
 * What the answers mean to a read, a keep-alive, and another read of our key and its mark.
 * RC_BUSY: they prove nothing.
 */
static enum rc
judge_renewal(
    struct etcd *e, const struct call calls[3], struct grant *g, struct fault *f)
{
	const json_t *found = calls[2].answer, *mark = kv_response(found, 1);
	struct kv own;
	const struct credit credit = credit_of(
	    calls, kv_read(&own, kv_response(found, 0), 0) && own.create == e->token);

	if (json_is_array(json_object_get(found, "responses")) && !credit.ours)
		return say_lost(e, mark, f);
	if (!credit_proves(&credit))
		return fault_set(f, RC_BUSY,
		    credit.member[0] != credit.member[2]
			? "%s: several members answer in turn, which proves no lease: name them in the URL, not what stands before them"
			: "%s cannot say how long our lease lasts: is there a leader?",
		    e->server_name);
	g->lease = etcd_lease_ns(credit.ttl);
	return read_mark(e, RC_REVOKED, mark, f);
}

enum rc
etcd_renew_lease(
    struct etcd *e, instant until, struct grant *g, int64_t *revision, struct fault *f)
{
	enum rc rc = RC_BUSY;

	e->cluster.answer_by = 0; /* one that is late proves too little */
	for (int i = 0; rc == RC_BUSY && i < TRIES; i++) {
		struct call calls[3] = {
		    etcd_call_read(e), call_lease("/v3/lease/keepalive", e->lease)};
		struct txn t = {0};

		kv_op_key(&t.success, e->own);
		kv_op_key(&t.success, e->mark);
		calls[2] = call_txn(&t);
		rc = cluster_calls(&e->cluster, calls, 3, until, f);
		if (rc == RC_OK)
			rc = judge_renewal(e, calls, g, f);
		*revision = kv_header(calls[2].answer, "revision");
		calls_free(calls, 3);
		if (rc == RC_BUSY) /* perhaps of this member only */
			cluster_turn(&e->cluster);
	}
	if (rc == RC_OK || rc == RC_REVOKED)
		g->sent = e->cluster.sent;
	return rc;
}

static enum rc
etcd_renew(struct store *s, instant until, struct grant *g, struct fault *f)
{
	struct etcd *e = etcd_of(s);
	struct fault ignored;
	int64_t revision;
	bool events;
	enum rc rc;

	/* what has come would wake the keeper again; what comes from now on is to wake it */
	if (watch_read(&e->cluster, &events, instant_first(until, instant_now() + SHORT),
		&ignored) == RC_STOP)
		return RC_STOP;
	rc = etcd_renew_lease(e, until, g, &revision, f);
	if (rc == RC_OK || rc == RC_REVOKED)
		g->soon = 0;
	if (rc == RC_OK)
		rc = watch_hold(
		    e, revision, instant_first(until, instant_now() + g->lease / 10));
	s->host->alert = e->cluster.watch.stream.fd;
	return rc == RC_OK || rc == RC_REVOKED || rc == RC_LOST || rc == RC_STOP
	    ? rc
	    : RC_AGAIN;
}

/* ---- release ---- */

static int64_t
run_lease(const struct etcd *e)
{
	int64_t days = e->began / (86400 * 1000000LL);

	return lease_of("jobs", e->names.jobs, (unsigned)(days / MONTH));
}

static void
write_run(struct etcd *e, struct text *ops, struct outcome o)
{
	const struct job *job = &e->claim->job;
	struct run r = {.began = e->began,
	    .ended = cluster_time(&e->cluster),
	    .token = e->token,
	    .status = o.status};
	const char *id = o.status == 0 ? "id/"
	    : o.ended && job->no_retry ? "final/"
				       : NULL;
	int64_t lease = run_lease(e);
	char key[JOB_BYTES], text[KV_VALUE_BYTES];

	if (job->once)
		encode_key(r.once, sizeof r.once, job->once);
	snprintf(r.record, sizeof r.record, "%s", e->claim->record);
	run_write(text, &r);
	if (job_is_shown(job)) {
		kv_op_put(ops, names_run(key, &e->names, "shown", NULL), text, lease);
		return;
	}
	kv_op_put(ops, names_run(key, &e->names, "last", NULL), text, lease);
	if (o.status == 0)
		kv_op_put(ops, names_run(key, &e->names, "good", NULL), text, lease);
	if (id && job->once)
		kv_op_put(ops, names_run(key, &e->names, id, job->once), text, lease);
}

/*
 * Who has had the lock until now deletes what is ours; `remembered`, the same transaction writes
 * the run.
 */
static struct call
call_give_back(struct etcd *e, bool remembered, struct outcome o)
{
	char permit[LONG_BYTES];
	struct txn t = {0};

	kv_if(&t.compare, e->own, NULL, "EQUAL", e->token);
	kv_op_delete(&t.success, e->own, NULL);
	kv_op_delete(&t.success, e->mark, NULL);
	if (e->claim->kind == KIND_LIMIT) {
		names_permit(permit, &e->names, e->slot);
		kv_op_delete(&t.success, permit, NULL);
	}
	if (remembered)
		write_run(e, &t.success, o);
	kv_op_key(&t.failure, e->mark);
	return call_txn(&t);
}

static enum rc
read_release(struct etcd *e, const struct call *txn, bool unsure, struct fault *f)
{
	if (call_has_succeeded(txn))
		return RC_OK;
	return unsure || txn->code != CODE_OK /* a lease that it wanted has ended */
	    ? fault_set(f, RC_AGAIN, "%s has not answered whether it was still ours",
		  e->server_name)
	    : say_lost(e, kv_response(txn->answer, 0), f);
}

/*
 * An old etcd whose database is full refuses every transaction; the end of the lease deletes our
 * key, too.  RC_OK: it was there until then.
 */
static enum rc
end_lease(struct etcd *e, instant until, struct fault *f)
{
	struct call calls[2] = {call_range(&(struct kv_range){.key = e->own}),
	    call_lease("/v3/lease/revoke", e->lease)};
	enum rc rc = cluster_calls(&e->cluster, calls, 2, until, f);
	struct kv own;
	bool ours = kv_read(&own, calls[0].answer, 0) && own.create == e->token;

	calls_free(calls, 2);
	return rc == RC_OK && !ours ? RC_AGAIN : rc;
}

static enum rc
give_back(struct etcd *e, struct outcome o, instant until, struct fault *f)
{
	bool job = e->granted && o.status != STATUS_NONE &&
	    (job_is_wanted(&e->claim->job) || e->claim->job.remember);
	bool tidies = e->granted && /* of N we may have left another permit */
	    (job || e->claim->ttl > LEFT_MOST || e->claim->kind == KIND_LIMIT);
	struct call calls[3], *txn = NULL;
	struct fault ignored;
	enum rc rc, revoked;
	int n = 0;

	if (job)
		calls[n++] = call_grant(
		    run_lease(e), (RUN_DAYS + MONTH) * 86400 * NS_PER_S);
	if (e->granted)
		*(txn = &calls[n++]) = call_give_back(e, job, o);
	if (!e->granted)
		calls[n++] = call_lease("/v3/lease/revoke", e->lease);
	if (!e->granted && e->place_lease) /* with a grant our key has left it */
		calls[n++] = call_lease("/v3/lease/revoke", e->place_lease);
	rc = cluster_calls(&e->cluster, calls, n, until, f);
	if (rc == RC_OK && txn)
		rc = read_release(e, txn, e->unsure || e->cluster.repeated, f);
	else if (rc == RC_AGAIN && txn && !job && e->cluster.full)
		rc = end_lease(e, until, f);
	calls_free(calls, n);
	e->unsure = e->unsure || e->cluster.sent;
	/* not before: the run would be forgotten if etcd refused to write */
	if (tidies && (rc == RC_OK || rc == RC_LOST))
		json_decref(cluster_answer(&e->cluster,
		    call_lease("/v3/lease/revoke", e->lease), until, &revoked, &ignored));
	if (rc == RC_OK || rc == RC_LOST)
		e->asked = e->granted = e->unsure = false;
	return rc;
}

/* A run that is only to be shown, and cannot be written, keeps the lock for nobody. */
static enum rc
etcd_release(struct store *s, struct outcome o, instant until, struct fault *f)
{
	struct etcd *e = etcd_of(s);
	enum rc rc;

	s->host->alert = -1;
	http_close(&e->cluster.watch);
	if (!e->asked)
		return RC_OK;
	rc = give_back(e, o, until, f);
	if (job_is_shown(&e->claim->job) && e->granted &&
	    (rc == RC_DENIED || (rc == RC_AGAIN && e->cluster.full))) {
		job_note_unshown(s->host, &e->claim->job, e->server_name, o.status);
		rc = give_back(e, NO_OUTCOME, until, f);
	}
	return rc == RC_OK || rc == RC_LOST || rc == RC_STOP ? rc : RC_AGAIN;
}

const struct lock_ops etcd_lock = {etcd_acquire, etcd_renew, etcd_release};
