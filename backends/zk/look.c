/*
 * look.c - who holds and who waits, as admin_ops.each tells it.
 *
 *  1. One directory's names at a time: the server has no way to give a part of them.  For all
 *     locks, some directories are listed at once and the nodes of their holders read, so that it
 *     takes two round trips for each such batch.  Reads alone, and no watches.
 *  2. What is no lock is told as that.  Where nobody has asked for it by its key, it is no
 *     failure either that it may not be read.
 *  3. A directory is read as contents.h says.
 *  4. A node without a dlock's name is foreign; what it says of its owner is told if it is an
 *     address, or printable.  A node that may not be read is told as far as its name goes.
 *  5. Since when somebody holds a lock, only a dlock says (data.h).
 *  6. A server tells its time with what it writes, and nothing is written here.  So "now" is this
 *     host's time, and not before the newest that was read there: for people.
 *
 * Texts are as others have written them.
 */
#include "zk.h"

#include "backends/common/append.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { BATCH = 32 /* locks that are looked at side by side */, WHO_CHARS = 200 };

/* One look, on its way from lock to lock. */
struct looking {
	const struct lockdir *dir; /* for session and layout; of a lock, in look_into() */
	const struct look *look;
	int64_t newest; /* ns since 1970, as read there */
	bool enough; /* `see` wants no more: what is told from here on is not handed on */
	const char *key;   /* of the lock that is told of, */
	unsigned position; /* and of its last waiter that was */
};

/* One of the locks. */
struct found {
	char key[KEY_BYTES + 1];
	struct contents contents;
	const char *what; /* it is no lock, but that; NULL */
};

/* Text of one entry. */
struct words {
	char owner[OWNER_CHARS + 1], what[128], host[INET6_ADDRSTRLEN];
	char who[WHO_CHARS + 2]; /* one more than is told */
	char record[2 * TEXT_BYTES];
	struct foreign foreign;
};

/* ---- time ---- */

static int64_t
micros(int64_t ns)
{
	return ns < 0 ? EPOCH_NONE : ns / 1000;
}

static void
note_time(struct looking *l, const struct Stat *stat)
{
	int64_t at = stat_time(stat->mtime);

	l->newest = at > l->newest ? at : l->newest;
}

static int64_t
time_there(const struct looking *l)
{
	int64_t here = instant_epoch() * 1000;

	return here > l->newest ? here : l->newest;
}

/* ---- entries ---- */

/* One of which nothing is known yet. */
static struct entry
new_entry(const struct looking *l, enum entry_kind kind)
{
	return (struct entry){.kind = kind,
	    .key = l->key,
	    .slot = SLOT_NONE,
	    .since = EPOCH_NONE,
	    .until = EPOCH_NONE,
	    .status = STATUS_NONE};
}

static void
hand_on(struct looking *l, const struct entry *e)
{
	if (!l->enough && !l->look->see(l->look->ctx, e, micros(time_there(l))))
		l->enough = true;
}

/* ---- what a node says ---- */

/*
 * Curator's own nodes have the address of their host, if their user wants nothing else, and
 * kazoo's what their user calls itself.  Where there is nothing, a name may say something.
 */
static const struct foreign *
describe_foreign(
    struct words *w, const char *what, const char *name, const struct call *c)
{
	struct in6_addr address;
	int64_t session = c ? c->stat.ephemeralOwner : 0;

	w->foreign = (struct foreign){.what = w->what};
	snprintf(w->what, sizeof w->what, "%s", what);
	if (session != 0)
		snprintf(w->what, sizeof w->what, "%s, session 0x%llx", what,
		    (unsigned long long)session);
	append_text(w->who, w->who + sizeof w->who, c && *c->text ? c->text : name);
	if (inet_pton(AF_INET, w->who, &address) == 1 ||
	    inet_pton(AF_INET6, w->who, &address) == 1) {
		snprintf(w->host, sizeof w->host, "%s", w->who);
		w->foreign.host = w->host;
	} else if (strcmp(w->who, CURATORS_REVOKE) != 0 && *w->who &&
	    strlen(w->who) <= WHO_CHARS) {
		w->foreign.who = w->who;
	}
	for (const char *at = w->who; *at; at++)
		if (*at < ' ' || *at > '~')
			w->foreign.who = NULL;
	return &w->foreign;
}

/* When a holder of that node was granted what it holds, ms. */
static int64_t
granted_at(const struct Stat *stat, const struct progress *told)
{
	if (told->stage == STAGE_AT_ONCE)
		return stat->ctime;
	if (told->stage != STAGE_WAITED)
		return -1;
	return told->granted >= stat->ctime && told->granted <= stat->mtime
	    ? told->granted
	    : stat->mtime;
}

/* ---- who holds, and who waits ---- */

/* What a dlock says of itself. */
static void
describe_dlock(const struct looking *l, struct entry *e, struct words *w,
    const struct child *child, const struct progress *told, const struct call *c)
{
	bool holds = e->kind == ENTRY_HOLDER, single = l->dir->layout->single;

	if (single)
		snprintf(w->owner, sizeof w->owner, "%s", told->owner);
	if (single || child_owner(w->owner, child))
		e->owner = w->owner;
	if (holds && e->lock == KIND_LIMIT)
		e->slot = told->slot;
	if (c && holds && !single)
		e->since = micros(stat_time(granted_at(&c->stat, told)));
	if (c && *c->text && strcmp(c->text, CURATORS_REVOKE) != 0) {
		data_quote(w->record, sizeof w->record, c->text);
		e->record = w->record;
	}
}

/*
 * Who holds or waits: a child of the lock's directory, whose place the name is; the node that is
 * the lock; or a user of Curator's semaphore, whose name is random.
 */
static void
tell_member(struct looking *l, enum entry_kind kind, const struct member *m)
{
	const struct layout *layout = l->dir->layout;
	const struct call *c = m->node;
	struct child child = layout_read(layout, m->name);
	struct progress told = data_read(c ? c->text : "");
	bool seat = *m->part, holds = kind == ENTRY_HOLDER,
	     ours = !seat && (layout->single ? *told.owner : child.what == CHILD_DLOCKS);
	char *asker = c && holds && !seat ? data_asker(c->text) : NULL;
	struct entry e = new_entry(l, kind);
	struct words w;

	if (c)
		note_time(l, &c->stat);
	e.position = holds ? 0 : ++l->position;
	e.token = c ? (uint64_t)c->stat.czxid : 0;
	e.lock = seat ? KIND_LIMIT : child.kind;
	e.limit = seat ? 0 : child.limit;
	e.revoked = asker != NULL;
	e.asker = asker;
	if (c && (!holds || layout->single || seat))
		e.since = micros(stat_time(c->stat.ctime));
	if (ours)
		describe_dlock(l, &e, &w, &child, &told, c);
	else
		e.foreign = describe_foreign(&w,
		    seat ? "a semaphore of Apache Curator's" : layout->what,
		    seat || layout->listens ? "" : m->name, c);
	hand_on(l, &e);
	free(asker);
}

/* ---- what else there is ---- */

static void
tell_unknown(struct looking *l, const char *what)
{
	struct entry e = new_entry(l, ENTRY_UNKNOWN);

	e.what = what;
	hand_on(l, &e);
}

static void
tell_odd(struct looking *l, const struct odd *odd)
{
	char what[256], name[81];

	session_quote(l->dir->session, name, sizeof name, odd->first);
	snprintf(what, sizeof what, "%zu node%s of no lock that dlock can share (%s)",
	    odd->n, odd->n == 1 ? "" : "s", name);
	tell_unknown(l, what);
}

/* ---- one lock ---- */

/* It has been asked for: asks for those who may hold it. */
static enum rc
list_found(struct found *v, struct looking *l, struct fault *f)
{
	bool there, single = l->dir->layout->single;
	enum rc rc = contents_list(&v->contents, NULL, &there, f);

	if (rc == RC_DENIED && !l->look->key) {
		v->what = single ? "a node that may not be read"
				 : "a directory that may not be read";
		return RC_OK;
	}
	if (there && !single && stat_is_ephemeral(&v->contents.list->stat))
		v->what = "an ephemeral node, which can be a lock of layout=plain only";
	return rc;
}

/* Those who hold it, or those who do not. */
static enum rc
tell_members(struct looking *l, struct contents *c, bool holder, struct fault *f)
{
	enum entry_kind kind = holder ? ENTRY_HOLDER : ENTRY_WAITER;
	struct member m;
	enum rc rc = RC_OK;

	while (!l->enough && (rc = contents_next(c, holder, &m, f)) == RC_OK)
		tell_member(l, kind, &m);
	return rc == RC_DONE ? RC_OK : rc;
}

/* A directory that may be a lock. */
static enum rc
tell_directory(struct looking *l, struct contents *c, struct fault *f)
{
	struct entry waiting = new_entry(l, ENTRY_WAITING),
		     freeze = new_entry(l, ENTRY_FREEZE);
	enum rc rc = contents_judge(c, true, time_there(l), f);

	if (rc == RC_OK)
		rc = tell_members(l, c, true, f);
	if (rc == RC_OK && !l->look->brief && !l->enough)
		rc = tell_members(l, c, false, f);
	if (rc != RC_OK)
		return rc;
	waiting.count = c->waiting;
	if (l->look->brief && waiting.count > 0)
		hand_on(l, &waiting);
	freeze.record = *c->freeze.record ? c->freeze.record : NULL;
	freeze.since = micros(c->freeze.since);
	freeze.until = c->freeze.until == NEVER ? EPOCH_NONE : micros(c->freeze.until);
	if (c->freeze.on)
		hand_on(l, &freeze);
	if (c->odd.n > 0)
		tell_odd(l, &c->odd);
	return RC_OK;
}

/*
 * What else may stand there is the directory of another lock, or a node that somebody has made
 * to stay.  Where nobody has asked for that key, it is none of a lock's.
 */
static void
tell_node(struct looking *l, struct call *node)
{
	const struct Stat *stat = &node->stat;

	if (stat->czxid == 0)
		return; /* it is not there */
	if (stat_is_directory(stat) && l->look->key) {
		tell_unknown(l, "a directory, as locks of other layouts have it");
	} else if (stat_is_ephemeral(stat) || l->look->key) {
		tell_member(l, ENTRY_HOLDER, &(struct member){"", "", node});
	}
}

static enum rc
tell_contents(struct looking *l, struct found *v, const char *key, struct fault *f)
{
	enum rc rc = RC_OK;

	l->key = key;
	l->position = 0;
	if (!v->what && l->dir->layout->single)
		tell_node(l, v->contents.list);
	else if (!v->what)
		rc = tell_directory(l, &v->contents, f);
	if (rc == RC_DENIED && !l->look->key) {
		v->what = "a lock of which a part may not be read";
		rc = RC_OK;
	}
	if (v->what)
		tell_unknown(l, v->what);
	return rc;
}

/* ---- what jobs have done ---- */

/*
 * `name`: the ID of the node, which says that it was run whatever else stands there; or NULL.
 * True: it ended with 0.
 */
static bool
tell_run(struct looking *l, enum entry_kind kind, const char *name, struct call *c)
{
	struct entry e = new_entry(l, kind);
	struct past_run run = {.id = NULL};
	bool is = c->code == ZOK && (jobs_read(&run, c) || name) &&
	    (kind != ENTRY_GOOD || run.status == 0) &&
	    (kind != ENTRY_DONE || name || run.id);

	if (is) {
		note_time(l, &c->stat);
		e.token = run.token;
		e.record = run.record;
		e.since = micros(run.began > 0 ? run.began : -1);
		e.until = micros(run.ended);
		e.once = name ? name : run.id;
		e.status = name ? 0 : run.status;
		hand_on(l, &e);
	}
	jobs_forget(&run);
	return is && e.status == 0;
}

/*
 * The last run, the last one that ended with 0 where that is another, and the one that is no
 * job's.
 */
static enum rc
tell_last(struct looking *l, struct fault *f)
{
	struct session *s = l->dir->session;
	struct call *last = call_ask(s, ASK_GET, jobs_path(l->dir, "last").at),
		    *good = call_ask(s, ASK_GET, jobs_path(l->dir, "good").at),
		    *shown = call_ask(s, ASK_GET, jobs_path(l->dir, SHOWN).at);
	enum rc rc = call_await(last, l->look->until, f);

	if (rc == RC_OK && !tell_run(l, ENTRY_LAST, NULL, last)) {
		rc = call_await(good, l->look->until, f);
		if (rc == RC_OK)
			tell_run(l, ENTRY_GOOD, NULL, good);
	}
	if (rc == RC_OK)
		rc = call_await(shown, l->look->until, f);
	if (rc == RC_OK)
		tell_run(l, ENTRY_SHOWN, NULL, shown);
	call_drop(last);
	call_drop(good);
	call_drop(shown);
	return rc;
}

/* Each ID in each era.  Of those that ended otherwise the record says the status, and the ID. */
static enum rc
tell_ids(struct looking *l, bool final, struct fault *f)
{
	char id[ONCE_BYTES + 1];
	struct ids i;
	enum rc rc = RC_OK;

	ids_begin(&i, l->dir, final, ASK_GET, l->look->until);
	while (!l->enough && (rc = ids_next(&i, f)) == RC_OK)
		if (final)
			tell_run(l, ENTRY_DONE, NULL, i.node);
		else if (encode_undo(id, sizeof id, i.name, strlen(i.name)) > 0)
			tell_run(l, ENTRY_DONE, id, i.node);
	ids_end(&i);
	return rc == RC_DONE ? RC_OK : rc;
}

/* All that is remembered of one key.  *hidden: something of it may not be read. */
static enum rc
tell_jobs(struct looking *l, const char *key, bool *hidden, struct fault *f)
{
	enum rc rc;

	l->key = key;
	rc = tell_last(l, f);
	for (int final = 0; final < 2 && rc == RC_OK && !l->enough; final++)
		rc = tell_ids(l, final, f);
	*hidden |= rc == RC_DENIED;
	return rc == RC_DENIED ? RC_OK : rc;
}

enum rc
look_at_jobs(
    const struct lockdir *d, const char *chroot, const struct look *look, struct fault *f)
{
	struct lockdir its = *d;
	struct looking l = {.dir = &its, .look = look};
	const char *top = !chroot ? d->path : *chroot ? chroot : "/";
	char key[KEY_BYTES + 1];
	bool hidden = false;
	struct call *list;
	enum rc rc = call_finish(
	    call_ask(d->session, ASK_SYNC, top), look->until, NULL, f);

	if (rc != RC_OK)
		return rc;
	if (!chroot) {
		rc = tell_jobs(&l, d->path, &hidden, f);
	} else {
		list = call_ask(d->session, ASK_LIST, path_of("%s/" JOBS, chroot).at);
		rc = call_await(list, look->until, f);
		for (size_t i = 0; rc == RC_OK && i < list->nnames && !l.enough; i++) {
			if (!lockdir_key(key, chroot, list->names[i]))
				continue;
			*its.path = '\0';
			lockdir_place(&its, chroot, key);
			rc = tell_jobs(&l, key, &hidden, f);
		}
		call_drop(list);
	}
	return rc == RC_OK && hidden && !l.enough
	    ? fault_set(f, RC_DENIED, "%s: no permission to read all that is remembered",
		  d->where)
	    : rc;
}

/* ---- one lock ---- */

enum rc
look_into(const struct lockdir *d, const struct look *look, struct fault *f)
{
	struct looking l = {.dir = d, .look = look};
	struct found v = {.what = NULL};
	enum rc rc = lockdir_sync(d, look->until, f);

	if (rc != RC_OK)
		return rc;
	contents_begin(&v.contents, d, NULL, look->until);
	rc = list_found(&v, &l, f);
	if (rc == RC_OK)
		rc = tell_contents(&l, &v, look->key ? look->key : d->path, f);
	if (rc == RC_OK && look->key && !l.enough) {
		rc = tell_last(&l, f);
		if (rc == RC_DENIED && !look->success)
			rc = RC_OK; /* others' jobs */
	}
	contents_end(&v.contents);
	return rc;
}

/* ---- all of them ---- */

/* As many of the names from *i on as a batch has room for, and are keys'. */
static enum rc
tell_batch(struct looking *l, struct found v[BATCH], const char *chroot,
    const struct call *list, size_t *i, struct fault *f)
{
	size_t n = 0;
	enum rc rc = RC_OK;

	for (; n < BATCH && *i < list->nnames; ++*i) {
		const char *name = list->names[*i];

		if (!lockdir_key(v[n].key, chroot, name))
			continue;
		v[n].what = NULL;
		contents_begin(&v[n++].contents, l->dir,
		    path_of("%s/%s", chroot, name).at, l->look->until);
	}
	for (size_t k = 0; k < n && rc == RC_OK; k++)
		rc = list_found(&v[k], l, f);
	for (size_t k = 0; k < n && rc == RC_OK && !l->enough; k++)
		rc = tell_contents(l, &v[k], v[k].key, f);
	for (size_t k = 0; k < n; k++)
		contents_end(&v[k].contents);
	return rc;
}

enum rc
look_below(
    const struct lockdir *d, const char *chroot, const struct look *look, struct fault *f)
{
	struct looking l = {.dir = d, .look = look};
	struct found *v;
	struct call *list;
	const char *top = *chroot ? chroot : "/";
	enum rc rc = call_finish(
	    call_ask(d->session, ASK_SYNC, top), look->until, NULL, f);

	if (rc != RC_OK)
		return rc;
	v = calloc(BATCH, sizeof *v);
	list = call_ask(d->session, ASK_LIST, top);
	rc = v ? call_await(list, look->until, f)
	       : fault_set(f, RC_SYSTEM, "out of memory");
	if (rc == RC_OK && list->nnames > 0)
		qsort(list->names, list->nnames, sizeof *list->names, compare_names);
	for (size_t i = 0; rc == RC_OK && i < list->nnames && !l.enough;)
		rc = tell_batch(&l, v, chroot, list, &i, f);
	free(v);
	call_drop(list);
	return rc;
}
