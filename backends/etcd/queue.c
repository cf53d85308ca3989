/* queue.c - what stands before us in a lock's queue, and whether that lets us in. */
#include "queue.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool
queue_entry_read(struct queue_entry *e, const struct names *l, const struct kv *kv)
{
	size_t n = strlen(l->queue);

	if (strncmp(kv->key, l->queue, n) != 0)
		return false;
	e->create = kv->create;
	e->lease = kv->lease;
	e->foreign = !queue_value_read(&e->value, kv->value);
	if (e->foreign)
		e->value = (struct queue_value){.since = EPOCH_NONE, .slot = -1};
	if (queue_name_read(&e->name, kv->key + n))
		return true;
	/* etcdctl's lock waits for whatever stands below its name, and so do we */
	snprintf(e->name.text, sizeof e->name.text, "%.31s", kv->key + n);
	return true;
}

/* ---- asking ---- */

static bool
is_counted(const struct queue *q)
{
	return !kind_is_exclusive(q->claim->kind);
}

static json_t *
add(json_t *ops, const struct kv_range *r)
{
	json_array_append_new(ops, kv_op_range(r));
	return ops;
}

static json_t *
add_key(json_t *ops, const char *key)
{
	return add(ops, &(struct kv_range){.key = key});
}

/* The key of a job's run: "last", "good", or one of our ID. */
static const char *
job_key(const struct queue *q, const char *which, char *out, size_t size)
{
	char id[ENCODED_BYTES] = "";

	if (!which)
		encode_key(id, sizeof id, q->claim->job.once);
	snprintf(out, size, "%s%s%s", q->names->jobs, which ? which : "id/", id);
	return out;
}

json_t *
queue_ask(const struct queue *q, json_t *ops)
{
	const struct names *l = q->names;
	char key[QUEUE_BYTES + ENCODED_BYTES];

	add_key(ops, q->own);
	add_key(ops, l->freeze);
	add(ops,
	    &(struct kv_range){
		.key = l->queue, .end = l->queue_end, .limit = PAGE, .by_create = true});
	/* who is alone for itself needs only the last one before it, however many there are */
	if (q->create > 0 && !is_counted(q))
		add(ops,
		    &(struct kv_range){.key = l->queue,
			.end = l->queue_end,
			.limit = 1,
			.most_create = q->create - 1,
			.newest = true});
	else
		add_key(ops, l->freeze);
	if (job_is_wanted(&q->claim->job))
		add_key(ops, job_key(q, "good", key, sizeof key));
	if (q->claim->job.once)
		add_key(ops, job_key(q, NULL, key, sizeof key));
	return ops;
}

json_t *
queue_ask_more(const struct queue *q)
{
	return kv_range(&(struct kv_range){.key = q->names->queue,
	    .end = q->names->queue_end,
	    .limit = PAGE,
	    .least_create = q->read_to + 1,
	    .revision = q->revision,
	    .by_create = true});
}

/* ---- reading ---- */

static bool
is_compatible(const struct queue *q, const struct queue_name *n)
{
	return kind_is_exclusive(n->kind) || !is_counted(q) ||
	    (n->kind == q->claim->kind && n->limit == q->claim->limit);
}

static void
note_ahead(struct ahead *a, const struct queue_entry *e, bool held)
{
	a->create = e->create;
	a->held = held;
	memcpy(a->name, e->name.text, sizeof a->name);
}

/* One that stands before us; they come in order. */
static void
see_ahead(struct queue *q, const struct queue_entry *e)
{
	/* of those who do not say so, only the first has the lock */
	bool held = e->foreign ? q->ahead == 0 : e->value.held;

	note_ahead(&q->last, e, held);
	if (kind_is_exclusive(e->name.kind))
		note_ahead(&q->excludes, e, held);
	if (!is_compatible(q, &e->name)) {
		q->mixed = true;
		q->other = e->name.kind;
		q->other_limit = e->name.limit;
	}
	if (held && q->holders++ == 0)
		q->first_holder = *e;
	if (held && e->value.slot >= 0)
		q->used[e->value.slot / 8] |= 1 << e->value.slot % 8;
	q->ahead++;
}

static void
read_page(struct queue *q, const json_t *range)
{
	size_t n = kv_count(range);
	struct queue_entry e;
	struct kv kv;

	q->whole = n < PAGE;
	for (size_t i = 0; i < n; i++) {
		if (!kv_read(&kv, range, i) || kv.create <= q->read_to)
			continue;
		q->read_to = kv.create;
		if (q->create > 0 && kv.create >= q->create)
			q->whole = true;
		else if (queue_entry_read(&e, q->names, &kv))
			see_ahead(q, &e);
	}
}

static void
read_last(struct queue *q, const json_t *range)
{
	struct queue_entry e;
	struct kv kv;

	if (!q->whole && kv_read(&kv, range, 0) && queue_entry_read(&e, q->names, &kv)) {
		note_ahead(&q->last, &e, false);
		q->whole = true;
	}
}

static void
read_run(struct run *r, const json_t *range)
{
	struct kv kv;

	if (!kv_read(&kv, range, 0) || !run_read(r, kv.value))
		*r = (struct run){0};
}

void
queue_read(struct queue *q, const json_t *txn, size_t i)
{
	bool with_last = q->create > 0 && !is_counted(q);
	const json_t *page = kv_response(txn, i + 2);
	struct kv kv;

	q->revision = kv_header(txn, "revision");
	q->count = kv_number(page, "count");
	q->create = kv_read(&kv, kv_response(txn, i), 0) ? kv.create : 0;
	queue_value_read(&q->value, q->create ? kv.value : "");
	q->frozen = kv_read(&kv, kv_response(txn, i + 1), 0);
	q->freeze_modified = kv.modified;
	freeze_read(&q->freeze, q->frozen ? kv.value : "");
	q->ahead = q->holders = 0;
	q->read_to = 0;
	q->last = q->excludes = (struct ahead){0};
	q->mixed = false;
	memset(q->used, 0, sizeof q->used);
	read_page(q, page);
	if (with_last && q->create > 0)
		read_last(q, kv_response(txn, i + 3));
	i += 4;
	if (job_is_wanted(&q->claim->job))
		read_run(&q->good, kv_response(txn, i++));
	if (q->claim->job.once)
		read_run(&q->same_id, kv_response(txn, i));
}

void
queue_read_more(struct queue *q, const json_t *range)
{
	read_page(q, range);
}

/* ---- what it means ---- */

bool
queue_lets_in(const struct queue *q)
{
	switch (q->claim->kind) {
	case KIND_SHARED:
		return q->excludes.create == 0;
	case KIND_LIMIT:
		return q->excludes.create == 0 && q->ahead < q->claim->limit;
	default:
		return q->last.create == 0;
	}
}

void
queue_watch(const struct queue *q, struct watch_list *w)
{
	const struct names *l = q->names;
	const struct ahead *a = is_counted(q) && q->excludes.create ? &q->excludes
								    : &q->last;
	bool counted = q->claim->kind == KIND_LIMIT && !q->excludes.create;

	w->n = 0;
	w->at[w->n++] = (struct watched){q->own, NULL, .deletions = true};
	if (queue_lets_in(q)) { /* only a freeze is in the way */
		w->at[w->n++] = (struct watched){
		    l->freeze, NULL, .puts = true, .deletions = true};
	} else if (counted && a->held) { /* the next in line: any holder may go */
		w->at[w->n++] = (struct watched){
		    l->queue, l->queue_end, .deletions = true};
	} else {
		snprintf(w->key, sizeof w->key, "%s%s", l->queue, a->name);
		w->at[w->n++] = (struct watched){
		    w->key, NULL, .puts = counted, .deletions = true};
	}
}

unsigned
queue_permit(const struct queue *q, unsigned least)
{
	while (least < q->claim->limit && q->used[least / 8] & 1 << least % 8)
		least++;
	return least;
}
