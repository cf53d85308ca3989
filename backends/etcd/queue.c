/* queue.c - the names and values of what is kept for a lock, and what its queue means. */
#include "queue.h"

#include "backends/common/sha.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- names ---- */

void
names_end(char *out, size_t size, const char *prefix)
{
	size_t n = strlen(prefix);

	snprintf(out, size, "%s", prefix);
	if (n > 0 && n < size)
		out[n - 1]++;
}

void
names_of(struct names *l, const char *root, const char *name, const char *key)
{
	char id[ENCODED_BYTES + 1] = "+";
	size_t plus = name != NULL;

	encode_key(id + plus, sizeof id - plus, name ? name : key);
	if (name)
		snprintf(l->queue, sizeof l->queue, "%s/", name);
	else
		snprintf(l->queue, sizeof l->queue, "%s/q/%s/", root, id);
	names_end(l->queue_end, sizeof l->queue_end, l->queue);
	snprintf(l->freeze, sizeof l->freeze, "%s/f/%s", root, id);
	snprintf(l->permits, sizeof l->permits, "%s/s/%s/", root, id);
	snprintf(l->marks, sizeof l->marks, "%s/m/%s/", root, id);
	snprintf(l->jobs, sizeof l->jobs, "%s/j/%s/", root, id);
}

const char *
key_below(char out[LONG_BYTES], const char *below, const char *name)
{
	snprintf(out, LONG_BYTES, "%s%s", below, name);
	return out;
}

void
names_permit(char out[LONG_BYTES], const struct names *l, unsigned slot)
{
	snprintf(out, LONG_BYTES, "%s%06u", l->permits, slot);
}

const char *
names_run(char out[JOB_BYTES], const struct names *l, const char *which, const char *once)
{
	char id[ENCODED_BYTES] = "";

	if (once)
		encode_key(id, sizeof id, once);
	snprintf(out, JOB_BYTES, "%s%s%s", l->jobs, which, id);
	return out;
}

void
queue_name_write(struct queue_name *m, int64_t lease, enum lock_kind kind, unsigned limit)
{
	int n = snprintf(m->text, sizeof m->text, "%" PRIx64, (uint64_t)lease);

	m->kind = kind;
	m->limit = kind == KIND_LIMIT ? limit : 0;
	if (kind == KIND_SHARED)
		snprintf(m->text + n, sizeof m->text - n, ".r");
	else if (kind == KIND_LIMIT)
		snprintf(m->text + n, sizeof m->text - n, ".%u", limit);
}

bool
queue_name_read(struct queue_name *m, const char *text)
{
	size_t hex = strspn(text, "0123456789abcdef");
	const char *suffix = text + hex;
	int limit;

	*m = (struct queue_name){.kind = KIND_EXCLUSIVE};
	if (strlen(text) >= sizeof m->text || hex == 0 || hex > 16)
		return false;
	memcpy(m->text, text, strlen(text) + 1);
	if (!*suffix)
		return true;
	limit = *suffix == '.'
	    ? endpoint_number(suffix + 1, strlen(suffix + 1), LIMIT_MAX)
	    : 0;
	if (strcmp(suffix, ".r") == 0)
		m->kind = KIND_SHARED;
	else if (limit > 0)
		m->kind = KIND_LIMIT;
	m->limit = m->kind == KIND_LIMIT ? (unsigned)limit : 0;
	return m->kind != KIND_EXCLUSIVE;
}

int64_t
lease_of(const char *owner, const char *key, unsigned nth)
{
	unsigned char hash[SHA256_BYTES];
	char text[QUEUE_BYTES + 64];
	int64_t lease = 0;
	int n = snprintf(text, sizeof text, "%s %u %s", owner, nth, key);

	sha_256(hash, text, (size_t)n < sizeof text ? (size_t)n : sizeof text - 1);
	for (int i = 0; i < 8; i++)
		lease = (int64_t)((uint64_t)lease << 8 | hash[i]);
	lease &= INT64_MAX;
	return lease ? lease : 1;
}

/* ---- values ---- */

#define TIME_MOST (INT64_C(1) << 60) /* us: 36,500 years */

/* Others (hostile) are too large to be reckoned with. */
static bool
is_time(int64_t us)
{
	return us > -TIME_MOST && us < TIME_MOST;
}

/* The rest of a value, a record. */
static bool
read_record(char record[RECORD_BYTES], const char *text)
{
	return snprintf(record, RECORD_BYTES, "%s", text) < RECORD_BYTES;
}

void
queue_value_write(char out[KV_VALUE_BYTES], const struct queue_value *v)
{
	snprintf(out, KV_VALUE_BYTES, "dlock1 %s %c %" PRId64 " %d %s", v->owner,
	    v->held ? 'h' : 'w', v->since, v->slot, v->record);
}

bool
queue_value_read(struct queue_value *v, const char *text)
{
	int end = 0;
	char state;

	*v = (struct queue_value){.slot = -1};
	if (sscanf(text, "dlock1 %32[0-9a-f] %c %" SCNd64 " %d %n", v->owner, &state,
		&v->since, &v->slot, &end) != 4 ||
	    end == 0 || strlen(v->owner) != OWNER_CHARS || v->slot < -1 ||
	    v->slot >= LIMIT_MAX || !is_time(v->since) || (state != 'h' && state != 'w'))
		return false;
	v->held = state == 'h';
	return read_record(v->record, text + end);
}

void
freeze_write(char out[KV_VALUE_BYTES], const struct freeze *z)
{
	snprintf(out, KV_VALUE_BYTES, "dlock1 %" PRId64 " %" PRId64 " %s", z->since,
	    z->until, z->record);
}

bool
freeze_read(struct freeze *z, const char *text)
{
	int end = 0;

	*z = (struct freeze){.until = EPOCH_NONE};
	if (sscanf(text, "dlock1 %" SCNd64 " %" SCNd64 " %n", &z->since, &z->until,
		&end) == 2 &&
	    end > 0 && is_time(z->since) && is_time(z->until))
		return read_record(z->record, text + end);
	*z = (struct freeze){.until = EPOCH_NONE};
	return false;
}

void
run_write(char out[KV_VALUE_BYTES], const struct run *r)
{
	snprintf(out, KV_VALUE_BYTES,
	    "dlock1 %" PRId64 " %" PRId64 " %" PRId64 " %d id=%s %s", r->began, r->ended,
	    r->token, r->status, r->once, r->record);
}

bool
run_read(struct run *r, const char *text)
{
	int end = 0;
	size_t n;

	*r = (struct run){.status = STATUS_NONE};
	if (sscanf(text, "dlock1 %" SCNd64 " %" SCNd64 " %" SCNd64 " %d id=%n", &r->began,
		&r->ended, &r->token, &r->status, &end) != 4 ||
	    end == 0 || r->status < 0 || r->status > 255 || !is_time(r->began) ||
	    !is_time(r->ended))
		return false;
	n = strcspn(text + end, " ");
	if (n >= sizeof r->once || text[end + n] != ' ')
		return false;
	memcpy(r->once, text + end, n);
	return read_record(r->record, text + end + n + 1);
}

bool
queue_entry_read(struct queue_entry *e, struct kv *kv, const struct names *l,
    const json_t *range, size_t i, bool first)
{
	size_t n = strlen(l->queue);
	bool good = kv_read(kv, range, i) && strncmp(kv->key, l->queue, n) == 0;
	const char *name = good ? kv->key + n : "?";

	if (kv->create <= 0)
		return false;
	e->create = kv->create;
	e->lease = kv->lease;
	e->foreign = !good || !queue_value_read(&e->value, kv->value);
	if (e->foreign)
		e->value = (struct queue_value){
		    .held = first, .since = EPOCH_NONE, .slot = -1};
	/* etcdctl's lock waits for whatever stands below its name, and so do we */
	if (!queue_name_read(&e->name, name)) {
		e->name = (struct queue_name){.kind = KIND_EXCLUSIVE,
		    .cut = !good || strlen(name) >= sizeof e->name.text};
		snprintf(e->name.text, sizeof e->name.text, "%.31s", name);
	}
	return true;
}

/* ---- asking ---- */

static bool
is_counted(const struct queue *q)
{
	return !kind_is_exclusive(q->claim->kind);
}

/*
 * So many are read at once.  Who is alone for itself needs only the last one before it, however
 * many there are; the first ones are for people to see.
 */
static int64_t
page_size(const struct queue *q)
{
	return is_counted(q) ? PAGE : HEAD;
}

struct kv_range
names_page(const struct names *l, int64_t size, int64_t after, int64_t revision)
{
	return (struct kv_range){.key = l->queue,
	    .end = l->queue_end,
	    .limit = size,
	    .least_create = after ? after + 1 : 0,
	    .revision = revision,
	    .by_create = true};
}

void
queue_ask(const struct queue *q, bool others, struct text *ops)
{
	const struct names *l = q->names;
	const struct kv_range page = names_page(l, page_size(q), 0, 0);
	/* who has just joined is the newest */
	const struct kv_range last = {.key = l->queue,
	    .end = l->queue_end,
	    .limit = q->create ? 1 : 2,
	    .most_create = q->create ? q->create - 1 : 0,
	    .newest = true};
	char key[JOB_BYTES];

	kv_op_range(ops, &(struct kv_range){.key = q->own, .keys_only = !others});
	kv_op_key(ops, l->freeze);
	if (job_is_wanted(&q->claim->job))
		kv_op_key(ops, names_run(key, l, "good", NULL));
	if (q->claim->job.once)
		kv_op_key(ops, names_run(key, l, "id/", q->claim->job.once));
	if (q->claim->job.no_retry)
		kv_op_key(ops, names_run(key, l, "final/", q->claim->job.once));
	if (others)
		kv_op_range(ops, &page);
	if (others && !is_counted(q))
		kv_op_range(ops, &last);
}

/* ---- reading ---- */

/* One that stands before us; they come in order. */
static void
see_ahead(struct queue *q, const struct queue_entry *e)
{
	q->last = *e;
	if (kind_is_exclusive(e->name.kind))
		q->excludes = *e;
	if (is_counted(q) && !kind_is_exclusive(e->name.kind) &&
	    (e->name.kind != q->claim->kind || e->name.limit != q->claim->limit)) {
		q->mixed = true;
		q->other = e->name.kind;
		q->other_limit = e->name.limit;
	}
	if (e->value.held && q->holders++ == 0)
		q->first_holder = *e;
	if (e->value.held && e->value.slot >= 0)
		q->used[e->value.slot / 8] |= 1 << e->value.slot % 8;
	q->ahead++;
}

void
queue_read_more(struct queue *q, const json_t *range)
{
	size_t n = kv_count(range);
	struct queue_entry e;
	struct kv kv;

	q->whole = (int64_t)n < page_size(q);
	for (size_t i = 0; i < n; i++) {
		if (!queue_entry_read(&e, &kv, q->names, range, i, q->ahead == 0) ||
		    kv.create <= q->read_to)
			continue;
		q->read_to = kv.create;
		if (q->create > 0 && kv.create >= q->create)
			q->whole = true;
		else
			see_ahead(q, &e);
	}
}

static void
read_last(struct queue *q, const json_t *range)
{
	struct queue_entry e;
	struct kv kv;

	for (size_t i = 0;
	     !q->whole && queue_entry_read(&e, &kv, q->names, range, i, false); i++)
		if (kv.create < q->create) {
			q->last = e;
			q->whole = true;
		}
}

bool
run_found(struct run *r, const json_t *range)
{
	struct kv kv;

	if (kv_read(&kv, range, 0) && run_read(r, kv.value))
		return true;
	*r = (struct run){0};
	return false;
}

void
queue_read(struct queue *q, const json_t *txn, size_t i)
{
	const json_t *page;
	struct kv kv;

	memset(&q->revision, 0, sizeof *q - offsetof(struct queue, revision));
	q->revision = kv_header(txn, "revision");
	q->create = kv_read(&kv, kv_response(txn, i++), 0) ? kv.create : 0;
	queue_value_read(&q->value, q->create ? kv.value : "");
	q->frozen = kv_read(&kv, kv_response(txn, i++), 0);
	q->freeze_modified = kv.modified;
	freeze_read(&q->freeze, q->frozen ? kv.value : "");
	if (job_is_wanted(&q->claim->job))
		run_found(&q->good, kv_response(txn, i++));
	if (q->claim->job.once)
		run_found(&q->same_id, kv_response(txn, i++));
	if (q->claim->job.no_retry)
		run_found(&q->final, kv_response(txn, i++));
	page = kv_response(txn, i++);
	q->count = kv_number(page, "count");
	queue_read_more(q, page);
	if (q->create > 0 && !is_counted(q))
		read_last(q, kv_response(txn, i));
}

/* ---- what it means ---- */

bool
queue_has_room(const struct queue *q)
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

/*
 * Of several who may take a permit, the first one does so first: tokens are dealt in the order of
 * the queue, and of two who have one slot the later is to have the greater.
 */
bool
queue_lets_in(const struct queue *q)
{
	return queue_has_room(q) &&
	    (q->claim->kind != KIND_LIMIT || q->holders == q->ahead);
}

void
queue_watch(const struct queue *q, struct watch_list *w)
{
	const struct names *l = q->names;
	const struct queue_entry *a = is_counted(q) && q->excludes.create ? &q->excludes
									  : &q->last;
	bool counted = q->claim->kind == KIND_LIMIT && !q->excludes.create;

	w->at[0] = (struct watched){.key = q->own};
	if (queue_lets_in(q)) { /* only a freeze is in the way */
		w->at[1] = (struct watched){.key = l->freeze, .puts = true};
	} else if ((counted && a->value.held) || a->name.cut) {
		/* the next in line: any holder may go; or the key is not known */
		w->at[1] = (struct watched){.key = l->queue,
		    .end = l->queue_end,
		    .puts = counted && q->holders < q->ahead};
	} else {
		w->at[1] = (struct watched){
		    .key = key_below(w->key, l->queue, a->name.text), .puts = counted};
	}
}

unsigned
queue_permit(const struct queue *q, unsigned least)
{
	while (least < q->claim->limit && q->used[least / 8] & 1 << least % 8)
		least++;
	return least;
}
