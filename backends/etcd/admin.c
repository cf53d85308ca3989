/*
 * admin.c - takes locks away, freezes keys, and forgets runs.
 *
 *  1. A hold is known by its key's create revision.  Each change is a transaction that has it
 *     as a condition.
 *  2. The runs of one ID are deleted on condition that none of them has been written meanwhile.
 */
#include "etcd.h"

#include <stdio.h>
#include <string.h>

#define MARK_TIME \
	(600 * NS_PER_S) /* that of a hold which was taken by force is kept so long */

/* ---- revoke ---- */

/* Who has the lock, as it stands in the queue, and the names of what is kept for that. */
struct hold {
	struct names names;
	struct queue_entry entry;
	struct kv own;
};

static enum rc
fail_no_grant(const struct etcd *e, struct fault *f)
{
	fault_set(
	    f, RC_LOST, "%s: who held it by this grant does so no more", e->server_name);
	return RC_LOST;
}

/*
 * Makes calls, the last of which is a change on conditions.  RC_LOST: they are not met.
 */
static enum rc
steer_key(struct etcd *e, struct call *calls, int n, instant until, struct fault *f)
{
	const struct call *txn = &calls[n - 1];
	enum rc rc = cluster_calls(&e->cluster, calls, n, until, f);

	if (rc == RC_OK && !call_has_succeeded(txn))
		rc = e->cluster.repeated || txn->code != CODE_OK
		    ? fault_set(f, RC_AGAIN, "%s has not answered whether it was done",
			  e->server_name)
		    : fail_no_grant(e, f);
	calls_free(calls, n);
	return rc;
}

static enum rc
find_hold(struct etcd *e, const struct target *t, struct hold *h, instant until,
    struct fault *f)
{
	const struct queue_entry *q = &h->entry;
	const struct kv_range only = {.key = h->names.queue,
	    .end = h->names.queue_end,
	    .limit = 1,
	    .least_create = (int64_t)t->token,
	    .most_create = (int64_t)t->token};
	bool found = false;
	json_t *range;
	enum rc rc;

	if (t->token == 0 || t->token > INT64_MAX)
		return fail_no_grant(e, f);
	names_of(&h->names, e->root, e->name, t->key);
	range = cluster_answer(&e->cluster, call_range(&only), until, &rc, f);
	if (rc == RC_OK &&
	    queue_entry_read(&h->entry, &h->own, &h->names, range, 0, true))
		found = q->value.held &&
		    (!t->owner ||
			strcmp(t->owner, q->foreign ? q->name.text : q->value.owner) ==
			    0);
	if (found && !kv_read(&h->own, range, 0))
		rc = fault_set(f, RC_CONFIG,
		    "%s: its key in the queue cannot be read: delete it with etcdctl",
		    e->server_name);
	json_decref(range);
	return rc != RC_OK || found ? rc : fail_no_grant(e, f);
}

/* Marks a hold, unless record is NULL; with force deletes it. */
static enum rc
change_hold(struct etcd *e, const struct target *t, const struct hold *h,
    const char *record, bool force, instant until, struct fault *f)
{
	const struct queue_entry *q = &h->entry;
	char mark[LONG_BYTES], permit[LONG_BYTES];
	struct call calls[2];
	int64_t lease = q->lease;
	struct txn change = {0};
	int n = 0;

	kv_if(&change.compare, h->own.key, NULL, "EQUAL", q->create);
	if (force)
		kv_op_delete(&change.success, h->own.key, NULL);
	if (force && q->value.slot >= 0) {
		names_permit(permit, &h->names, (unsigned)q->value.slot);
		kv_op_delete(&change.success, permit, NULL);
	}
	if (record && force) { /* the mark outlives the hold */
		lease = lease_of(q->name.text, t->key, (unsigned)t->token);
		calls[n++] = call_grant(lease, MARK_TIME);
	}
	if (record)
		kv_op_put(&change.success, key_below(mark, h->names.marks, q->name.text),
		    record, lease);
	calls[n++] = call_txn(&change);
	return steer_key(e, calls, n, until, f);
}

static enum rc
etcd_revoke(struct store *s, const struct target *t, const char *record, bool force,
    instant until, struct fault *f)
{
	struct etcd *e = etcd_of(s);
	struct hold h = {0};
	bool foreign;
	enum rc rc = find_hold(e, t, &h, until, f);

	if (rc != RC_OK)
		return rc;
	foreign = h.entry.foreign;
	if (foreign && !force)
		return fault_set(f, RC_CONFIG,
		    "%s: another client holds it, which dlock cannot ask to give it up (--force takes it away)",
		    e->server_name);
	rc = change_hold(e, t, &h, foreign ? NULL : record, force, until, f);
	/* it takes no mark, but lets a key go */
	if (rc == RC_AGAIN && e->cluster.full && force)
		rc = change_hold(e, t, &h, NULL, true, until, f);
	return rc;
}

/* ---- freeze ---- */

/* With a record freezes a key, without one thaws it; what it reads first has the server's clock. */
static enum rc
change_freeze(struct store *s, const char *key, const char *record, int64_t length,
    instant until, struct fault *f)
{
	struct etcd *e = etcd_of(s);
	struct freeze z = {.until = EPOCH_NONE};
	char text[KV_VALUE_BYTES];
	struct txn change = {0};
	struct call call;
	struct names l;
	struct kv kv;
	bool frozen;
	json_t *range;
	int64_t now;
	enum rc rc;

	names_of(&l, e->root, e->name, key);
	range = cluster_answer(
	    &e->cluster, call_range(&(struct kv_range){.key = l.freeze}), until, &rc, f);
	if (rc != RC_OK)
		return rc;
	frozen = kv_read(&kv, range, 0);
	json_decref(range);
	now = cluster_time(&e->cluster);
	if (record) {
		z.since = now;
		if (length != NEVER)
			z.until = now + length / 1000;
		snprintf(z.record, sizeof z.record, "%s", record);
		freeze_write(text, &z);
		kv_op_put(&change.success, l.freeze, text, 0);
	} else {
		freeze_read(&z, kv.value);
		frozen = frozen && (z.until == EPOCH_NONE || z.until > now);
		kv_op_delete(&change.success, l.freeze, NULL);
	}
	call = call_txn(&change);
	rc = steer_key(e, &call, 1, until, f);
	return rc == RC_OK && !record && !frozen
	    ? fault_set(f, RC_LOST, "%s: it is not frozen", e->server_name)
	    : rc;
}

static enum rc
etcd_thaw(struct store *s, const char *key, instant until, struct fault *f)
{
	return change_freeze(s, key, NULL, 0, until, f);
}

/* ---- forget ---- */

enum { TRIES = 3 };

/* The runs of one ID, or all; *any: there is one.  RC_LOST: another one has ended meanwhile. */
static enum rc
forget_runs(struct etcd *e, const struct names *l, const char *once, bool *any,
    instant until, struct fault *f)
{
	char id[ENCODED_BYTES] = "", end[QUEUE_BYTES], keys[4][JOB_BYTES];
	/* counted first: a delete that is asked twice has no count to be trusted */
	const struct kv_range all = {.key = l->jobs, .end = end, .count_only = true};
	struct txn reads = {0}, change = {0};
	struct call call;
	json_t *found;
	struct run run;
	struct kv kv;
	enum rc rc;

	names_end(end, sizeof end, l->jobs);
	kv_op_range(&reads.success, &all);
	names_run(keys[0], l, "last", NULL);
	names_run(keys[1], l, "good", NULL);
	names_run(keys[2], l, "id/", once);
	names_run(keys[3], l, "final/", once);
	for (int i = 0; i < 4; i++)
		kv_op_key(&reads.success, keys[i]);
	found = cluster_answer(&e->cluster, call_txn(&reads), until, &rc, f);
	*any = !once && kv_number(kv_response(found, 0), "count") > 0;
	if (once)
		encode_key(id, sizeof id, once);
	else
		kv_op_delete(&change.success, l->jobs, end);
	for (size_t i = 0; once && i < 4; i++) {
		const json_t *range = kv_response(found, i + 1);

		if (!kv_read(&kv, range, 0) ||
		    (i < 2 && (!run_found(&run, range) || strcmp(run.once, id) != 0)))
			continue;
		*any = true;
		kv_if_unchanged(&change.compare, keys[i], kv.modified);
		kv_op_delete(&change.success, keys[i], NULL);
	}
	json_decref(found);
	call = call_txn(&change);
	if (*any && once)
		return steer_key(e, &call, 1, until, f);
	if (*any)
		json_decref(cluster_answer(&e->cluster, call, until, &rc, f));
	else
		calls_free(&call, 1);
	return rc;
}

static enum rc
etcd_forget(
    struct store *s, const char *key, const char *once, instant until, struct fault *f)
{
	struct etcd *e = etcd_of(s);
	struct names l;
	bool any = true;
	enum rc rc = RC_LOST;

	names_of(&l, e->root, e->name, key);
	for (int i = 0; rc == RC_LOST && any && i < TRIES; i++)
		rc = forget_runs(e, &l, once, &any, until, f);
	if (rc == RC_OK && !any)
		rc = fault_set(
		    f, RC_LOST, "%s: no such run is remembered", e->server_name);
	else if (rc == RC_LOST)
		rc = fault_set(
		    f, RC_AGAIN, "%s: a run has ended meanwhile", e->server_name);
	return rc;
}

/* ---- what others have ---- */

/* Is it a key of etcdctl's below this name: "NAME/694d7e5f"? */
static bool
is_etcdctl(const struct kv *kv, const char *name)
{
	const char *lease = kv->key + strlen(name);

	return kv->lease && *lease && !lease[strspn(lease, "0123456789abcdef")];
}

static enum rc
etcd_beside(struct store *s, const char *key, instant until, struct fault *advice)
{
	struct etcd *e = etcd_of(s);
	char name[KEY_BYTES + 2], end[KEY_BYTES + 2];
	const struct kv_range below = {
	    .key = name, .end = end, .limit = 1, .keys_only = true};
	struct kv kv;
	json_t *found;
	enum rc rc;

	snprintf(name, sizeof name, "%s/", key);
	snprintf(end, sizeof end, "%s0", key); /* the next character */
	if (e->name || until == 0 || strncmp(e->root, name, strlen(name)) == 0)
		return RC_LOST;
	found = cluster_answer(&e->cluster, call_range(&below), until, &rc, advice);
	if (rc == RC_OK && !(kv_read(&kv, found, 0) && is_etcdctl(&kv, name)))
		rc = RC_LOST;
	json_decref(found);
	return rc != RC_OK
	    ? rc
	    : fault_set(advice, RC_OK,
		  "a client of etcd has the lock that etcdctl calls %.200s, which is another than this key: -O name=NAME takes it (dlock-joins(7))",
		  key);
}

const struct admin_ops etcd_admin = {etcd_each, etcd_revoke, change_freeze, etcd_thaw,
    etcd_forget, etcd_check, etcd_beside};
