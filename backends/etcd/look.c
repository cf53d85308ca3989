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

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WHO_CHARS = 64 };

/* One key of a page. */
struct shown {
	struct queue_entry entry;
	struct kv kv;
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
	bool holders;    /* were in the last page */
	bool full;       /* there are more pages */

	/* of a look at jobs */
	char job[KEY_BYTES + 1]; /* the key that is told */
	struct run good;         /* its last one that ended with 0, */
	bool has_good;           /* which has not been told yet */
};

/* ---- entries ---- */

static void
tell(struct looking *l, struct entry *e)
{
	e->key = l->key;
	if (!l->enough)
		l->enough = !l->look->see(
		    l->look->ctx, e, cluster_time(&l->etcd->cluster));
}

/* NULL: its lease and its mark are not known. */
static void
tell_shown(struct looking *l, const struct shown *s, const struct call *lease,
    const json_t *mark)
{
	char what[96], who[WHO_CHARS + 1];
	const struct queue_entry *q = &s->entry;
	const struct foreign foreign = {.what = what, .who = *s->kv.value ? who : NULL};
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
	snprintf(who, sizeof who, "%.*s", WHO_CHARS, s->kv.value);
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

/* False: it is none, or was in a page before. */
static bool
read_shown(struct looking *l, struct shown *s, const json_t *range, size_t i)
{
	const struct queue_entry *q = &s->entry;

	if (!queue_entry_read(&s->entry, &s->kv, &l->names, range, i) ||
	    q->create <= l->read_to)
		return false;
	if (!l->first)
		l->first = q->create;
	s->held = q->foreign ? q->create == l->first : q->value.held;
	return true;
}

/* Asks for the marks of a page's holders, and then, one by one, how long their leases last. */
static enum rc
ask_holders(struct looking *l, const json_t *range, struct call calls[PAGE + 1], int *n)
{
	json_t *marks = json_array();
	char mark[QUEUE_BYTES + 32];
	struct shown s;

	*n = 1;
	for (size_t i = 0; i < PAGE; i++) {
		if (!read_shown(l, &s, range, i) || !s.held)
			continue;
		snprintf(mark, sizeof mark, "%s%s", l->names.marks, s.entry.name.text);
		kv_add(&marks, kv_op_range(&(struct kv_range){.key = mark}));
		calls[(*n)++] = call_lease("/v3/lease/timetolive", s.entry.lease);
	}
	calls[0] = call_txn(json_array(), marks, json_array());
	return *n > 1 ? admin_ask(l->etcd, calls, *n, l->look->until, l->fault) : RC_OK;
}

/* Tells a page; of others than the first, waiters are only counted where that is enough. */
static enum rc
tell_page(struct looking *l, const json_t *range)
{
	struct call calls[PAGE + 1];
	int64_t last = l->read_to;
	struct shown s;
	int n, k = 0;
	enum rc rc = ask_holders(l, range, calls, &n);

	l->holders = n > 1;
	for (size_t i = 0; rc == RC_OK && i < PAGE; i++) {
		if (!read_shown(l, &s, range, i))
			continue;
		last = s.entry.create;
		l->count -= s.held;
		if (s.held) {
			const json_t *mark = kv_response(calls[0].answer, (size_t)k);

			tell_shown(l, &s, &calls[++k], mark);
		} else if (!l->look->brief) {
			tell_shown(l, &s, NULL, NULL);
		}
	}
	calls_free(calls, n);
	l->full = kv_count(range) >= PAGE && last > l->read_to;
	l->read_to = last;
	return rc;
}

static struct kv_range
page_of(const struct looking *l)
{
	return (struct kv_range){.key = l->names.queue,
	    .end = l->names.queue_end,
	    .limit = PAGE,
	    .least_create = l->read_to ? l->read_to + 1 : 0,
	    .revision = l->revision,
	    .by_create = true};
}

static enum rc
tell_pages(struct looking *l, const json_t *first)
{
	enum rc rc = tell_page(l, first);

	while (rc == RC_OK && !l->enough && l->full && (!l->look->brief || l->holders)) {
		struct kv_range next = page_of(l);
		json_t *range = admin_range(
		    l->etcd, &next, l->look->until, &rc, l->fault);

		if (range)
			rc = tell_page(l, range);
		json_decref(range);
	}
	return rc;
}

/* Tells all of one key; its last runs only where the key was asked for. */
static enum rc
tell_key(struct looking *l, const char *key)
{
	struct etcd *e = l->etcd;
	char last[QUEUE_BYTES + 8], good[QUEUE_BYTES + 8];
	struct run runs[2];
	struct kv_range page;
	json_t *ops, *found;
	enum rc rc;

	names_of(&l->names, e->root, e->name, key);
	l->key = key;
	l->revision = 0;
	l->waiters = 0;
	l->first = l->read_to = 0;
	page = page_of(l);
	snprintf(last, sizeof last, "%slast", l->names.jobs);
	snprintf(good, sizeof good, "%sgood", l->names.jobs);
	ops = json_pack("[o, o, o, o]", kv_op_range(&page),
	    kv_op_range(&(struct kv_range){.key = l->names.freeze}),
	    kv_op_range(&(struct kv_range){.key = last}),
	    kv_op_range(&(struct kv_range){.key = good}));
	found = admin_ask_one(e, "/v3/kv/txn", kv_txn(json_array(), ops, json_array()),
	    l->look->until, &rc, l->fault);
	if (!found)
		return rc;
	l->revision = kv_header(found, "revision");
	l->count = kv_number(kv_response(found, 0), "count");
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

/* Has anybody a place in that queue? */
static bool
is_queued(struct looking *l, const char *key, enum rc *rc)
{
	struct etcd *e = l->etcd;
	struct names lay;
	json_t *found;
	bool any;

	names_of(&lay, e->root, NULL, key);
	found = admin_range(e,
	    &(struct kv_range){
		.key = lay.queue, .end = lay.queue_end, .count_only = true},
	    l->look->until, rc, l->fault);
	any = kv_number(found, "count") > 0;
	json_decref(found);
	return any;
}

/*
 * Tells each key that has names below ROOT/q/ or ROOT/f/.  One that is frozen and queued for
 * is told with its queue.
 */
static enum rc
tell_below(struct looking *l, const char *letter)
{
	char prefix[ROOT_MOST + 8], end[ROOT_MOST + 8], from[KV_KEY_BYTES + 2];
	char key[KEY_BYTES + 1];
	bool queues = *letter == 'q';
	struct kv kv;
	enum rc rc = RC_OK;

	snprintf(prefix, sizeof prefix, "%s/%s/", l->etcd->root, letter);
	names_end(end, sizeof end, prefix);
	snprintf(from, sizeof from, "%s", prefix);
	while (rc == RC_OK && !l->enough) {
		json_t *found = admin_range(l->etcd,
		    &(struct kv_range){
			.key = from, .end = end, .limit = 1, .keys_only = true},
		    l->look->until, &rc, l->fault);
		/* of a name with a NUL, or a long one, the beginning will do */
		bool read = kv_read(&kv, found, 0), any = read || kv.create > 0;
		const char *behind;
		size_t n;

		json_decref(found);
		if (!any || rc != RC_OK)
			return rc;
		if (strncmp(kv.key, prefix, strlen(prefix)) != 0 ||
		    strcmp(kv.key, from) < 0)
			return fault_set(l->fault, RC_PROTOCOL,
			    "%s tells of other keys than were asked for: is this an etcd server?",
			    l->etcd->server_name);
		n = strcspn(kv.key + strlen(prefix), "/");
		behind = kv.key + strlen(prefix) + n;
		/* 0 comes after a slash; of one that is too long for us the end is not known */
		snprintf(from, sizeof from, "%.*s%s", (int)(behind - kv.key), kv.key,
		    queues && *behind == '/'                 ? "0"
			: strlen(kv.key) < sizeof kv.key - 1 ? "\1"
							     : "\xff");
		if (encode_read_key(key, kv.key + strlen(prefix), n) &&
		    (queues ? *behind == '/' : !is_queued(l, key, &rc)) && rc == RC_OK)
			rc = tell_key(l, key);
	}
	return rc;
}

/* ---- jobs ---- */

/* A key's last runs stand around those of its IDs: "good", "id/ID", "last". */
static void
tell_pending(struct looking *l, const struct run *last)
{
	tell_last(l, last, l->has_good ? &l->good : NULL);
	l->has_good = false;
}

/* `at`: E/NAME, behind ROOT/j/. */
static void
see_job(struct looking *l, const char *at, const char *value)
{
	size_t n = strcspn(at, "/");
	const char *name = at + n, *own = l->etcd->name;
	char key[KEY_BYTES + 1];
	struct run r;

	if (own)
		snprintf(key, sizeof key, "%s", own);
	else if (!encode_read_key(key, at, n))
		return;
	if (strcmp(key, l->job) != 0)
		tell_pending(l, NULL);
	memcpy(l->job, key, sizeof key);
	if (!run_read(&r, value))
		return;
	if (strcmp(name, "/good") == 0) {
		l->good = r;
		l->has_good = true;
	} else if (strcmp(name, "/last") == 0) {
		tell_pending(l, &r);
	} else if (strncmp(name, "/id/", 4) == 0) {
		tell_run(l, ENTRY_DONE, &r);
	}
}

/* Tells all runs that are remembered, in the order of their names. */
static enum rc
tell_jobs(struct looking *l)
{
	struct etcd *e = l->etcd;
	char below[QUEUE_BYTES], end[QUEUE_BYTES], from[KV_KEY_BYTES + 2];
	size_t root = strlen(e->root) + strlen("/j/"), n = PAGE;
	struct kv kv;
	enum rc rc = RC_OK;

	names_of(&l->names, e->root, e->name, e->name ? e->name : "");
	snprintf(below, sizeof below, "%.*s", e->name ? QUEUE_BYTES : (int)root,
	    l->names.jobs);
	names_end(end, sizeof end, below);
	snprintf(from, sizeof from, "%s", below);
	l->key = l->job;
	while (rc == RC_OK && !l->enough && n == PAGE) {
		const struct kv_range page = {.key = from, .end = end, .limit = PAGE};
		json_t *found = admin_range(e, &page, l->look->until, &rc, l->fault);
		bool any = false;

		n = kv_count(found);
		for (size_t i = 0; i < n; i++) {
			if (!kv_read(&kv, found, i) || strcmp(kv.key, from) < 0 ||
			    strncmp(kv.key, below, strlen(below)) != 0)
				continue;
			any = true;
			see_job(l, kv.key + root, kv.value);
			snprintf(from, sizeof from, "%s\1", kv.key);
		}
		json_decref(found);
		if (rc == RC_OK && n == PAGE && !any)
			rc = fault_set(l->fault, RC_PROTOCOL,
			    "%s has keys below %s that are no dlock's", e->server_name,
			    below);
	}
	tell_pending(l, NULL);
	return rc;
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
		rc = tell_jobs(l);
	} else if (look->key || e->name) {
		rc = tell_key(l, look->key ? look->key : e->name);
	} else {
		rc = tell_below(l, "q");
		if (rc == RC_OK)
			rc = tell_below(l, "f");
	}
	free(l);
	return rc;
}
