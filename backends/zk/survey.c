/* survey.c - lists directories, reads nodes, and tells what they mean. */
#include "survey.h"

#include "pool_look.h"
#include "queue.h"
#include "unit_look.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
	BATCH = 32 /* directories that are asked for at once */
};

/* One lock. */
struct sight {
	const char *key;
	char name[KEY_BYTES + 1], path[DIR_BYTES];
	struct call *list;
	const char *what;   /* it is no lock, but that */
	struct names names; /* those with a place, in order */
	bool there;         /* where the lock is one node */
	struct place place;
	struct reader holders;
	struct freeze freeze;
	struct unit_look units;
	struct pool_look pool;
	struct names rest; /* who does not hold it */
	const char *odd;   /* a node that no lock has made, */
	size_t nodd;       /* and how many there are */
};

/* ---- one lock ---- */

static void
sight_begin(struct looking *l, struct sight *v)
{
	v->list = l->layout->single ? call_get(l->session, v->path)
				    : call_list(l->session, v->path);
}

/* Where the lock is one node. */
static enum rc
sight_read(struct looking *l, struct sight *v, struct fault *f)
{
	int code;
	enum rc rc = call_await(v->list, l->look->until, &code, f);

	if (rc == RC_DENIED && !l->look->key)
		v->what = "a node that may not be read";
	v->there = rc == RC_OK && code == ZOK;
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
	rc = names_copy(&v->names, v->list, f);
	if (rc != RC_OK)
		return rc;
	v->names.n = queue_sort(l->layout, v->names.at, v->names.n);
	reader_begin(&v->holders, l->session, v->path, "", &v->names, v->place.holders);
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
	const char *name;
	enum rc rc = RC_OK;

	while (rc == RC_OK && !l->enough && (name = reader_name(r))) {
		const struct call *c;
		bool denied;

		rc = reader_next(r, l->look->until, &c, &denied, f);
		if (c)
			tell_note_time(l, call_stat(c));
		if (rc == RC_OK && has_place(l, v, name) && (c || denied)) {
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
		if (has_place(l, v, v->names.at[i]))
			v->rest.at[v->rest.n++] = v->names.at[i];
	if (l->look->brief) {
		tell_waiting(l, v->pool.waiters.n + v->units.waiters.n + v->rest.n);
		return RC_OK;
	}
	rc = pool_look_tell_waiters(&v->pool, l, f);
	if (rc == RC_OK)
		rc = unit_look_tell_waiters(&v->units, l, f);
	return rc == RC_OK ? tell_waiters(l, v, f) : rc;
}

static void
tell_odd(struct looking *l, const struct sight *v)
{
	char what[256], name[81];

	if (v->what) {
		tell_unknown(l, v->what);
	} else if (v->nodd > 0) {
		session_quote(l->session, name, sizeof name, v->odd);
		snprintf(what, sizeof what,
		    "%zu node%s of no lock that dlock can share (%s)", v->nodd,
		    v->nodd == 1 ? "" : "s", name);
		tell_unknown(l, what);
	}
}

static enum rc
tell_last_run(struct looking *l, const struct lockdir *d, struct fault *f)
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
		tell_note_time(l, call_stat(c));
		tell_last(l, &run);
		jobs_forget(&run);
	}
	call_drop(c);
	return rc == RC_DENIED ? RC_OK : rc; /* others' jobs */
}

/*
 * What else may stand there is the directory of another lock, or a node that somebody has made
 * to stay.  Where nobody has asked for that key, it is none of a lock's.
 */
static void
sight_tell_single(struct looking *l, struct sight *v)
{
	const struct Stat *stat = call_stat(v->list);

	if (v->there)
		tell_note_time(l, stat);
	if (v->there && stat_is_directory(stat) && l->look->key)
		v->what = "a directory, as locks of other layouts have it";
	if (v->what)
		tell_unknown(l, v->what);
	else if (v->there && (stat_is_ephemeral(stat) || l->look->key))
		tell_single(l, v->list);
}

static enum rc
sight_tell(struct looking *l, struct sight *v, struct fault *f)
{
	size_t n;
	const char *const *names = call_names(v->list, &n);
	enum rc rc = RC_OK;

	tell_begin(l, v->key);
	if (l->layout->single) {
		sight_tell_single(l, v);
		return RC_OK;
	}

	if (!v->what && v->place.freeze)
		rc = freeze_look(&v->freeze, l->session, v->path, "", names, n,
		    tell_now(l), false, l->look->until, f);
	if (rc == RC_OK && v->place.semaphore)
		rc = unit_look_list(&v->units, l, v->path, f);
	if (rc == RC_OK && l->layout->queue)
		rc = pool_look_list(
		    &v->pool, l, v->path, v->list, v->place.freeze && v->names.n == 0, f);
	v->rest.at = calloc(v->names.n + 1, sizeof *v->rest.at);
	if (rc == RC_OK && !v->rest.at)
		rc = fault_set(f, RC_SYSTEM, "out of memory");
	if (rc == RC_OK)
		rc = tell_holders(l, v, f);
	if (rc == RC_OK)
		rc = unit_look_tell_holders(&v->units, l, f);
	if (rc == RC_OK)
		rc = pool_look_tell_holders(&v->pool, l, f);
	if (rc == RC_OK)
		rc = tell_queue(l, v, f);
	if (rc == RC_OK)
		tell_freeze(l, &v->freeze);
	if (rc == RC_OK)
		tell_odd(l, v);
	return rc;
}

static void
sight_end(struct sight *v)
{
	reader_end(&v->holders);
	call_drop(v->list);
	unit_look_end(&v->units);
	pool_look_end(&v->pool);
	names_free(&v->names);
	names_free(&v->rest);
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
		rc = tell_last_run(&l, d, f);
	sight_end(&v);
	return rc;
}

/* ---- all of them ---- */

/* As many of the names from `i` on as a batch has room for, and are keys'. */
static size_t
begin_batch(struct looking *l, struct sight v[BATCH], const char *chroot,
    const struct names *names, size_t *i)
{
	size_t found = 0;

	for (; found < BATCH && *i < names->n; ++*i) {
		struct sight *next = &v[found];
		const char *name = names->at[*i];

		if (layout_is_queue(l->layout, name) ||
		    !lockdir_key(next->name, chroot, name))
			continue;
		next->key = next->name;
		snprintf(next->path, sizeof next->path, "%s/%s", chroot, name);
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
look_through(
    struct looking *l, const char *chroot, const struct names *names, struct fault *f)
{
	struct sight *v = calloc(BATCH, sizeof *v);
	enum rc rc = RC_OK;

	if (!v)
		return fault_set(f, RC_SYSTEM, "out of memory");
	for (size_t i = 0; rc == RC_OK && i < names->n && !l->enough;)
		rc = tell_batch(l, v, begin_batch(l, v, chroot, names, &i), f);
	free(v);
	return rc;
}

enum rc
survey_all(struct session *s, const struct layout *layout, const char *chroot,
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
