/*
 * look.c - tells what locks and jobs an etcd has.
 *
 *  1. A queue is read page by page in the order of its create revisions, as of one revision of
 *     the store.  When etcd has compacted that meanwhile, the look has to be made again.
 *  2. Which keys there are is found by their names, one after the other: a key's whole queue
 *     is passed over to find the next one.
 *  3. The runs that are remembered are read in the order of their names, page by page.
 */
#include "etcd.h"

#include "backends/common/text.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WHO_CHARS = 64 };

struct shown {
	struct queue_entry entry;
	char value[WHO_CHARS + 1]; /* of another client */
	bool held;
};

struct looking {
	struct etcd *etcd;
	const struct look *look;
	struct fault *fault;
	struct names names;
	const char *key; /* that is told now */
	bool enough;     /* nobody wants to hear more */
	int64_t revision, count;
	unsigned waiters;
	int64_t
	    first; /* create revision of the first key of the queue; 0: not seen yet */
	int64_t read_to; /* that of the last key of the pages that are told */
	struct shown page[PAGE];

	/* of a look at jobs */
	char job[KEY_BYTES + 1]; /* the key that is told */
	struct run good;         /* its last one that ended with 0, */
	bool has_good;           /* which has not been told yet */
};

/* ---- entries ---- */

/* Without what it repeats of our own password; NULL for NULL. */
static const char *
blotted(const struct looking *l, char out[RECORD_BYTES], const char *text)
{
	if (!text)
		return NULL;
	snprintf(out, RECORD_BYTES, "%s", text);
	secret_blot(out, l->etcd->address.password);
	return out;
}

static void
tell(struct looking *l, struct entry *e)
{
	char record[RECORD_BYTES], asker[RECORD_BYTES];

	e->record = blotted(l, record, e->record);
	e->asker = blotted(l, asker, e->asker);
	e->key = l->key;
	if (!l->enough)
		l->enough = !l->look->see(
		    l->look->ctx, e, cluster_time(&l->etcd->cluster));
}

/* What is said of its lease and its mark; NULL: they were not asked for. */
static void
tell_shown(struct looking *l, const struct shown *s, const struct call *lease,
    const json_t *mark)
{
	char what[96];
	const struct queue_entry *q = &s->entry;
	const struct foreign foreign = {.what = what, .who = *s->value ? s->value : NULL};
	int64_t ttl = lease && lease->code == CODE_OK ? kv_number(lease->answer, "TTL")
						      : 0;
	struct kv asker;
	struct entry e = {.kind = s->held ? ENTRY_HOLDER : ENTRY_WAITER,
	    .lock = q->name.kind,
	    .limit = q->name.limit,
	    .token = s->held ? (uint64_t)q->create : 0,
	    .owner = q->foreign ? q->name.text : q->value.owner,
	    .slot = q->value.slot,
	    .position = s->held ? 0 : ++l->waiters,
	    .record = q->foreign ? NULL : q->value.record,
	    .foreign = q->foreign ? &foreign : NULL,
	    .since = q->value.since,
	    .until = EPOCH_NONE,
	    .revoked = kv_read(&asker, mark, 0)};

	snprintf(
	    what, sizeof what, "a client of etcd, lease %" PRIx64, (uint64_t)q->lease);
	e.asker = e.revoked ? asker.value : NULL;
	if (ttl > 0)
		e.until = cluster_time(&l->etcd->cluster) + etcd_lease_ns(ttl) / 1000;
	tell(l, &e);
}

static void
tell_freeze(struct looking *l, const json_t *range)
{
	struct freeze z;
	struct kv kv;
	struct entry e = {.kind = ENTRY_FREEZE, .slot = -1};

	if (!kv_read(&kv, range, 0))
		return;
	freeze_read(&z, kv.value);
	if (z.until != EPOCH_NONE && z.until <= cluster_time(&l->etcd->cluster))
		return;
	e.record = z.record;
	e.since = z.since;
	e.until = z.until;
	tell(l, &e);
}

static void
tell_run(struct looking *l, enum entry_kind kind, const struct run *r)
{
	char once[ONCE_BYTES + 1];
	struct entry e = {.kind = kind,
	    .slot = -1,
	    .token = (uint64_t)r->token,
	    .record = r->record,
	    .since = r->began,
	    .until = r->ended,
	    .status = r->status};

	if (encode_undo(once, sizeof once, r->once, strlen(r->once)) > 0)
		e.once = once;
	tell(l, &e);
}

/* The last runs of a key; NULL: there is none. */
static void
tell_last(struct looking *l, const struct run *last, const struct run *good)
{
	if (last)
		tell_run(l, ENTRY_LAST, last);
	if (good && !(last && last->status == 0))
		tell_run(l, ENTRY_GOOD, good);
}

/* ---- the queue of one key ---- */

/* Reads a page without what stood in those before it: how many keys. */
static size_t
read_page(struct looking *l, const json_t *range)
{
	struct kv kv;
	size_t n = 0;

	for (size_t i = 0; i < PAGE; i++) {
		struct shown *s = &l->page[n];

		if (!queue_entry_read(&s->entry, &kv, &l->names, range, i) ||
		    s->entry.create <= l->read_to)
			continue;
		if (!l->first)
			l->first = s->entry.create;
		s->held = s->entry.foreign ? s->entry.create == l->first
					   : s->entry.value.held;
		snprintf(s->value, sizeof s->value, "%.*s", WHO_CHARS, kv.value);
		n++;
	}
	return n;
}

/*
 * Tells a page, with the leases and marks of its holders.  Waiters are only counted where that is
 * enough.  *more: there is another page to tell.
 */
static enum rc
tell_page(struct looking *l, const json_t *range, bool *more)
{
	size_t n = read_page(l, range);
	struct call calls[PAGE + 1]; /* the marks of all, and the lease of each */
	struct txn marks = {0};
	char mark[QUEUE_BYTES + 32];
	enum rc rc = RC_OK;
	int holders = 0, told = 0;

	for (size_t i = 0; i < n; i++) {
		const struct queue_entry *q = &l->page[i].entry;

		if (!l->page[i].held)
			continue;
		snprintf(mark, sizeof mark, "%s%s", l->names.marks, q->name.text);
		kv_op_range(&marks.success, &(struct kv_range){.key = mark});
		calls[++holders] = call_lease("/v3/lease/timetolive", q->lease);
	}
	calls[0] = call_txn(&marks);
	if (holders > 0)
		rc = cluster_calls(
		    &l->etcd->cluster, calls, holders + 1, l->look->until, l->fault);
	for (size_t i = 0; rc == RC_OK && i < n; i++) {
		const struct shown *s = &l->page[i];

		l->read_to = s->entry.create;
		l->count -= s->held;
		if (s->held) {
			told++;
			tell_shown(
			    l, s, &calls[told], kv_response(calls[0].answer, told - 1));
		} else if (!l->look->brief) {
			tell_shown(l, s, NULL, NULL);
		}
	}
	calls_free(calls, holders + 1);
	*more = n > 0 && kv_count(range) >= PAGE && !l->enough &&
	    (!l->look->brief || holders > 0);
	return rc;
}

static enum rc
tell_pages(struct looking *l, const json_t *first)
{
	bool more;
	enum rc rc = tell_page(l, first, &more);

	while (rc == RC_OK && more) {
		const struct kv_range next = names_page(
		    &l->names, PAGE, l->read_to, l->revision);
		json_t *range = cluster_answer(
		    &l->etcd->cluster, call_range(&next), l->look->until, &rc, l->fault);

		if (range)
			rc = tell_page(l, range, &more);
		json_decref(range);
	}
	return rc;
}

/*
 * Tells all of one key; its last runs only where the key was asked for.  `idle`: only if nobody is
 * queued for it.
 */
static enum rc
tell_key(struct looking *l, const char *key, bool idle)
{
	struct etcd *e = l->etcd;
	char last[QUEUE_BYTES + 8], good[QUEUE_BYTES + 8];
	struct run runs[2];
	struct kv_range page;
	struct txn reads = {0};
	json_t *found;
	enum rc rc;

	names_of(&l->names, e->root, e->name, key);
	l->key = key;
	l->waiters = 0;
	l->first = l->read_to = 0;
	page = names_page(&l->names, PAGE, 0, 0);
	snprintf(last, sizeof last, "%slast", l->names.jobs);
	snprintf(good, sizeof good, "%sgood", l->names.jobs);
	kv_op_range(&reads.success, &page);
	kv_op_range(&reads.success, &(struct kv_range){.key = l->names.freeze});
	if (l->look->key) {
		kv_op_range(&reads.success, &(struct kv_range){.key = last});
		kv_op_range(&reads.success, &(struct kv_range){.key = good});
	}
	found = cluster_answer(
	    &e->cluster, call_txn(&reads), l->look->until, &rc, l->fault);
	if (!found)
		return rc;
	l->revision = kv_header(found, "revision");
	l->count = kv_number(kv_response(found, 0), "count");
	if (idle && l->count > 0) {
		json_decref(found);
		return RC_OK;
	}
	rc = tell_pages(l, kv_response(found, 0));
	if (rc == RC_OK && l->look->brief && l->count > 0)
		tell(l,
		    &(struct entry){
			.kind = ENTRY_WAITING, .slot = -1, .count = (uint64_t)l->count});
	if (rc == RC_OK)
		tell_freeze(l, kv_response(found, 1));
	if (rc == RC_OK && l->look->key)
		tell_last(l, run_found(&runs[0], kv_response(found, 2)) ? &runs[0] : NULL,
		    run_found(&runs[1], kv_response(found, 3)) ? &runs[1] : NULL);
	json_decref(found);
	return rc;
}

/* ---- all keys ---- */

/* A key of a queue tells of all of it; one that is frozen and queued for is told with its queue. */
static enum rc
see_queue(struct looking *l, const char *at, const char *value)
{
	char key[KEY_BYTES + 1];
	size_t n = strcspn(at, "/");

	(void)value;
	return at[n] && encode_read_key(key, at, n) ? tell_key(l, key, false) : RC_OK;
}

static enum rc
see_freeze(struct looking *l, const char *at, const char *value)
{
	char key[KEY_BYTES + 1];

	(void)value;
	return encode_read_key(key, at, strlen(at)) ? tell_key(l, key, true) : RC_OK;
}

/* A key's last runs stand around those of its IDs: "good", "id/ID", "last". */
static void
tell_pending(struct looking *l, const struct run *last)
{
	tell_last(l, last, l->has_good ? &l->good : NULL);
	l->has_good = false;
}

static enum rc
see_job(struct looking *l, const char *at, const char *value)
{
	size_t n = strcspn(at, "/");
	const char *name = at + n, *own = l->etcd->name;
	char key[KEY_BYTES + 1];
	struct run r;
	bool read;

	if (own)
		snprintf(key, sizeof key, "%s", own);
	else if (!encode_read_key(key, at, n))
		return RC_OK;
	if (strcmp(key, l->job) != 0)
		tell_pending(l, NULL);
	memcpy(l->job, key, sizeof key);
	read = run_read(&r, value);
	if (read && strcmp(name, "/good") == 0) {
		l->good = r;
		l->has_good = true;
	} else if (read && strcmp(name, "/last") == 0) {
		tell_pending(l, &r);
	} else if (read && strncmp(name, "/id/", 4) == 0) {
		tell_run(l, ENTRY_DONE, &r);
	}
	return RC_OK;
}

/*
 * Sees the names below ROOT/LETTER/, or those of one key, in their order: what stands behind that,
 * E or E/NAME, and its value.  Of a queue only the first is seen.
 */
static enum rc
see_below(struct looking *l, const char *below,
    enum rc (*see)(struct looking *, const char *at, const char *value))
{
	char end[QUEUE_BYTES], from[KV_KEY_BYTES + 2];
	size_t root = strlen(l->etcd->root) + strlen("/q/"), n = PAGE;
	struct kv kv;
	enum rc rc = RC_OK;

	names_end(end, sizeof end, below);
	snprintf(from, sizeof from, "%s", below);
	while (rc == RC_OK && !l->enough && n == PAGE) {
		const struct kv_range page = {
		    .key = from, .end = end, .limit = PAGE, .keys_only = see != see_job};
		json_t *found = cluster_answer(
		    &l->etcd->cluster, call_range(&page), l->look->until, &rc, l->fault);
		bool any = false;

		n = kv_count(found);
		for (size_t i = 0; rc == RC_OK && !l->enough && i < n; i++) {
			/* of a name with a NUL, or a long one, the beginning will do */
			bool whole = kv_read(&kv, found, i);
			const char *slash;

			if (strncmp(kv.key, below, strlen(below)) != 0 ||
			    strcmp(kv.key, from) < 0)
				continue;
			any = true;
			slash = see == see_queue ? strchr(kv.key + root, '/') : NULL;
			/* 0 comes after a slash; the end of a long name is not known */
			snprintf(from, sizeof from, "%.*s%s",
			    slash ? (int)(slash - kv.key) : KV_KEY_BYTES, kv.key,
			    slash                                   ? "0"
				: strlen(kv.key) < KV_KEY_BYTES - 1 ? "\1"
								    : "\xff");
			if (whole || see == see_queue)
				rc = see(l, kv.key + root, kv.value);
		}
		json_decref(found);
		if (rc == RC_OK && n > 0 && !any && !l->enough)
			rc = fault_set(l->fault, RC_PROTOCOL,
			    "%s tells of other keys than were asked for: is this an etcd server?",
			    l->etcd->server_name);
	}
	return rc;
}

static enum rc
see_all(struct looking *l, char letter,
    enum rc (*see)(struct looking *, const char *, const char *))
{
	char below[ROOT_MOST + 8];

	snprintf(below, sizeof below, "%s/%c/", l->etcd->root, letter);
	return see_below(l, below, see);
}

enum rc
etcd_each(struct store *s, const struct look *look, struct fault *f)
{
	struct etcd *e = etcd_of(s);
	struct looking *l = calloc(1, sizeof *l);
	enum rc rc;

	if (!l)
		return fault_set(f, RC_SYSTEM, "out of memory");
	l->etcd = e;
	l->look = look;
	l->fault = f;
	if (look->jobs) {
		names_of(&l->names, e->root, e->name, e->name ? e->name : "");
		l->key = l->job;
		rc = e->name ? see_below(l, l->names.jobs, see_job)
			     : see_all(l, 'j', see_job);
		tell_pending(l, NULL);
	} else if (look->key || e->name) {
		rc = tell_key(l, look->key ? look->key : e->name, false);
	} else {
		rc = see_all(l, 'q', see_queue);
		if (rc == RC_OK && !l->enough)
			rc = see_all(l, 'f', see_freeze);
	}
	free(l);
	return rc;
}
