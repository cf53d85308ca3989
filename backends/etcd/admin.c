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
	return fault_set(
	    f, RC_LOST, "%s: who held it by this grant does so no more", e->server_name);
}

/*
 * Makes a change on conditions, after a grant if that has a path.  RC_LOST: they are not met.
 * *full, if not NULL: the database is.
 */
static enum rc
steer_key(struct etcd *e, struct call grant, struct txn *t, bool *full, instant until,
    struct fault *f)
{
	struct call calls[2] = {grant, call_txn(t)};
	int skipped = !grant.path;
	enum rc rc = cluster_calls(&e->cluster, calls + skipped, 2 - skipped, until, f);

	if (rc == RC_OK && !call_has_succeeded(&calls[1]))
		rc = e->cluster.repeated || calls[1].code != CODE_OK
		    ? fault_set(f, RC_AGAIN, "%s has not answered whether it was done",
			  e->server_name)
		    : fail_no_grant(e, f);
	if (full)
		*full = calls[0].code == CODE_FULL || calls[1].code == CODE_FULL;
	calls_free(calls, 2);
	return rc;
}

static const struct call no_grant = {0};

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
	if (rc == RC_OK && queue_entry_read(&h->entry, &h->own, &h->names, range, 0))
		found = (q->foreign || q->value.held) &&
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
    const char *record, bool force, bool *full, instant until, struct fault *f)
{
	const struct queue_entry *q = &h->entry;
	char mark[QUEUE_BYTES + 32], permit[PERMIT_KEY_BYTES];
	struct call grant = no_grant;
	int64_t lease = q->lease;
	struct txn change = {0};

	kv_if(&change.compare, h->own.key, NULL, "EQUAL", q->create);
	if (force) {
		snprintf(
		    permit, sizeof permit, "%s%06d", h->names.permits, q->value.slot);
		kv_op_delete(&change.success, h->own.key, NULL);
		if (q->value.slot >= 0)
			kv_op_delete(&change.success, permit, NULL);
	}
	if (record && force) { /* the mark outlives the hold */
		lease = lease_of(q->name.text, t->key, (unsigned)t->token);
		grant = call_grant(lease, MARK_TIME);
	}
	if (record) {
		snprintf(mark, sizeof mark, "%s%s", h->names.marks, q->name.text);
		kv_op_put(&change.success, mark, record, lease);
	}
	return steer_key(e, grant, &change, full, until, f);
}

static enum rc
etcd_revoke(struct store *s, const struct target *t, const char *record, bool force,
    instant until, struct fault *f)
{
	struct etcd *e = etcd_of(s);
	struct hold h;
	bool full, foreign;
	enum rc rc = find_hold(e, t, &h, until, f);

	if (rc != RC_OK)
		return rc;
	foreign = h.entry.foreign;
	if (foreign && !force)
		return fault_set(f, RC_CONFIG,
		    "%s: another client holds it, which dlock cannot ask to give it up (--force takes it away)",
		    e->server_name);
	rc = change_hold(e, t, &h, foreign ? NULL : record, force, &full, until, f);
	/* it takes no mark, but lets a key go */
	if (rc == RC_AGAIN && full && force)
		rc = change_hold(e, t, &h, NULL, true, &full, until, f);
	return rc;
}

/* ---- freeze ---- */

/* Reads the freeze first: the answer has the server's clock, too. */
static enum rc
read_freeze(
    struct etcd *e, const struct names *l, bool *frozen, instant until, struct fault *f)
{
	enum rc rc;
	json_t *range = cluster_answer(
	    &e->cluster, call_range(&(struct kv_range){.key = l->freeze}), until, &rc, f);
	struct freeze z;
	struct kv kv;

	*frozen = kv_read(&kv, range, 0);
	json_decref(range);
	if (*frozen) {
		freeze_read(&z, kv.value);
		*frozen = z.until == EPOCH_NONE || z.until > cluster_time(&e->cluster);
	}
	return rc;
}

static enum rc
etcd_freeze(struct store *s, const char *key, const char *record, int64_t length,
    instant until, struct fault *f)
{
	struct etcd *e = etcd_of(s);
	struct freeze z = {.until = EPOCH_NONE};
	char text[KV_VALUE_BYTES];
	struct txn change = {0};
	struct names l;
	bool frozen;
	enum rc rc;

	names_of(&l, e->root, e->name, key);
	rc = read_freeze(e, &l, &frozen, until, f);
	if (rc != RC_OK)
		return rc;
	z.since = cluster_time(&e->cluster);
	if (length != NEVER)
		z.until = z.since + length / 1000;
	snprintf(z.record, sizeof z.record, "%s", record);
	freeze_write(text, &z);
	kv_op_put(&change.success, l.freeze, text, 0);
	return steer_key(e, no_grant, &change, NULL, until, f);
}

static enum rc
etcd_thaw(struct store *s, const char *key, instant until, struct fault *f)
{
	struct etcd *e = etcd_of(s);
	struct txn change = {0};
	struct names l;
	bool frozen;
	enum rc rc;

	names_of(&l, e->root, e->name, key);
	rc = read_freeze(e, &l, &frozen, until, f);
	if (rc != RC_OK)
		return rc;
	kv_op_delete(&change.success, l.freeze, NULL);
	rc = steer_key(e, no_grant, &change, NULL, until, f);
	return rc == RC_OK && !frozen
	    ? fault_set(f, RC_LOST, "%s: it is not frozen", e->server_name)
	    : rc;
}

/* ---- forget ---- */

enum { TRIES = 3 };

/* The runs of one ID; *any: there is one.  RC_LOST: another one has ended meanwhile. */
static enum rc
forget_id(struct etcd *e, const struct names *l, const char *once, bool *any,
    instant until, struct fault *f)
{
	char id[ENCODED_BYTES], keys[3][JOB_BYTES];
	struct txn reads = {0}, change = {0};
	json_t *found;
	struct run run;
	struct kv kv;
	enum rc rc;

	encode_key(id, sizeof id, once);
	snprintf(keys[0], JOB_BYTES, "%slast", l->jobs);
	snprintf(keys[1], JOB_BYTES, "%sgood", l->jobs);
	snprintf(keys[2], JOB_BYTES, "%sid/%s", l->jobs, id);
	for (int i = 0; i < 3; i++)
		kv_op_range(&reads.success, &(struct kv_range){.key = keys[i]});
	found = cluster_answer(&e->cluster, call_txn(&reads), until, &rc, f);
	*any = false;
	for (size_t i = 0; i < 3; i++) {
		const json_t *range = kv_response(found, i);

		if (!kv_read(&kv, range, 0) ||
		    (i < 2 && (!run_found(&run, range) || strcmp(run.once, id) != 0)))
			continue;
		*any = true;
		kv_if_unchanged(&change.compare, keys[i], kv.modified);
		kv_op_delete(&change.success, keys[i], NULL);
	}
	json_decref(found);
	return *any ? steer_key(e, no_grant, &change, NULL, until, f) : rc;
}

static enum rc
forget_all(
    struct etcd *e, const struct names *l, bool *any, instant until, struct fault *f)
{
	char end[QUEUE_BYTES];
	const struct kv_range all = {.key = l->jobs, .end = end, .count_only = true};
	struct txn change = {0};
	json_t *found;
	enum rc rc;

	names_end(end, sizeof end, l->jobs);
	/* counted first: a delete that is asked twice has no count to be trusted */
	found = cluster_answer(&e->cluster, call_range(&all), until, &rc, f);
	*any = kv_number(found, "count") > 0;
	json_decref(found);
	if (rc != RC_OK || !*any)
		return rc;
	kv_op_delete(&change.success, l->jobs, end);
	json_decref(cluster_answer(&e->cluster, call_txn(&change), until, &rc, f));
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
		rc = once ? forget_id(e, &l, once, &any, until, f)
			  : forget_all(e, &l, &any, until, f);
	if (rc == RC_OK && !any)
		rc = fault_set(
		    f, RC_LOST, "%s: no such run is remembered", e->server_name);
	else if (rc == RC_LOST)
		rc = fault_set(
		    f, RC_AGAIN, "%s: a run has ended meanwhile", e->server_name);
	return rc;
}

const struct admin_ops etcd_admin = {
    etcd_each, etcd_revoke, etcd_freeze, etcd_thaw, etcd_forget, etcd_check};
