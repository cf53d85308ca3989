/*
 * stranger.c - refuses a directory that others use in a way that we cannot share.
 *
 *  1. Users of another layout or recipe do not see our nodes, and a limited lock counts no others.
 *     queue.h knows them by the names of their nodes.
 *  2. A child that no layout knows may be of a lock whose users do not see ours: ZooKeeper's own
 *     recipes (x-<session>-<n>), zk-ruby's, Hive's.  So we refuse it, whatever it is called.
 *  3. Directories of locks with longer paths are no such children: `deploy/web` in `deploy`.  No
 *     lock is a node that has children.  What is in such a directory must be of a layout that we
 *     know; an empty one must have had children, or get one right now, for whoever makes one
 *     makes a child in it at once.
 *  4. Users of Curator's semaphore stand in K/locks and K/leases alone.  kazoo's Semaphore keeps
 *     its size in the data of K; its users take our node for one permit of theirs, and go on
 *     taking the others.
 */
#include "zk.h"

#include "backends/common/refuse.h"

#include <string.h>

/* until whoever has made a directory has made a child in it */
#define BIRTH (300 * NS_PER_MS)

/* ---- children that no layout knows ---- */

static bool
has_lock_in_it(const struct call *list)
{
	for (size_t i = 0; i < list->nnames; i++) {
		struct child c;

		if (layout_of(list->names[i], &c) || layout_semaphore(list->names[i]))
			return true;
	}
	return false;
}

/*
 * *passed: it is a directory with a lock in it, or gone.  *born: it may have been made just now.
 * Drops `list`, what is in it; we may not see that, but whether there is anything.
 */
static enum rc
judge_child(struct zk *z, const char *name, struct call *list, bool *passed, bool *born,
    instant until, struct fault *f)
{
	enum rc rc = call_await(list, until, f);
	bool closed = rc == RC_DENIED;

	*passed = *born = false;
	if (closed) {
		call_drop(list);
		list = lockdir_ask(&z->dir, ASK_EXISTS, "", name);
		rc = call_await(list, until, f);
	}
	if (rc == RC_OK && list->code == ZNONODE)
		*passed = true;
	else if (rc == RC_OK && !stat_is_ephemeral(&list->stat)) {
		*passed = stat_is_directory(&list->stat) &&
		    (closed || list->stat.numChildren == 0 || has_lock_in_it(list));
		*born = !closed && !stat_is_directory(&list->stat);
	}
	call_drop(list);
	return rc;
}

/*
 * *ret: the first strange child that is no directory of a lock; NULL: there is none.  A
 * semaphore's are of the key itself; what jobs of other locks have done lies beside these.
 */
static enum rc
find_stranger(struct zk *z, const char **ret, instant until, struct fault *f)
{
	const char **all = z->turn.list->names;
	struct reader r = {ASK_LIST, .part = ""};
	size_t first = 0;
	struct call *list;
	enum rc rc = RC_OK;

	/* they stand behind all, and are put before those of them that are known */
	while (!layout_read(z->dir.layout, all[first]).blind)
		first++;
	r.names = all + first;
	for (size_t i = first; i < z->turn.place.n; i++) {
		const char *name = all[i];

		if (!queue_is_strange(z->dir.layout, name) || strcmp(name, JOBS) == 0)
			continue;
		all[i] = r.names[r.n];
		r.names[r.n++] = name;
	}
	*ret = NULL;
	while (rc == RC_OK && !*ret) {
		const char *name = reader_next(&r, &z->dir, &list);
		bool passed = false, born = false;

		if (!name)
			break;
		if (layout_read(layouts, name).what == CHILD_PART ||
		    strlen(name) >= NAME_BYTES)
			call_drop(list);
		else
			rc = judge_child(z, name, list, &passed, &born, until, f);
		if (rc == RC_OK && born)
			rc = zk_pause(z, instant_now() + BIRTH);
		if (rc == RC_OK && born)
			rc = judge_child(z, name,
			    lockdir_ask(&z->dir, ASK_LIST, "", name), &passed, &born,
			    until, f);
		if (rc == RC_OK && !passed)
			*ret = name;
	}
	reader_end(&r);
	return rc;
}

/* ---- semaphores ---- */

static enum rc
refuse_users_of(const struct lockdir *d, const struct call *list, struct fault *f)
{
	char quoted[81];

	for (size_t i = 0; i < list->nnames; i++) {
		struct child c = layout_read(d->layout, list->names[i]);

		if (c.owner || c.what == CHILD_FREEZE)
			continue;
		session_quote(d->session, quoted, sizeof quoted, list->names[i]);
		return fault_set(f, RC_PROTOCOL,
		    "%s: %s is in use as a semaphore (%s), whose users see a run with --limit only",
		    d->where, d->path, quoted);
	}
	return RC_OK;
}

static enum rc
refuse_curators_semaphore(struct zk *z, instant until, struct fault *f)
{
	struct lists l = {.n = 0};
	enum rc rc = RC_OK;

	lists_ask(&l, &z->dir, SLOTS);
	for (enum part p = 0; rc == RC_OK && p < l.n; p++) {
		rc = call_await(l.of[p], until, f);
		if (rc == RC_OK)
			rc = refuse_users_of(&z->dir, l.of[p], f);
	}
	lists_drop(&l);
	return rc;
}

static enum rc
refuse_kazoos_semaphore(struct zk *z, instant until, struct fault *f)
{
	const struct lockdir *d = &z->dir;
	struct call *c = lockdir_ask(d, ASK_GET, "", NULL);
	long limit;
	enum rc rc = call_await(c, until, f);

	if (rc == RC_OK && c->code == ZOK && data_is_number(c->text, &limit))
		rc = fault_set(f, RC_PROTOCOL,
		    "%s: %s is a semaphore of kazoo's for %ld, whose users do not see a lock: delete it when nobody uses it",
		    d->where, d->path, limit);
	call_drop(c);
	return rc;
}

/* ---- all of them ---- */

/* By what stands in our queue; who holds the lock in another way is asked for next. */
static enum rc
refuse_by_names(struct zk *z, struct fault *f)
{
	const struct place *p = &z->turn.place;
	const struct lockdir *d = &z->dir;

	if (p->exhausted)
		return fault_set(f, RC_CONFIG,
		    "%s: %s has been used two thousand million times and has no numbers left: delete it when nobody uses it",
		    d->where, d->path);
	if (p->found && p->other) {
		struct child c = layout_read(d->layout, p->other);

		return refuse_kind(f, d->where, c.kind, c.limit, z->claim);
	}
	if (p->found && p->ahead && strlen(d->path) + 1 + strlen(p->ahead) >= NODE_BYTES)
		return lockdir_refuse(
		    d, p->ahead, "its name is too long to be waited for", f);
	return RC_OK;
}

enum rc
stranger_refuse(struct zk *z, struct fault *f)
{
	const struct place *p = &z->turn.place;
	const char *foreign = p->foreign;
	instant until = zk_answer_by(z);
	enum rc rc = RC_OK;

	if (p->strange && !foreign)
		rc = find_stranger(z, &foreign, until, f);
	if (rc == RC_OK && foreign) {
		struct child c = layout_read(z->dir.layout, foreign);

		return lockdir_refuse(&z->dir, foreign,
		    c.blind ? NULL
			: c.kind == KIND_EXCLUSIVE
			? "its users do not see a run with -s, -x or --limit; they see one without"
			: "its users see a run with -s or -x only",
		    f);
	}
	if (rc == RC_OK)
		rc = refuse_by_names(z, f);
	if (rc == RC_OK && p->found && p->semaphore && z->claim->kind != KIND_LIMIT)
		rc = refuse_curators_semaphore(z, until, f);
	if (rc == RC_OK && p->found && z->dir.layout->counts &&
	    z->turn.list->stat.dataLength > 0)
		rc = refuse_kazoos_semaphore(z, until, f);
	return rc;
}
