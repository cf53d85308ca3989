/* survey.c - lists directories, reads nodes, and tells what they mean. */
#include "survey.h"

#include "backends/secret.h"
#include "freeze.h"
#include "jobs.h"
#include "pool.h"
#include "queue.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
	BATCH = 32,     /* directories that are asked for at once, */
	AHEAD = 8,      /* and nodes of one of them */
	UUID_CHARS = 40 /* "_c_<uuid>-" */
};

struct looking {
	struct session *session;
	const struct layout *layout;
	const struct look *look;
	int64_t newest; /* ns since 1970, as read there */
	bool enough;    /* `see` wants no more */
};

/* Nodes of one directory, some of them asked for in advance. */
struct reader {
	const char *dir, *part;
	const char *const *names;
	size_t n, asked, given;
	struct call *calls[AHEAD];
};

/* What a lock has for those who want one of N units (unit.h). */
struct semaphore {
	struct call *locks, *leases;
	const char **seats; /* names of leases, sorted */
	size_t nseats;
};

/* One lock. */
struct sight {
	const char *key;
	char name[KEY_BYTES + 1], path[DIR_BYTES];
	struct call *list;
	const char *what;   /* it is no lock, but that */
	const char **names; /* those with a place, in order */
	size_t n;
	struct place place;
	struct reader holders;
	struct freeze freeze;
	struct semaphore semaphore;
	/* of a semaphore of kazoo's: the data, the queue and names of leases */
	struct call *pool, *queue;
	const char **units;
	size_t nunits;
	const char **rest; /* who does not hold it */
	size_t nrest;
	unsigned position; /* of the last waiter that was told */
	const char *odd;   /* a node that no lock has made, */
	size_t nodd;       /* and how many there are */
};

/* Text of one entry. */
struct words {
	char owner[OWNER_CHARS + 1], what[128], host[INET6_ADDRSTRLEN], who[201];
	char *record;
	struct foreign foreign;
};

/* ---- time ---- */

static int64_t
micros(int64_t ns)
{
	return ns < 0 ? EPOCH_NONE : ns / 1000;
}

static int64_t
micros_of_ms(int64_t ms)
{
	return micros(node_server_time(ms));
}

static void
note_time(struct looking *l, const struct Stat *stat)
{
	int64_t at = node_server_time(stat->mtime);

	l->newest = at > l->newest ? at : l->newest;
}

static int64_t
now_there(const struct looking *l)
{
	struct timespec t;
	int64_t here;

	clock_gettime(CLOCK_REALTIME, &t);
	here = t.tv_sec * NS_PER_S + t.tv_nsec;
	return here > l->newest ? here : l->newest;
}

static void
tell(struct looking *l, const struct entry *e)
{
	if (!l->enough && !l->look->see(l->look->ctx, e, micros(now_there(l))))
		l->enough = true;
}

/* ---- nodes, read in order ---- */

static void
reader_ask(struct reader *r, struct session *s)
{
	char path[NODE_BYTES + DIR_BYTES];

	for (; r->asked < r->n && r->asked < r->given + AHEAD; r->asked++) {
		snprintf(
		    path, sizeof path, "%s%s/%s", r->dir, r->part, r->names[r->asked]);
		r->calls[r->asked % AHEAD] = call_get(s, path);
	}
}

/*
 * The next of them: *ret is the reader's until the one after; NULL: it is gone, or may
 * not be read (*denied).
 */
static enum rc
reader_next(struct reader *r, struct looking *l, const struct call **ret, bool *denied,
    struct fault *f)
{
	size_t i = r->given % AHEAD;
	int code = ZOK;
	enum rc rc;

	*ret = NULL;
	reader_ask(r, l->session);
	rc = call_await(r->calls[i], l->look->until, &code, f);
	*denied = rc == RC_DENIED;
	if (rc == RC_OK && code == ZOK)
		*ret = r->calls[i];
	if (*ret)
		note_time(l, call_stat(*ret));
	r->given++;
	return *denied ? RC_OK : rc;
}

/* What the last one was has been told. */
static void
reader_done(struct reader *r)
{
	call_drop(r->calls[(r->given - 1) % AHEAD]);
	r->calls[(r->given - 1) % AHEAD] = NULL;
}

static void
reader_end(struct reader *r)
{
	for (; r->given < r->asked; r->given++)
		call_drop(r->calls[r->given % AHEAD]);
}

/* ---- what one of them says ---- */

/* As it stands in the name, with the "d". */
static bool
read_owner(char out[OWNER_CHARS + 1], const char *there)
{
	size_t n = 0;

	for (const char *c = there; n < OWNER_CHARS && *c; c++)
		if (*c != '-')
			out[n++] = *c;
	out[n] = '\0';
	return n == OWNER_CHARS && strspn(out, "0123456789abcdef") == OWNER_CHARS;
}

static bool
is_printable(const char *text)
{
	size_t n = strlen(text);

	for (const char *c = text; *c; c++)
		if (*c < ' ' || *c > '~')
			return false;
	return n > 0 && n <= 200 && strcmp(text, CURATORS_REVOKE) != 0;
}

/*
 * Curator's own nodes have the address of their host, if their user wants nothing else, and
 * kazoo's what their user calls itself.  Where there is nothing, a name may say something.
 */
static const struct foreign *
describe_foreign(
    struct words *w, const char *what, const char *name, const struct call *c)
{
	const char *data = c && *call_text(c) ? call_text(c) : name;
	struct in6_addr address;
	int64_t session = c ? call_stat(c)->ephemeralOwner : 0;

	w->foreign = (struct foreign){.what = w->what};
	snprintf(w->what, sizeof w->what, "%s", what);
	if (session != 0)
		snprintf(w->what, sizeof w->what, "%s, session 0x%llx", what,
		    (unsigned long long)session);
	if (inet_pton(AF_INET, data, &address) == 1 ||
	    inet_pton(AF_INET6, data, &address) == 1) {
		snprintf(w->host, sizeof w->host, "%s", data);
		w->foreign.host = w->host;
	} else if (is_printable(data)) {
		snprintf(w->who, sizeof w->who, "%s", data);
		w->foreign.who = w->who;
	}
	return &w->foreign;
}

/* What a dlock has written; NULL: no record stands there. */
static char *
copy_record(struct looking *l, const char *data)
{
	const char *secret = session_secret(l->session);
	char *record = data_record(data, secret);

	if (record || !*data || strcmp(data, CURATORS_REVOKE) == 0)
		return record;
	record = strdup(data);
	if (record)
		secret_blot(record, secret);
	return record;
}

/* When a holder of that node was granted what it holds, ms. */
static int64_t
granted_at(const struct call *c)
{
	const struct Stat *stat = call_stat(c);
	int64_t granted = data_granted(call_text(c));

	switch (data_stage(call_text(c))) {
	case STAGE_AT_ONCE:
		return stat->ctime;
	case STAGE_WAITED:
		return granted >= stat->ctime && granted <= stat->mtime ? granted
									: stat->mtime;
	default:
		return -1;
	}
}

/* A holder or a waiter in the lock's directory; without `c`, as far as its name says. */
static void
describe(struct looking *l, const struct sight *v, struct entry *e, struct words *w,
    const char *name, const struct call *c)
{
	struct child child = layout_read(l->layout, name);
	bool lease = child.what == CHILD_LEASE;
	bool ours = child.what == CHILD_DLOCKS || (lease && child.owner);
	char *asker = c ? data_asker(call_text(c)) : NULL;

	*w = (struct words){.record = NULL};
	e->key = v->key;
	e->slot = SLOT_NONE;
	e->status = STATUS_NONE;
	e->since = e->until = EPOCH_NONE;
	e->lock = child.kind;
	e->limit = child.limit;
	e->token = c ? (uint64_t)call_stat(c)->czxid : 0;
	e->revoked = e->kind == ENTRY_HOLDER && asker;
	if (c && e->kind == ENTRY_WAITER)
		e->since = micros_of_ms(call_stat(c)->ctime);
	else if (c && ours)
		e->since = micros_of_ms(granted_at(c));
	if (c && ours && e->kind == ENTRY_HOLDER && e->lock == KIND_LIMIT)
		e->slot = lease ? child.slot : data_slot(call_text(c));
	if (ours && read_owner(w->owner, child.owner))
		e->owner = w->owner;
	if (ours)
		e->record = w->record = c ? copy_record(l, call_text(c)) : NULL;
	else
		e->foreign = describe_foreign(w,
		    lease ? "a semaphore of kazoo's" : l->layout->what,
		    l->layout->listens ? "" : name, c);
	free(asker);
}

/* Among those of a semaphore of kazoo's, all are after a lease, and one number is for all. */
static void
describe_unit(const struct sight *v, struct entry *e)
{
	long limit = v->pool ? pool_limit(v->pool) : -1;

	e->lock = KIND_LIMIT;
	e->limit = limit > 0 && limit <= LIMIT_MAX ? (unsigned)limit : 0;
}

static void
tell_place(struct looking *l, struct sight *v, enum entry_kind kind, const char *name,
    const struct call *c)
{
	struct entry e = {
	    .kind = kind, .position = kind == ENTRY_WAITER ? ++v->position : 0};
	struct words w;

	describe(l, v, &e, &w, name, c);
	if (v->queue)
		describe_unit(v, &e);
	tell(l, &e);
	free(w.record);
}

/* One of Curator's, in K/leases or K/locks. */
static void
tell_semaphore(
    struct looking *l, struct sight *v, enum entry_kind kind, const struct call *c)
{
	struct words w = {.record = NULL};
	struct entry e = {.kind = kind,
	    .key = v->key,
	    .lock = KIND_LIMIT,
	    .slot = SLOT_NONE,
	    .position = kind == ENTRY_WAITER ? ++v->position : 0,
	    .status = STATUS_NONE,
	    .since = c ? micros_of_ms(call_stat(c)->ctime) : EPOCH_NONE,
	    .until = EPOCH_NONE,
	    .token = c ? (uint64_t)call_stat(c)->czxid : 0};

	e.foreign = describe_foreign(&w, "a semaphore of Apache Curator's", "", c);
	tell(l, &e);
}

/* ---- units ---- */

static int
compare_names(const void *a, const void *b)
{
	return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Numbers are ten digits at the end. */
static int
compare_numbers(const void *a, const void *b)
{
	const char *x = *(const char *const *)a, *y = *(const char *const *)b;
	size_t m = strlen(x), n = strlen(y);

	return strcmp(m > 10 ? x + m - 10 : x, n > 10 ? y + n - 10 : y);
}

static int
compare_uuid(const void *name, const void *seat)
{
	return strncmp(name, *(const char *const *)seat, UUID_CHARS);
}

static bool
has_seat(const struct sight *v, const char *name)
{
	return v->semaphore.nseats > 0 &&
	    bsearch(name, v->semaphore.seats, v->semaphore.nseats,
		sizeof *v->semaphore.seats, compare_uuid);
}

/* A copy of a list's names, to be freed. */
static enum rc
copy_names(const struct call *list, const char ***ret, size_t *n, struct fault *f)
{
	const char *const *names = call_names(list, n);

	*ret = calloc(*n + 1, sizeof **ret);
	if (!*ret)
		return fault_set(f, RC_SYSTEM, "out of memory");
	if (*n > 0)
		memcpy(*ret, names, *n * sizeof *names);
	return RC_OK;
}

/* In a semaphore's directory. */
static bool
is_others(const struct looking *l, const char *name)
{
	struct child c = layout_read(l->layout, name);

	return !c.owner && c.what != CHILD_FREEZE;
}

/* Those that no dlock has made, in the order of their numbers. */
static size_t
keep_foreign(const struct looking *l, const char **names, size_t n)
{
	size_t kept = 0;

	for (size_t i = 0; i < n; i++)
		if (is_others(l, names[i]) && strlen(names[i]) < NAME_BYTES)
			names[kept++] = names[i];
	qsort(names, kept, sizeof *names, compare_numbers);
	return kept;
}

static enum rc
list_semaphore(struct looking *l, struct sight *v, struct fault *f)
{
	char path[DIR_BYTES + 8];
	int code;
	enum rc rc;

	if (!v->place.semaphore)
		return RC_OK;
	snprintf(path, sizeof path, "%s/leases", v->path);
	v->semaphore.leases = call_list(l->session, path);
	snprintf(path, sizeof path, "%s/locks", v->path);
	v->semaphore.locks = call_list(l->session, path);
	rc = call_await(v->semaphore.leases, l->look->until, &code, f);
	if (rc == RC_OK)
		rc = call_await(v->semaphore.locks, l->look->until, &code, f);
	if (rc == RC_OK)
		rc = copy_names(
		    v->semaphore.leases, &v->semaphore.seats, &v->semaphore.nseats, f);
	if (rc == RC_OK)
		qsort(v->semaphore.seats, v->semaphore.nseats, sizeof *v->semaphore.seats,
		    compare_names);
	return rc;
}

/* Curator's users in one of the semaphore's directories. */
static enum rc
tell_foreign(struct looking *l, struct sight *v, const struct call *list,
    const char *part, enum entry_kind kind, struct fault *f)
{
	const char **names;
	struct reader r = {.dir = v->path, .part = part};
	enum rc rc = copy_names(list, &names, &r.n, f);

	if (rc != RC_OK)
		return rc;
	r.names = names;
	r.n = keep_foreign(l, names, r.n);
	while (rc == RC_OK && r.given < r.n && !l->enough) {
		const struct call *c;
		bool denied;

		rc = reader_next(&r, l, &c, &denied, f);
		if (rc == RC_OK && (c || denied))
			tell_semaphore(l, v, kind, c);
		reader_done(&r);
	}
	reader_end(&r);
	free(names);
	return rc;
}

static size_t
count_foreign(const struct looking *l, const struct call *list)
{
	size_t n, count = 0;
	const char *const *names = call_names(list, &n);

	for (size_t i = 0; i < n; i++)
		count += is_others(l, names[i]);
	return count;
}

/* ---- units of kazoo's ---- */

/* By their slots; kazoo's own, which have none, are behind. */
static int
compare_leases(const void *a, const void *b, void *layout)
{
	unsigned x = (unsigned)layout_read(layout, *(const char *const *)a).slot,
		 y = (unsigned)layout_read(layout, *(const char *const *)b).slot;

	return x != y ? (x < y ? -1 : 1) : compare_names(a, b);
}

/* Those of n names that are leases, in their order. */
static size_t
keep_leases(const struct looking *l, const char **names, size_t n)
{
	size_t kept = 0;

	for (size_t i = 0; i < n; i++)
		if (layout_read(l->layout, names[i]).what == CHILD_LEASE)
			names[kept++] = names[i];
	qsort_r(names, kept, sizeof *names, compare_leases, (void *)l->layout);
	return kept;
}

/* Of what is no semaphore, nothing is asked. */
static enum rc
list_pool(struct looking *l, struct sight *v, struct fault *f)
{
	char path[NODE_BYTES];
	int code;
	enum rc rc = copy_names(v->list, &v->units, &v->nunits, f);

	if (rc != RC_OK)
		return rc;
	v->nunits = keep_leases(l, v->units, v->nunits);
	if (v->nunits == 0 && (!v->place.freeze || v->n > 0))
		return RC_OK;
	snprintf(path, sizeof path, "%s%s", v->path, l->layout->queue);
	v->queue = call_list(l->session, path);
	v->pool = call_get(l->session, v->path);
	rc = call_await(v->queue, l->look->until, &code, f);
	if (rc == RC_OK)
		rc = call_await(v->pool, l->look->until, &code, f);
	return rc;
}

/* Tells them in the order in which they are. */
static enum rc
tell_all(struct looking *l, struct sight *v, struct reader *r, enum entry_kind kind,
    struct fault *f)
{
	enum rc rc = RC_OK;

	while (rc == RC_OK && r->given < r->n && !l->enough) {
		const char *name = r->names[r->given];
		const struct call *c;
		bool denied;

		rc = reader_next(r, l, &c, &denied, f);
		if (rc == RC_OK && (c || denied))
			tell_place(l, v, kind, name, c);
		reader_done(r);
	}
	reader_end(r);
	return rc;
}

static enum rc
tell_leases(struct looking *l, struct sight *v, struct fault *f)
{
	struct reader r = {.dir = v->path, .part = "", .names = v->units, .n = v->nunits};

	return tell_all(l, v, &r, ENTRY_HOLDER, f);
}

/* Its queue; *n: so many wait there. */
static enum rc
tell_lease_queue(struct looking *l, struct sight *v, size_t *n, struct fault *f)
{
	const char **names;
	enum rc rc = copy_names(v->queue, &names, n, f);
	struct reader r = {.dir = v->path, .part = l->layout->queue, .names = names};

	if (rc != RC_OK)
		return rc;
	*n = r.n = queue_sort(l->layout, names, *n);
	if (!l->look->brief)
		rc = tell_all(l, v, &r, ENTRY_WAITER, f);
	free(names);
	return rc;
}

/* ---- one lock ---- */

static void
sight_begin(struct looking *l, struct sight *v)
{
	v->list = l->layout->single ? call_get(l->session, v->path)
				    : call_list(l->session, v->path);
}

/* Where the lock is one node: v->n of them. */
static enum rc
sight_read(struct looking *l, struct sight *v, struct fault *f)
{
	int code;
	enum rc rc = call_await(v->list, l->look->until, &code, f);

	if (rc == RC_DENIED && !l->look->key)
		v->what = "a node that may not be read";
	v->n = rc == RC_OK && code == ZOK;
	return v->what ? RC_OK : rc;
}

/* Its names, in order; and whoever may hold it is asked for. */
static enum rc
sight_list(struct looking *l, struct sight *v, struct fault *f)
{
	struct queue q = {.layout = l->layout};
	int code;
	enum rc rc;

	if (l->layout->single)
		return sight_read(l, v, f);
	rc = call_await(v->list, l->look->until, &code, f);

	if (rc == RC_DENIED && !l->look->key)
		v->what = "a directory that may not be read";
	if (rc != RC_OK)
		return v->what ? RC_OK : rc;
	if (code == ZOK && stat_is_ephemeral(call_stat(v->list)))
		v->what = "an ephemeral node, which can be a lock of layout=plain only";
	q.names = call_names(v->list, &q.n);
	queue_look(&v->place, &q, "");
	rc = copy_names(v->list, &v->names, &v->n, f);
	if (rc != RC_OK || !v->names)
		return rc;
	v->n = queue_sort(l->layout, v->names, v->n);
	v->holders = (struct reader){.dir = v->path,
	    .part = "",
	    .names = v->names,
	    .n = v->place.holders < v->n ? v->place.holders : v->n};
	reader_ask(&v->holders, l->session);
	return RC_OK;
}

/* Does its owner hold the lock, standing where holders stand? */
static bool
is_holder(const struct looking *l, const struct sight *v, const char *name,
    const struct call *c)
{
	bool unit = layout_read(l->layout, name).kind == KIND_LIMIT;

	if (unit && !has_seat(v, name))
		return false;
	return !c || unit ||
	    freeze_leaves(&v->freeze, call_stat(c)->czxid, data_stage(call_text(c)));
}

static bool
has_place(const struct looking *l, struct sight *v, const char *name)
{
	if (layout_read(l->layout, name).what != CHILD_FOREIGN &&
	    strlen(name) < NAME_BYTES)
		return true;
	v->odd = v->odd ? v->odd : name;
	v->nodd++;
	return false;
}

/* Tells them, and notes who of them does not hold it. */
static enum rc
tell_holders(struct looking *l, struct sight *v, struct fault *f)
{
	struct reader *r = &v->holders;
	enum rc rc = RC_OK;

	while (rc == RC_OK && r->given < r->n && !l->enough) {
		const char *name = v->names[r->given];
		const struct call *c;
		bool denied;

		rc = reader_next(r, l, &c, &denied, f);
		if (rc == RC_OK && has_place(l, v, name) && (c || denied)) {
			if (is_holder(l, v, name, c))
				tell_place(l, v, ENTRY_HOLDER, name, c);
			else
				v->rest[v->nrest++] = name;
		}
		reader_done(r);
	}
	return rc;
}

static enum rc
tell_waiters(struct looking *l, struct sight *v, struct fault *f)
{
	struct reader r = {.dir = v->path, .part = "", .names = v->rest, .n = v->nrest};

	return tell_all(l, v, &r, ENTRY_WAITER, f);
}

static void
tell_waiting(struct looking *l, const struct sight *v, uint64_t count)
{
	struct entry e = {.kind = ENTRY_WAITING,
	    .key = v->key,
	    .slot = SLOT_NONE,
	    .count = count,
	    .since = EPOCH_NONE,
	    .until = EPOCH_NONE,
	    .status = STATUS_NONE};

	if (count > 0)
		tell(l, &e);
}

static enum rc
tell_queue(struct looking *l, struct sight *v, struct fault *f)
{
	size_t units = 0;
	enum rc rc = RC_OK;

	for (size_t i = v->holders.n; i < v->n; i++)
		if (has_place(l, v, v->names[i]))
			v->rest[v->nrest++] = v->names[i];
	if (v->queue)
		rc = tell_lease_queue(l, v, &units, f);
	if (rc != RC_OK)
		return rc;
	if (l->look->brief) {
		tell_waiting(l, v,
		    units + v->nrest +
			(v->semaphore.locks ? count_foreign(l, v->semaphore.locks) : 0));
		return RC_OK;
	}
	if (v->semaphore.locks)
		rc = tell_foreign(l, v, v->semaphore.locks, "/locks", ENTRY_WAITER, f);
	return rc == RC_OK ? tell_waiters(l, v, f) : rc;
}

static void
tell_freeze(struct looking *l, const struct sight *v)
{
	const struct freeze *z = &v->freeze;
	struct entry e = {.kind = ENTRY_FREEZE,
	    .key = v->key,
	    .slot = SLOT_NONE,
	    .record = *z->record ? z->record : NULL,
	    .since = micros(z->since),
	    .until = z->until == NEVER ? EPOCH_NONE : micros(z->until),
	    .status = STATUS_NONE};

	if (z->on)
		tell(l, &e);
}

static void
tell_unknown(struct looking *l, const struct sight *v)
{
	char what[256], name[81];
	struct entry e = {.kind = ENTRY_UNKNOWN,
	    .key = v->key,
	    .slot = SLOT_NONE,
	    .since = EPOCH_NONE,
	    .until = EPOCH_NONE,
	    .status = STATUS_NONE,
	    .what = v->what ? v->what : what};

	if (!v->what && v->nodd == 0)
		return;
	if (!v->what) {
		session_quote(l->session, name, sizeof name, v->odd);
		snprintf(what, sizeof what,
		    "%zu node%s of no lock that dlock can share (%s)", v->nodd,
		    v->nodd == 1 ? "" : "s", name);
	}
	tell(l, &e);
}

static enum rc
tell_last(
    struct looking *l, const struct sight *v, const struct lockdir *d, struct fault *f)
{
	char path[JOBS_DIR_BYTES + 8];
	struct past_run run;
	struct call *c;
	int code;
	enum rc rc;

	jobs_path(path, d);
	snprintf(path + strlen(path), 8, "/last");
	c = call_get(l->session, path);
	rc = call_await(c, l->look->until, &code, f);
	if (rc == RC_OK && code == ZOK && jobs_read(&run, c)) {
		note_time(l, call_stat(c));
		if (run.record)
			secret_blot(run.record, session_secret(l->session));
		tell(l,
		    &(struct entry){.kind = ENTRY_LAST,
			.key = v->key,
			.token = run.token,
			.slot = SLOT_NONE,
			.record = run.record,
			.since = micros(run.began),
			.until = micros(run.ended),
			.once = run.id,
			.status = run.status});
		jobs_forget(&run);
	}
	call_drop(c);
	return rc == RC_DENIED ? RC_OK : rc; /* others' jobs */
}

/* The node that is the lock. */
static void
tell_single(struct looking *l, const struct sight *v)
{
	const struct call *c = v->list;
	char *asker = data_asker(call_text(c));
	struct words w = {.record = NULL};
	struct entry e = {.kind = ENTRY_HOLDER,
	    .key = v->key,
	    .lock = KIND_EXCLUSIVE,
	    .slot = SLOT_NONE,
	    .status = STATUS_NONE,
	    .since = micros_of_ms(call_stat(c)->ctime),
	    .until = EPOCH_NONE,
	    .revoked = asker != NULL,
	    .token = (uint64_t)call_stat(c)->czxid};

	if (data_owner(w.owner, call_text(c))) {
		e.owner = w.owner;
		e.record = w.record = copy_record(l, call_text(c));
	} else {
		e.foreign = describe_foreign(&w, l->layout->what, "", c);
	}
	tell(l, &e);
	free(w.record);
	free(asker);
}

/*
 * What else may stand there is the directory of another lock, or a node that somebody has made
 * to stay.  Where nobody has asked for that key, it is none of a lock's.
 */
static void
sight_tell_single(struct looking *l, struct sight *v)
{
	const struct Stat *stat = call_stat(v->list);

	if (v->n > 0)
		note_time(l, stat);
	if (v->n > 0 && stat_is_directory(stat) && l->look->key)
		v->what = "a directory, as locks of other layouts have it";
	if (v->what)
		tell_unknown(l, v);
	else if (v->n > 0 && (stat_is_ephemeral(stat) || l->look->key))
		tell_single(l, v);
}

static enum rc
sight_tell(struct looking *l, struct sight *v, struct fault *f)
{
	size_t n;
	const char *const *names = call_names(v->list, &n);
	enum rc rc = RC_OK;

	if (l->layout->single) {
		sight_tell_single(l, v);
		return RC_OK;
	}

	if (!v->what && v->place.freeze)
		rc = freeze_look(&v->freeze, l->session, v->path, "", names, n,
		    now_there(l), false, l->look->until, f);
	if (rc == RC_OK)
		rc = list_semaphore(l, v, f);
	if (rc == RC_OK && l->layout->queue)
		rc = list_pool(l, v, f);
	v->rest = calloc(v->n + 1, sizeof *v->rest);
	if (rc == RC_OK && !v->rest)
		rc = fault_set(f, RC_SYSTEM, "out of memory");
	if (rc == RC_OK)
		rc = tell_holders(l, v, f);
	if (rc == RC_OK && v->semaphore.leases)
		rc = tell_foreign(l, v, v->semaphore.leases, "/leases", ENTRY_HOLDER, f);
	if (rc == RC_OK && v->units)
		rc = tell_leases(l, v, f);
	if (rc == RC_OK)
		rc = tell_queue(l, v, f);
	if (rc == RC_OK)
		tell_freeze(l, v);
	if (rc == RC_OK)
		tell_unknown(l, v);
	return rc;
}

static void
sight_end(struct sight *v)
{
	reader_end(&v->holders);
	call_drop(v->list);
	call_drop(v->semaphore.locks);
	call_drop(v->semaphore.leases);
	call_drop(v->pool);
	call_drop(v->queue);
	free(v->units);
	free(v->names);
	free(v->semaphore.seats);
	free(v->rest);
	*v = (struct sight){.key = NULL};
}

enum rc
survey_one(
    struct session *s, const struct lockdir *d, const struct look *look, struct fault *f)
{
	struct looking l = {.session = s, .layout = d->layout, .look = look};
	struct sight v = {.key = look->key ? look->key : d->path};
	int code;
	enum rc rc = call_finish(call_sync(s, "/"), look->until, &code, f);

	if (rc != RC_OK)
		return rc;
	snprintf(v.path, sizeof v.path, "%s", d->path);
	sight_begin(&l, &v);
	rc = sight_list(&l, &v, f);
	if (rc == RC_OK)
		rc = sight_tell(&l, &v, f);
	if (rc == RC_OK && look->key && !l.enough)
		rc = tell_last(&l, &v, d, f);
	sight_end(&v);
	return rc;
}

/* ---- all of them ---- */

/* As many of the names from `i` on as a batch has room for, and are keys'. */
static size_t
begin_batch(struct looking *l, struct sight v[BATCH], const char *chroot,
    const char *const *names, size_t n, size_t *i)
{
	size_t found = 0;

	for (; found < BATCH && *i < n; ++*i) {
		struct sight *next = &v[found];

		if (layout_is_queue(l->layout, names[*i]) ||
		    !lockdir_key(next->name, chroot, names[*i]))
			continue;
		next->key = next->name;
		snprintf(next->path, sizeof next->path, "%s/%s", chroot, names[*i]);
		sight_begin(l, next);
		found++;
	}
	return found;
}

static enum rc
tell_batch(struct looking *l, struct sight v[BATCH], size_t n, struct fault *f)
{
	enum rc rc = RC_OK;

	for (size_t i = 0; i < n && rc == RC_OK; i++)
		rc = sight_list(l, &v[i], f);
	for (size_t i = 0; i < n && rc == RC_OK && !l->enough; i++)
		rc = sight_tell(l, &v[i], f);
	for (size_t i = 0; i < n; i++)
		sight_end(&v[i]);
	return rc;
}

static enum rc
look_through(struct looking *l, const char *chroot, const char *const *names, size_t n,
    struct fault *f)
{
	struct sight *v = calloc(BATCH, sizeof *v);
	enum rc rc = RC_OK;

	if (!v)
		return fault_set(f, RC_SYSTEM, "out of memory");
	for (size_t i = 0; rc == RC_OK && i < n && !l->enough;)
		rc = tell_batch(l, v, begin_batch(l, v, chroot, names, n, &i), f);
	free(v);
	return rc;
}

enum rc
survey_all(struct session *s, const struct layout *layout, const char *chroot,
    const struct look *look, struct fault *f)
{
	struct looking l = {.session = s, .layout = layout, .look = look};
	struct call *list;
	const char **names = NULL;
	size_t n;
	int code;
	enum rc rc = call_finish(call_sync(s, "/"), look->until, &code, f);

	if (rc != RC_OK)
		return rc;
	list = call_list(s, *chroot ? chroot : "/");
	rc = call_await(list, look->until, &code, f);
	if (rc == RC_OK)
		rc = copy_names(list, &names, &n, f);
	if (rc == RC_OK) {
		qsort(names, n, sizeof *names, compare_names);
		rc = look_through(&l, chroot, names, n, f);
	}
	free(names);
	call_drop(list);
	return rc;
}
