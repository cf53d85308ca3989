/*
 * lock.c - holds a lock in etcd: renew, release.
 *
 * A renewal is a read, a keep-alive, and a read of our key and of the mark beside it (credit.h).
 * A release revokes the leases, which deletes our key; of a job it writes first what is remembered.
 */
#include "etcd.h"

#include "backends/common/text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
	TRIES = 3,      /* of a proof that came to nothing */
	CALLS_MOST = 4, /* in one packet */
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
	secret_blot(kv.value, e->address.password);
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

	if (watch_fd(&e->cluster) < 0 || e->cluster.watched != e->cluster.member)
		rc = watch_begin(&e->cluster, keys, revision + 1, until, &ignored);
	return rc == RC_STOP ? RC_STOP : RC_OK;
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
	struct credit credit = {
	    .ttl = calls[1].code == CODE_OK ? kv_number(calls[1].answer, "TTL") : 0,
	    .ours = calls[2].code == CODE_OK && kv_read(&own, kv_response(found, 0), 0) &&
		own.create == e->token};

	if (calls[2].code == CODE_OK &&
	    json_is_array(json_object_get(found, "responses")) && !credit.ours)
		return say_lost(e, mark, f);
	for (int i = 0; i < 3; i++)
		credit.member[i] = calls[i].code == CODE_OK
		    ? kv_header(calls[i].answer, "member_id")
		    : 0;
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

	e->cluster.answer_most = 0; /* one that is late proves too little */
	for (int i = 0; rc == RC_BUSY && i < TRIES; i++) {
		struct call calls[3] = {
		    etcd_call_read(e), call_lease("/v3/lease/keepalive", e->lease)};
		struct txn t = {0};

		kv_op_range(&t.success, &(struct kv_range){.key = e->own});
		kv_op_range(&t.success, &(struct kv_range){.key = e->mark});
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
	if (watch_fd(&e->cluster) >= 0)
		(void)watch_read(&e->cluster, &events, &ignored);
	rc = etcd_renew_lease(e, until, g, &revision, f);
	if (rc == RC_OK || rc == RC_REVOKED)
		g->soon = 0;
	if (rc == RC_OK)
		rc = watch_hold(
		    e, revision, instant_first(until, instant_now() + g->lease / 10));
	s->host->alert = watch_fd(&e->cluster);
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
write_run(struct etcd *e, struct text *ops, int status)
{
	const struct job *job = &e->claim->job;
	struct run r = {.began = e->began,
	    .ended = cluster_time(&e->cluster),
	    .token = e->token,
	    .status = status};
	int64_t lease = run_lease(e);
	char key[JOB_BYTES], text[KV_VALUE_BYTES];

	if (job->once)
		encode_key(r.once, sizeof r.once, job->once);
	snprintf(r.record, sizeof r.record, "%s", e->claim->record);
	run_write(text, &r);
	snprintf(key, sizeof key, "%slast", e->names.jobs);
	kv_op_put(ops, key, text, lease);
	if (status != 0)
		return;
	snprintf(key, sizeof key, "%sgood", e->names.jobs);
	kv_op_put(ops, key, text, lease);
	snprintf(key, sizeof key, "%sid/%s", e->names.jobs, r.once);
	if (job->once)
		kv_op_put(ops, key, text, lease);
}

/*
 * The key is deleted by the end of its lease.  For a job, a transaction deletes it and writes what
 * is remembered; else a read tells whether we have had the lock until now.  The leases are revoked
 * behind it in the same packet; of a job only when that has been answered, since the run would be
 * forgotten if etcd refused to write.  Returns how many calls; *txn: that transaction.
 */
static int
make_release(struct etcd *e, struct call *calls, struct call **txn, bool job, int status)
{
	struct txn t = {0};
	int n = 0;

	if (job) {
		calls[n++] = call_grant(
		    run_lease(e), (RUN_DAYS + MONTH) * 86400 * NS_PER_S);
		kv_op_delete(&t.success, e->own, NULL);
		write_run(e, &t.success, status);
	} else {
		kv_op_range(
		    &t.success, &(struct kv_range){.key = e->own, .count_only = true});
	}
	kv_op_range(&t.failure, &(struct kv_range){.key = e->mark});
	kv_if(&t.compare, e->own, NULL, "EQUAL", e->token);
	*(*txn = &calls[n++]) = call_txn(&t);
	if (!job)
		calls[n++] = call_lease("/v3/lease/revoke", e->lease);
	if (e->has_place && !e->granted) /* with a grant our key has left it */
		calls[n++] = call_lease("/v3/lease/revoke", e->place_lease);
	return n;
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

static enum rc
etcd_release(struct store *s, int status, instant until, struct fault *f)
{
	struct etcd *e = etcd_of(s);
	bool job = e->granted && status != STATUS_NONE && job_is_wanted(&e->claim->job);
	struct call calls[CALLS_MOST], *txn;
	struct fault ignored;
	enum rc rc, revoked;
	int n;

	s->host->alert = -1;
	watch_end(&e->cluster);
	if (!e->asked)
		return RC_OK;
	n = make_release(e, calls, &txn, job, status);
	rc = cluster_calls(&e->cluster, calls, n, until, f);
	if (rc == RC_OK && e->granted)
		rc = read_release(e, txn, e->unsure || e->cluster.repeated, f);
	calls_free(calls, n);
	e->unsure = e->unsure || e->cluster.sent;
	if (job && rc == RC_OK) /* the key is gone: this lease has nothing more */
		json_decref(cluster_answer(&e->cluster,
		    call_lease("/v3/lease/revoke", e->lease), until, &revoked, &ignored));
	if (rc == RC_OK || rc == RC_LOST)
		e->asked = e->joined = e->granted = e->unsure = false;
	return rc == RC_OK || rc == RC_LOST || rc == RC_STOP ? rc : RC_AGAIN;
}

const struct lock_ops etcd_lock = {etcd_acquire, etcd_renew, etcd_release};
