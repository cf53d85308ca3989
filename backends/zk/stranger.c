/* stranger.c - refuses a directory that others use in a way that we cannot share. */
#include "stranger.h"

#include "backends/common/text.h"

#include <stdio.h>
#include <string.h>

/* until whoever has made a directory has made a child in it */
#define BIRTH (300 * NS_PER_MS)

enum { BATCH = 16 /* children that are looked at side by side */ };

/* ---- children that no layout knows ---- */

/* A child, and its children. */
struct stranger {
	const char *name;
	struct call *list;
};

static struct call *
ask_children(const struct node *n, const char *name)
{
	char path[NODE_BYTES];

	snprintf(path, sizeof path, "%s/%s", n->dir->path, name);
	return call_list(n->session, path);
}

/* A semaphore's are of the key itself. */
static bool
is_semaphores(const char *name)
{
	return layout_read(layouts, name).what == CHILD_PART;
}

static bool
is_of_a_lock(const char *name)
{
	struct child c;

	return layout_of(name, &c) || layout_semaphore(name);
}

static bool
has_lock_in_it(const struct call *list)
{
	size_t n;
	const char *const *names = call_names(list, &n);

	for (size_t i = 0; i < n; i++)
		if (is_of_a_lock(names[i]))
			return true;
	return false;
}

/* *born: it may have been made just now. */
static bool
is_directory(const struct call *list, bool *born)
{
	const struct Stat *stat = call_stat(list);

	*born = false;
	if (stat_is_ephemeral(stat))
		return false;
	if (stat->numChildren > 0)
		return has_lock_in_it(list);
	*born = !stat_is_directory(stat);
	return !*born;
}

/* We may not see what is in it: is there anything? */
static enum rc
judge_closed(
    const struct node *n, const char *name, bool *passed, instant until, struct fault *f)
{
	char path[NODE_BYTES];
	struct call *c;
	int code = ZOK;
	enum rc rc;

	snprintf(path, sizeof path, "%s/%s", n->dir->path, name);
	c = call_exists(n->session, path);
	rc = call_await(c, until, &code, f);
	*passed = rc == RC_OK &&
	    (code == ZNONODE ||
		(!stat_is_ephemeral(call_stat(c)) && stat_is_directory(call_stat(c))));
	call_drop(c);
	return rc;
}

static enum rc
judge_child(const struct node *n, struct stranger *s, bool *passed, bool *born,
    instant until, struct fault *f)
{
	int code = ZOK;
	enum rc rc = call_await(s->list, until, &code, f);

	*passed = *born = false;
	if (rc == RC_DENIED)
		return judge_closed(n, s->name, passed, until, f);
	if (rc == RC_OK)
		*passed = code == ZNONODE || is_directory(s->list, born);
	return rc;
}

/* One that may have been made just now is looked at again. */
static enum rc
judge_patiently(const struct node *n, struct host *h, struct stranger *s, bool *passed,
    instant until, struct fault *f)
{
	bool born;
	enum rc rc = judge_child(n, s, passed, &born, until, f);

	if (rc != RC_OK || *passed || !born)
		return rc;
	if (h->wait(h, -1, 0, instant_now() + BIRTH) == WOKE_STOP)
		return RC_STOP;
	call_drop(s->list);
	s->list = ask_children(n, s->name);
	return judge_child(n, s, passed, &born, until, f);
}

static enum rc
judge_batch(const struct node *n, struct host *h, struct stranger *s, size_t count,
    const char **ret, instant until, struct fault *f)
{
	enum rc rc = RC_OK;

	for (size_t i = 0; i < count && rc == RC_OK && !*ret; i++) {
		bool passed = false;

		if (s[i].list)
			rc = judge_patiently(n, h, &s[i], &passed, until, f);
		if (rc == RC_OK && !passed)
			*ret = s[i].name;
	}
	for (size_t i = 0; i < count; i++)
		call_drop(s[i].list);
	return rc;
}

/* What jobs of other locks have done lies beside these. */
static bool
is_in_doubt(const struct layout *l, const char *name)
{
	return queue_is_strange(l, name) && strcmp(name, JOBS) != 0;
}

/* *ret: the first strange child that is no directory of a lock; NULL: there is none. */
static enum rc
find_stranger(const struct node *n, struct host *h, const struct call *list,
    const char **ret, instant until, struct fault *f)
{
	struct stranger batch[BATCH];
	size_t i = 0, total, count;
	const char *const *names = call_names(list, &total);
	enum rc rc = RC_OK;

	*ret = NULL;
	while (i < total && rc == RC_OK && !*ret) {
		for (count = 0; count < BATCH && i < total; i++)
			if (is_in_doubt(n->dir->layout, names[i]))
				batch[count++] = (struct stranger){names[i],
				    is_semaphores(names[i]) ||
					    strlen(names[i]) >= NAME_BYTES
					? NULL
					: ask_children(n, names[i])};
		rc = judge_batch(n, h, batch, count, ret, until, f);
	}
	return rc;
}

/* ---- semaphores ---- */

static enum rc
refuse_users_of(const struct node *n, const struct call *list, struct fault *f)
{
	size_t count;
	const char *const *names = call_names(list, &count);
	char quoted[81];

	for (size_t i = 0; i < count; i++) {
		struct child c = layout_read(n->dir->layout, names[i]);

		if (c.owner || c.what == CHILD_FREEZE)
			continue;
		session_quote(n->session, quoted, sizeof quoted, names[i]);
		return fault_set(f, RC_PROTOCOL,
		    "%s: %s is in use as a semaphore (%s), whose users see a run with --limit only",
		    n->dir->where, n->dir->path, quoted);
	}
	return RC_OK;
}

static enum rc
refuse_curators_semaphore(const struct node *n, instant until, struct fault *f)
{
	static const char *const parts[] = {"locks", "leases"};
	struct call *lists[2];
	char path[NODE_BYTES];
	enum rc rc = RC_OK;

	for (int i = 0; i < 2; i++) {
		snprintf(path, sizeof path, "%s/%s", n->dir->path, parts[i]);
		lists[i] = call_list(n->session, path);
	}
	for (int i = 0; i < 2; i++) {
		int code;

		if (rc == RC_OK)
			rc = call_await(lists[i], until, &code, f);
		if (rc == RC_OK)
			rc = refuse_users_of(n, lists[i], f);
		call_drop(lists[i]);
	}
	return rc;
}

static enum rc
refuse_kazoos_semaphore(const struct node *n, instant until, struct fault *f)
{
	const struct lockdir *d = n->dir;
	struct call *c = call_get(n->session, d->path);
	int code;
	long limit;
	enum rc rc = call_await(c, until, &code, f);

	if (rc == RC_OK && code == ZOK && data_is_number(call_text(c), &limit))
		rc = fault_set(f, RC_PROTOCOL,
		    "%s: %s is a semaphore of kazoo's for %ld, whose users do not see a lock: delete it when nobody uses it",
		    d->where, d->path, limit);
	call_drop(c);
	return rc;
}

/* ---- all of them ---- */

static enum rc
refuse_foreign(const struct node *n, const char *name, struct fault *f)
{
	struct child c = layout_read(n->dir->layout, name);

	return lockdir_refuse(n->dir, n->session, name,
	    c.blind ? NULL
		: c.kind == KIND_EXCLUSIVE
		? "its users do not see a run with -s, -x or --limit; they see one without"
		: "its users see a run with -s or -x only",
	    f);
}

/* By what stands in our queue; who holds the lock in another way is asked for next. */
static enum rc
refuse_by_names(const struct node *n, const struct claim *claim, const struct place *p,
    struct fault *f)
{
	const struct lockdir *d = n->dir;

	if (p->exhausted)
		return fault_set(f, RC_CONFIG,
		    "%s: %s has been used two thousand million times and has no numbers left: delete it when nobody uses it",
		    d->where, d->path);
	if (p->found && p->other) {
		struct child c = layout_read(d->layout, p->other);

		return refuse_kind(f, d->where, c.kind, c.limit, claim);
	}
	if (p->found && p->ahead && strlen(d->path) + 1 + strlen(p->ahead) >= NODE_BYTES)
		return lockdir_refuse(
		    d, n->session, p->ahead, "its name is too long to be waited for", f);
	return RC_OK;
}

enum rc
stranger_refuse(const struct node *n, struct host *h, const struct claim *claim,
    const struct place *p, const struct call *list, instant until, struct fault *f)
{
	const char *foreign = p->foreign;
	enum rc rc = RC_OK;

	if (p->strange && !foreign)
		rc = find_stranger(n, h, list, &foreign, until, f);
	if (rc == RC_OK && foreign)
		rc = refuse_foreign(n, foreign, f);
	if (rc == RC_OK)
		rc = refuse_by_names(n, claim, p, f);
	if (rc == RC_OK && p->found && p->semaphore && claim->kind != KIND_LIMIT)
		rc = refuse_curators_semaphore(n, until, f);
	if (rc == RC_OK && p->found && n->dir->layout->counts &&
	    call_stat(list)->dataLength > 0)
		rc = refuse_kazoos_semaphore(n, until, f);
	return rc;
}
