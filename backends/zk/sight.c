/* sight.c - lists a lock's directory, reads its nodes, and tells what they mean. */
#include "sight.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void
sight_begin(struct sight *v, struct looking *l, const char *key, const char *path)
{
	*v = (struct sight){.key = key};
	snprintf(v->path, sizeof v->path, "%s", path);
	v->list = l->layout->single ? call_get(l->session, v->path)
				    : call_list(l->session, v->path);
}

/* The answer that was asked for first.  *there: it says something. */
static enum rc
sight_await(struct sight *v, struct looking *l, bool *there, struct fault *f)
{
	int code;
	enum rc rc = call_await(v->list, l->look->until, &code, f);

	*there = rc == RC_OK && code == ZOK;
	if (rc != RC_DENIED || l->look->key)
		return rc;
	v->what = l->layout->single ? "a node that may not be read"
				    : "a directory that may not be read";
	return RC_OK;
}

enum rc
sight_list(struct sight *v, struct looking *l, struct fault *f)
{
	struct queue q = {.layout = l->layout};
	bool there;
	enum rc rc = sight_await(v, l, &there, f);

	if (rc != RC_OK || !there || l->layout->single)
		return rc;
	if (stat_is_ephemeral(call_stat(v->list)))
		v->what = "an ephemeral node, which can be a lock of layout=plain only";
	q.names = call_names(v->list, &q.n);
	queue_look(&v->place, &q, "");
	rc = names_copy(&v->names, v->list, f);
	if (rc != RC_OK)
		return rc;
	v->names.n = queue_sort(l->layout, v->names.at, v->names.n);
	reader_begin(&v->holders, l->session, v->path, "", &v->names, v->place.holders.n);
	reader_ask(&v->holders);
	return RC_OK;
}

/* Does its owner hold the lock, standing where holders stand? */
static bool
is_holder(const struct looking *l, const struct sight *v, const char *name,
    const struct call *c)
{
	bool unit = layout_read(l->layout, name).kind == KIND_LIMIT;

	if (unit && !unit_look_has_seat(&v->units, name))
		return false;
	return !c || unit ||
	    freeze_leaves(&v->freeze, call_stat(c)->czxid, data_stage(call_text(c)));
}

static bool
has_place(const struct layout *l, const char *name, struct odd *odd)
{
	if (layout_read(l, name).what != CHILD_FOREIGN && strlen(name) < NAME_BYTES)
		return true;
	odd->first = odd->first ? odd->first : name;
	odd->n++;
	return false;
}

/* Tells them, and notes who of them does not hold it. */
static enum rc
tell_holders(struct looking *l, struct sight *v, struct fault *f)
{
	struct reader *r = &v->holders;
	const char *name;
	enum rc rc = RC_OK;

	while (rc == RC_OK && !l->enough && (name = reader_name(r))) {
		const struct call *c;
		bool denied;

		rc = reader_next(r, l->look->until, &c, &denied, f);
		if (c)
			tell_note_time(l, call_stat(c));
		if (rc == RC_OK && has_place(l->layout, name, &v->odd) && (c || denied)) {
			if (is_holder(l, v, name, c))
				tell_place(l, ENTRY_HOLDER, name, c);
			else
				v->rest.at[v->rest.n++] = name;
		}
		reader_done(r);
	}
	return rc;
}

static enum rc
tell_waiters(struct looking *l, struct sight *v, struct fault *f)
{
	struct reader r;

	reader_begin(&r, l->session, v->path, "", &v->rest, v->rest.n);
	return tell_all(l, &r, ENTRY_WAITER, tell_place, f);
}

static enum rc
tell_queue(struct looking *l, struct sight *v, struct fault *f)
{
	enum rc rc;

	for (size_t i = v->holders.n; i < v->names.n; i++)
		if (has_place(l->layout, v->names.at[i], &v->odd))
			v->rest.at[v->rest.n++] = v->names.at[i];
	if (l->look->brief) {
		tell_waiting(l, v->units.waiters.n + v->rest.n);
		return RC_OK;
	}
	rc = unit_look_tell_waiters(&v->units, l, f);
	return rc == RC_OK ? tell_waiters(l, v, f) : rc;
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
	tell_unknown(l, what);
}

/* Whoever stands in the directory, and in those of semaphores. */
static enum rc
tell_everybody(struct looking *l, struct sight *v, struct fault *f)
{
	enum rc rc;

	v->rest.at = calloc(v->names.n + 1, sizeof *v->rest.at);
	if (!v->rest.at)
		return fault_set(f, RC_SYSTEM, "out of memory");
	rc = tell_holders(l, v, f);
	if (rc == RC_OK)
		rc = unit_look_tell_holders(&v->units, l, f);
	return rc == RC_OK ? tell_queue(l, v, f) : rc;
}

/* A directory that may be a lock. */
static enum rc
tell_directory(struct looking *l, struct sight *v, struct fault *f)
{
	size_t n;
	const char *const *names = call_names(v->list, &n);
	enum rc rc = RC_OK;

	if (v->place.freeze)
		rc = freeze_look(&v->freeze, l->session, v->path, "", names, n,
		    tell_now(l), false, l->look->until, f);
	if (rc == RC_OK && v->place.semaphore)
		rc = unit_look_list(&v->units, l, v->path, f);
	if (rc == RC_OK)
		rc = tell_everybody(l, v, f);
	if (rc != RC_OK)
		return rc;
	tell_freeze(l, &v->freeze);
	tell_odd(l, &v->odd);
	return RC_OK;
}

/*
 * What else may stand there is the directory of another lock, or a node that somebody has made
 * to stay.  Where nobody has asked for that key, it is none of a lock's.
 */
static void
tell_node(struct looking *l, const struct sight *v)
{
	const struct Stat *stat = call_stat(v->list);

	if (stat->czxid == 0)
		return; /* it is not there */
	tell_note_time(l, stat);
	if (stat_is_directory(stat) && l->look->key)
		tell_unknown(l, "a directory, as locks of other layouts have it");
	else if (stat_is_ephemeral(stat) || l->look->key)
		tell_single(l, v->list);
}

enum rc
sight_tell(struct sight *v, struct looking *l, struct fault *f)
{
	enum rc rc = RC_OK;

	tell_begin(l, v->key);
	if (!v->what && l->layout->single)
		tell_node(l, v);
	else if (!v->what)
		rc = tell_directory(l, v, f);
	if (rc == RC_DENIED && !l->look->key) {
		v->what = "a lock of which a part may not be read";
		rc = RC_OK;
	}
	if (v->what)
		tell_unknown(l, v->what);
	return rc;
}

void
sight_end(struct sight *v)
{
	reader_end(&v->holders);
	call_drop(v->list);
	unit_look_end(&v->units);
	names_free(&v->names);
	names_free(&v->rest);
	*v = (struct sight){.key = NULL};
}
