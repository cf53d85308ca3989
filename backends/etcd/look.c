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

enum { WHO_CHARS = 64 }; /* of another client's value */

struct looking {
	struct etcd *etcd;
	const struct look *look;
	struct fault *fault;
	struct names names;
	const char *key; /* that is told now */
	bool enough;     /* nobody wants to hear more */
	int64_t count;   /* of the queue, without the holders that were told */
	unsigned waiters;
	int64_t read_to; /* create revision of the last key seen; 0: none */

	/* of a look at jobs */
	char job[KEY_BYTES + 1]; /* the key that is told */
	struct run good; /* its last one that ended with 0; token 0: none is to be told */
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

/* The last runs of a key, as far as there are any. */
static void
tell_last(struct looking *l, const struct run *last, const struct run *good)
{
	if (last->token)
		tell_run(l, ENTRY_LAST, last);
	if (good->token && !(last->token && last->status == 0))
		tell_run(l, ENTRY_GOOD, good);
}

/* ---- the queue of one key ---- */

/* The next one of a page that stands behind *read_to.  False: there is none. */
static bool
next_place(const struct looking *l, const json_t *range, size_t *i, int64_t *read_to,
    struct queue_entry *q, struct kv *kv)
{
	while (*i < PAGE && *i < kv_count(range))
		if (queue_entry_read(q, kv, &l->names, range, (*i)++, *read_to == 0) &&
		    q->create > *read_to) {
			*read_to = q->create;
			return true;
		}
	return false;
}

/* A holder: with the answers to the questions for its lease, and for who wants it back. */
static void
tell_place(struct looking *l, const struct queue_entry *q, char *value,
    const json_t *lease, const json_t *mark)
{
	bool held = q->value.held;
	char what[96];
	const struct foreign foreign = {.what = what, .who = *value ? value : NULL};
	int64_t ttl = kv_number(lease, "TTL");
	struct kv asker;
	struct entry e = {.kind = held ? ENTRY_HOLDER : ENTRY_WAITER,
	    .lock = q->name.kind,
	    .limit = q->name.limit,
	    .token = held ? (uint64_t)q->create : 0,
	    .owner = q->foreign ? q->name.text : q->value.owner,
	    .slot = q->value.slot,
	    .position = held ? 0 : ++l->waiters,
	    .record = q->foreign ? NULL : q->value.record,
	    .foreign = q->foreign ? &foreign : NULL,
	    .since = q->value.since,
	    .until = EPOCH_NONE,
	    .revoked = kv_read(&asker, mark, 0)};

	value[WHO_CHARS] = '\0';
	snprintf(
	    what, sizeof what, "a client of etcd, lease %" PRIx64, (uint64_t)q->lease);
	e.asker = e.revoked ? asker.value : NULL;
	if (ttl > 0)
		e.until = cluster_time(&l->etcd->cluster) + etcd_lease_ns(ttl) / 1000;
	tell(l, &e);
}

/*
 * Tells a page, without what stood in those before it; what is known of its holders is asked in
 * one packet.  Is there another one to tell?
 */
static bool
tell_page(struct looking *l, const json_t *range, enum rc *rc)
{
	struct call calls[1 + PAGE]; /* the marks of all holders, and the lease of each */
	bool brief = l->look->brief, any = false;
	int64_t read_to = l->read_to;
	struct txn marks = {0};
	char mark[LONG_BYTES];
	struct queue_entry q;
	size_t i = 0;
	int holders = 0, told = 0;
	struct kv kv;

	while (next_place(l, range, &i, &read_to, &q, &kv)) {
		any = true;
		if (!q.value.held)
			continue;
		kv_op_key(&marks.success, key_below(mark, l->names.marks, q.name.text));
		calls[++holders] = call_lease("/v3/lease/timetolive", q.lease);
	}
	calls[0] = call_txn(&marks);
	if (holders > 0)
		*rc = cluster_calls(&l->etcd->cluster, calls, 1 + holders,
		    look_answer_by(l->look), l->fault);
	for (i = 0; *rc == RC_OK && !l->enough &&
	     next_place(l, range, &i, &l->read_to, &q, &kv);) {
		l->count -= q.value.held;
		told += q.value.held;
		if (q.value.held)
			tell_place(l, &q, kv.value, calls[told].answer,
			    kv_response(calls[0].answer, told - 1));
		else if (!brief)
			tell_place(l, &q, kv.value, NULL, NULL);
	}
	calls_free(calls, 1 + holders);
	return *rc == RC_OK && any && kv_count(range) >= PAGE && !l->enough &&
	    (!brief || holders > 0);
}

/* From its first page on.  Waiters are only counted where that is enough. */
static enum rc
tell_queue(struct looking *l, json_t *first, int64_t revision)
{
	json_t *page = json_incref(first);
	enum rc rc = RC_OK;

	while (page) {
		bool more = tell_page(l, page, &rc);
		const struct kv_range next = names_page(
		    &l->names, PAGE, l->read_to, revision);

		json_decref(page);
		page = more ? cluster_answer(&l->etcd->cluster, call_range(&next),
				  look_answer_by(l->look), &rc, l->fault)
			    : NULL;
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
	char key_of[JOB_BYTES];
	struct run last, good, shown;
	struct txn reads = {0};
	struct kv_range page;
	json_t *found;
	enum rc rc;

	names_of(&l->names, e->root, e->name, key);
	l->key = key;
	l->waiters = 0;
	l->read_to = 0;
	page = names_page(&l->names, PAGE, 0, 0);
	kv_op_range(&reads.success, &page);
	kv_op_key(&reads.success, l->names.freeze);
	if (l->look->key) {
		kv_op_key(&reads.success, names_run(key_of, &l->names, "last", NULL));
		kv_op_key(&reads.success, names_run(key_of, &l->names, "good", NULL));
		kv_op_key(&reads.success, names_run(key_of, &l->names, "shown", NULL));
	}
	found = cluster_answer(
	    &e->cluster, call_txn(&reads), look_answer_by(l->look), &rc, l->fault);
	l->count = kv_number(kv_response(found, 0), "count");
	run_found(&last, kv_response(found, 2));
	run_found(&good, kv_response(found, 3));
	run_found(&shown, kv_response(found, 4));
	if (rc == RC_OK && !(idle && l->count > 0)) {
		rc = tell_queue(l, kv_response(found, 0), kv_header(found, "revision"));
		if (rc == RC_OK && l->look->brief && l->count > 0)
			tell(l,
			    &(struct entry){.kind = ENTRY_WAITING,
				.slot = -1,
				.count = (uint64_t)l->count});
		if (rc == RC_OK)
			tell_freeze(l, kv_response(found, 1));
		if (rc == RC_OK && l->look->key)
			tell_last(l, &last, &good);
		if (rc == RC_OK && shown.token)
			tell_run(l, ENTRY_SHOWN, &shown);
	}
	json_decref(found);
	return rc;
}

/* ---- all keys ---- */

static const struct run no_run;

/* A key's last runs stand around those of its IDs: "final/ID", "good", "id/ID", "last", "shown". */
static void
tell_pending(struct looking *l, const struct run *last)
{
	tell_last(l, last, &l->good);
	l->good.token = 0;
}

static void
see_run(struct looking *l, const char *key, const char *name, const char *value)
{
	struct run r;

	if (strcmp(key, l->job) != 0)
		tell_pending(l, &no_run);
	snprintf(l->job, sizeof l->job, "%s", key);
	if (!run_read(&r, value))
		return;
	if (strcmp(name, "/good") == 0) {
		l->good = r;
	} else if (strcmp(name, "/last") == 0) {
		tell_pending(l, &r);
	} else if (strcmp(name, "/shown") == 0) {
		tell_run(l, ENTRY_SHOWN, &r);
	} else if (strncmp(name, "/id/", 4) == 0 || strncmp(name, "/final/", 7) == 0) {
		tell_run(l, ENTRY_DONE, &r);
	}
}

/*
 * What stands behind ROOT/LETTER/, E or E/NAME, and its value.  A key of a queue tells of all of
 * it; a key that is frozen and queued for is told with its queue.
 */
static enum rc
see_one(struct looking *l, char letter, const char *at, const char *value)
{
	size_t n = strcspn(at, "/");
	const char *own = letter == 'j' ? l->etcd->name : NULL;
	char key[KEY_BYTES + 1];

	if (!own && (!at[n] != (letter == 'f') || !encode_read_key(key, at, n)))
		return RC_OK;
	if (letter != 'j')
		return tell_key(l, key, letter == 'f');
	see_run(l, own ? own : key, at + n, value);
	return RC_OK;
}

/*
 * Sees the names below ROOT/LETTER/, or the runs of the one lock, in their order.  Of a queue only
 * the first is seen.
 */
static enum rc
see_all(struct looking *l, char letter)
{
	char below[QUEUE_BYTES], end[QUEUE_BYTES], from[KV_KEY_BYTES + 2];
	struct etcd *e = l->etcd;
	size_t root = strlen(e->root) + strlen("/q/"), n = PAGE;
	struct kv kv;
	enum rc rc = RC_OK;

	snprintf(below, sizeof below, "%s/%c/", e->root, letter);
	if (e->name) {
		names_of(&l->names, e->root, e->name, e->name);
		snprintf(below, sizeof below, "%s", l->names.jobs);
	}
	names_end(end, sizeof end, below);
	snprintf(from, sizeof from, "%s", below);
	while (rc == RC_OK && !l->enough && n == PAGE) {
		const struct kv_range page = {
		    .key = from, .end = end, .limit = PAGE, .keys_only = letter != 'j'};
		json_t *found = cluster_answer(&e->cluster, call_range(&page),
		    look_answer_by(l->look), &rc, l->fault);
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
			slash = letter == 'q' ? strchr(kv.key + root, '/') : NULL;
			/* 0 comes after a slash; the end of a long name is not known */
			snprintf(from, sizeof from, "%.*s%s",
			    slash ? (int)(slash - kv.key) : KV_KEY_BYTES, kv.key,
			    slash                                   ? "0"
				: strlen(kv.key) < KV_KEY_BYTES - 1 ? "\1"
								    : "\xff");
			if (whole || letter == 'q')
				rc = see_one(l, letter, kv.key + root, kv.value);
		}
		json_decref(found);
		if (rc == RC_OK && n > 0 && !any && !l->enough)
			rc = fault_set(l->fault, RC_PROTOCOL,
			    "%s tells of other keys than were asked for: is this an etcd server?",
			    e->server_name);
	}
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
		l->key = l->job;
		rc = see_all(l, 'j');
		tell_pending(l, &no_run);
	} else if (look->key || e->name) {
		rc = tell_key(l, look->key ? look->key : e->name, false);
	} else {
		rc = see_all(l, 'q');
		if (rc == RC_OK && !l->enough)
			rc = see_all(l, 'f');
	}
	free(l);
	return rc;
}
