/* look.c - goes through the locks below a path, or to one of them. */
#include "look.h"

#include "entry.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BATCH = 32 /* locks that are looked at side by side */ };

/* One of them. */
struct found {
	char key[KEY_BYTES + 1];
	struct contents contents;
	const char *what; /* it is no lock, but that; NULL */
};

/* ---- one lock ---- */

/* It has been asked for: asks for those who may hold it. */
static enum rc
list_found(struct found *v, struct looking *l, struct fault *f)
{
	struct contents *c = &v->contents;
	bool there;
	enum rc rc = contents_await(c, &there, f);

	if (rc == RC_DENIED && !l->look->key) {
		v->what = l->layout->single ? "a node that may not be read"
					    : "a directory that may not be read";
		rc = RC_OK;
	}
	if (rc != RC_OK || !there || l->layout->single)
		return rc;
	if (stat_is_ephemeral(call_stat(c->list)))
		v->what = "an ephemeral node, which can be a lock of layout=plain only";
	rc = contents_order(c, f);
	if (rc == RC_OK)
		contents_read_ahead(c);
	return rc;
}

static enum rc
tell_member(struct looking *l, enum entry_kind kind, const struct member *m)
{
	entry_member(l, kind, m);
	return l->enough ? RC_DONE : RC_OK;
}

static enum rc
hand_holder(void *ctx, const struct member *m, struct fault *f)
{
	(void)f;
	return tell_member(ctx, ENTRY_HOLDER, m);
}

static enum rc
hand_waiter(void *ctx, const struct member *m, struct fault *f)
{
	(void)f;
	return tell_member(ctx, ENTRY_WAITER, m);
}

static void
tell_odd(struct looking *l, const struct odd *odd)
{
	char what[256], name[81];

	if (odd->n == 0)
		return;
	session_quote(l->session, name, sizeof name, odd->first);
	snprintf(what, sizeof what, "%zu node%s of no lock that dlock can share (%s)",
	    odd->n, odd->n == 1 ? "" : "s", name);
	entry_unknown(l, what);
}

/* A directory that may be a lock. */
static enum rc
tell_directory(struct looking *l, struct contents *c, struct fault *f)
{
	enum rc rc = contents_judge(c, true, entry_now(l), f);

	if (rc == RC_OK)
		rc = contents_holders(c, &(struct visitor){hand_holder, l}, f);
	if (rc == RC_OK && l->look->brief)
		entry_waiting(l, contents_waiting(c));
	else if (rc == RC_OK && !l->enough)
		rc = contents_waiters(c, &(struct visitor){hand_waiter, l}, f);
	if (rc != RC_OK)
		return rc;
	entry_freeze(l, &c->freeze);
	tell_odd(l, &c->odd);
	return RC_OK;
}

/*
 * What else may stand there is the directory of another lock, or a node that somebody has made
 * to stay.  Where nobody has asked for that key, it is none of a lock's.
 */
static void
tell_node(struct looking *l, const struct call *node)
{
	const struct Stat *stat = call_stat(node);

	if (stat->czxid == 0)
		return; /* it is not there */
	if (stat_is_directory(stat) && l->look->key)
		entry_unknown(l, "a directory, as locks of other layouts have it");
	else if (stat_is_ephemeral(stat) || l->look->key)
		entry_single(l, node);
}

static enum rc
tell_contents(struct looking *l, struct found *v, const char *key, struct fault *f)
{
	enum rc rc = RC_OK;

	entry_begin(l, key);
	if (!v->what && l->layout->single)
		tell_node(l, v->contents.list);
	else if (!v->what)
		rc = tell_directory(l, &v->contents, f);
	if (rc == RC_DENIED && !l->look->key) {
		v->what = "a lock of which a part may not be read";
		rc = RC_OK;
	}
	if (v->what)
		entry_unknown(l, v->what);
	return rc;
}

static enum rc
tell_last_run(struct looking *l, const struct lockdir *d, struct fault *f)
{
	char path[JOBS_DIR_BYTES + 8];
	struct call *c;
	int code;
	enum rc rc;

	jobs_path(path, d);
	snprintf(path + strlen(path), 8, "/last");
	c = call_get(l->session, path);
	rc = call_await(c, l->look->until, &code, f);
	if (rc == RC_OK && code == ZOK)
		entry_last(l, c);
	call_drop(c);
	return rc == RC_DENIED ? RC_OK : rc; /* others' jobs */
}

enum rc
look_into(
    struct session *s, const struct lockdir *d, const struct look *look, struct fault *f)
{
	struct looking l = {.session = s, .layout = d->layout, .look = look};
	struct found v = {.what = NULL};
	int code;
	enum rc rc = call_finish(call_sync(s, "/"), look->until, &code, f);

	if (rc != RC_OK)
		return rc;
	contents_begin(&v.contents, s, d->layout, d->path, look->until);
	rc = list_found(&v, &l, f);
	if (rc == RC_OK)
		rc = tell_contents(&l, &v, look->key ? look->key : d->path, f);
	if (rc == RC_OK && look->key && !l.enough)
		rc = tell_last_run(&l, d, f);
	contents_end(&v.contents);
	return rc;
}

/* ---- all of them ---- */

/* As many of the names from `i` on as a batch has room for, and are keys'. */
static size_t
begin_batch(struct looking *l, struct found v[BATCH], const char *chroot,
    const struct names *names, size_t *i)
{
	char path[DIR_BYTES];
	size_t found = 0;

	for (; found < BATCH && *i < names->n; ++*i) {
		struct found *next = &v[found];
		const char *name = names->at[*i];

		if (!lockdir_key(next->key, chroot, name))
			continue;
		snprintf(path, sizeof path, "%s/%s", chroot, name);
		next->what = NULL;
		contents_begin(
		    &next->contents, l->session, l->layout, path, l->look->until);
		found++;
	}
	return found;
}

static enum rc
tell_batch(struct looking *l, struct found v[BATCH], size_t n, struct fault *f)
{
	enum rc rc = RC_OK;

	for (size_t i = 0; i < n && rc == RC_OK; i++)
		rc = list_found(&v[i], l, f);
	for (size_t i = 0; i < n && rc == RC_OK && !l->enough; i++)
		rc = tell_contents(l, &v[i], v[i].key, f);
	for (size_t i = 0; i < n; i++)
		contents_end(&v[i].contents);
	return rc;
}

static enum rc
look_through(
    struct looking *l, const char *chroot, const struct names *names, struct fault *f)
{
	struct found *v = calloc(BATCH, sizeof *v);
	enum rc rc = RC_OK;

	if (!v)
		return fault_set(f, RC_SYSTEM, "out of memory");
	for (size_t i = 0; rc == RC_OK && i < names->n && !l->enough;)
		rc = tell_batch(l, v, begin_batch(l, v, chroot, names, &i), f);
	free(v);
	return rc;
}

enum rc
look_below(struct session *s, const struct layout *layout, const char *chroot,
    const struct look *look, struct fault *f)
{
	struct looking l = {.session = s, .layout = layout, .look = look};
	struct call *list;
	struct names names = {NULL, 0};
	int code;
	enum rc rc = call_finish(call_sync(s, "/"), look->until, &code, f);

	if (rc != RC_OK)
		return rc;
	list = call_list(s, *chroot ? chroot : "/");
	rc = call_await(list, look->until, &code, f);
	if (rc == RC_OK)
		rc = names_copy(&names, list, f);
	if (rc == RC_OK) {
		names_sort(&names);
		rc = look_through(&l, chroot, &names, f);
	}
	names_free(&names);
	call_drop(list);
	return rc;
}
