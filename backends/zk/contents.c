/* contents.c - lists a lock's directory, and reads its nodes. */
#include "contents.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { UUID_CHARS = 40 /* "_c_<uuid>-" */ };

/* ---- names ---- */

enum rc
names_copy(struct names *ret, const struct call *list, struct fault *f)
{
	size_t n;
	const char *const *names = call_names(list, &n);

	*ret = (struct names){calloc(n + 1, sizeof *ret->at), n};
	if (!ret->at) {
		ret->n = 0;
		return fault_set(f, RC_SYSTEM, "out of memory");
	}
	if (n > 0)
		memcpy(ret->at, names, n * sizeof *names);
	return RC_OK;
}

static int
compare_names(const void *a, const void *b)
{
	return strcmp(*(const char *const *)a, *(const char *const *)b);
}

void
names_sort(struct names *n)
{
	qsort(n->at, n->n, sizeof *n->at, compare_names);
}

void
names_free(struct names *n)
{
	free(n->at);
	*n = (struct names){NULL, 0};
}

/* ---- nodes ---- */

/* The first n names, of which none is asked for yet. */
static struct reader
reader_of(const char *part, const struct names *names, size_t n)
{
	return (struct reader){
	    .part = part, .names = names->at, .n = n < names->n ? n : names->n};
}

static void
reader_ask(const struct contents *c, struct reader *r)
{
	char path[NODE_BYTES + DIR_BYTES];

	for (; r->asked < r->n && r->asked < r->given + READ_AHEAD; r->asked++) {
		snprintf(
		    path, sizeof path, "%s%s/%s", c->path, r->part, r->names[r->asked]);
		r->calls[r->asked % READ_AHEAD] = call_get(c->session, path);
	}
}

/* Also before all are read. */
static void
reader_end(struct reader *r)
{
	for (; r->given < r->asked; r->given++)
		call_drop(r->calls[r->given % READ_AHEAD]);
}

static enum rc
reader_give(
    struct contents *c, struct reader *r, const struct visitor *v, struct fault *f)
{
	struct member m = {.part = r->part, .name = r->names[r->given]};
	struct call *node;
	int code = ZOK;
	enum rc rc;

	reader_ask(c, r);
	node = r->calls[r->given++ % READ_AHEAD];
	rc = call_await(node, c->until, &code, f);
	m.node = rc == RC_OK && code == ZOK ? node : NULL;
	if (rc == RC_DENIED || m.node)
		rc = v->see(v->ctx, &m, f);
	call_drop(node);
	return rc;
}

/* All of them, in order; RC_DONE if the visitor wants no more. */
static enum rc
walk_reader(
    struct contents *c, struct reader *r, const struct visitor *v, struct fault *f)
{
	enum rc rc = RC_OK;

	while (rc == RC_OK && r->given < r->n)
		rc = reader_give(c, r, v, f);
	reader_end(r);
	return rc;
}

static enum rc
walk_names(struct contents *c, const char *part, const struct names *names,
    const struct visitor *v, struct fault *f)
{
	struct reader r = reader_of(part, names, names->n);

	return walk_reader(c, &r, v, f);
}

/* ---- the list ---- */

void
contents_begin(struct contents *c, struct session *s, const struct layout *l,
    const char *path, instant until)
{
	*c = (struct contents){.session = s, .layout = l, .until = until};
	snprintf(c->path, sizeof c->path, "%s", path);
	c->list = l->single ? call_get(s, c->path) : call_list(s, c->path);
}

enum rc
contents_await(struct contents *c, bool *there, struct fault *f)
{
	int code;
	enum rc rc = call_await(c->list, c->until, &code, f);

	*there = rc == RC_OK && code == ZOK;
	return rc;
}

enum rc
contents_order(struct contents *c, struct fault *f)
{
	struct queue q = {.layout = c->layout};
	enum rc rc;

	q.names = call_names(c->list, &q.n);
	queue_look(&c->place, &q, "");
	rc = names_copy(&c->names, c->list, f);
	if (rc != RC_OK)
		return rc;
	c->names.n = queue_sort(c->layout, c->names.at, c->names.n);
	c->first = reader_of("", &c->names, c->place.holders.n);
	return RC_OK;
}

void
contents_read_ahead(struct contents *c)
{
	reader_ask(c, &c->first);
}

void
contents_want(struct contents *c, const char *owner)
{
	size_t kept = 0;

	for (size_t i = 0; i < c->first.n; i++) {
		struct child child = layout_read(c->layout, c->names.at[i]);

		if (child_has_owner(&child, owner))
			c->names.at[kept++] = c->names.at[i];
	}
	c->names.n = c->first.n = kept;
}

/* ---- semaphores ---- */

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

const char *
contents_seat(const struct contents *c, const char *name)
{
	const char **seat = c->seats.n > 0
	    ? bsearch(name, c->seats.at, c->seats.n, sizeof *c->seats.at, compare_uuid)
	    : NULL;

	return seat ? *seat : NULL;
}

/* Those that no dlock has made, in the order of their numbers. */
static enum rc
copy_others(
    struct names *ret, const struct layout *l, const struct call *list, struct fault *f)
{
	size_t kept = 0;
	enum rc rc = names_copy(ret, list, f);

	for (size_t i = 0; i < ret->n; i++) {
		struct child child = layout_read(l, ret->at[i]);

		if (!child.owner && child.what != CHILD_FREEZE &&
		    strlen(ret->at[i]) < NAME_BYTES)
			ret->at[kept++] = ret->at[i];
	}
	ret->n = kept;
	if (kept > 0)
		qsort(ret->at, ret->n, sizeof *ret->at, compare_numbers);
	return rc;
}

static enum rc
read_semaphore(struct contents *c, struct fault *f)
{
	char path[DIR_BYTES + 8];
	int code;
	enum rc rc;

	snprintf(path, sizeof path, "%s/leases", c->path);
	c->leases = call_list(c->session, path);
	snprintf(path, sizeof path, "%s/locks", c->path);
	c->locks = call_list(c->session, path);
	rc = call_await(c->leases, c->until, &code, f);
	if (rc == RC_OK)
		rc = call_await(c->locks, c->until, &code, f);
	if (rc == RC_OK)
		rc = names_copy(&c->seats, c->leases, f);
	if (rc == RC_OK)
		names_sort(&c->seats);
	if (rc == RC_OK)
		rc = copy_others(&c->holders, c->layout, c->leases, f);
	return rc == RC_OK ? copy_others(&c->queued, c->layout, c->locks, f) : rc;
}

enum rc
contents_judge(struct contents *c, bool freeze, int64_t now, struct fault *f)
{
	size_t n;
	const char *const *names = call_names(c->list, &n);
	enum rc rc = RC_OK;

	if (freeze && c->place.freeze)
		rc = freeze_look(&c->freeze, c->session, c->path, "", names, n, now,
		    false, c->until, f);
	return rc == RC_OK && c->place.semaphore ? read_semaphore(c, f) : rc;
}

/* ---- who holds it, and who does not ---- */

static bool
is_holder(const struct contents *c, const struct member *m)
{
	bool permit = layout_read(c->layout, m->name).kind == KIND_LIMIT;

	if (permit && !contents_seat(c, m->name))
		return false;
	return !m->node || permit ||
	    freeze_leaves(
		&c->freeze, call_stat(m->node)->czxid, data_stage(call_text(m->node)));
}

static bool
has_place(struct contents *c, const char *name)
{
	if (layout_read(c->layout, name).what != CHILD_FOREIGN &&
	    strlen(name) < NAME_BYTES)
		return true;
	c->odd.first = c->odd.first ? c->odd.first : name;
	c->odd.n++;
	return false;
}

/* The walk of those that may hold it. */
struct walk {
	struct contents *contents;
	const struct visitor *visitor;
};

static enum rc
see_first(void *ctx, const struct member *m, struct fault *f)
{
	struct walk *w = ctx;
	struct contents *c = w->contents;

	if (!has_place(c, m->name))
		return RC_OK;
	if (is_holder(c, m))
		return w->visitor->see(w->visitor->ctx, m, f);
	c->rest.at[c->rest.n++] = m->name;
	return RC_OK;
}

enum rc
contents_holders(struct contents *c, const struct visitor *v, struct fault *f)
{
	struct walk w = {c, v};
	const struct visitor first = {see_first, &w};
	enum rc rc;

	c->rest.at = calloc(c->names.n + 1, sizeof *c->rest.at);
	if (!c->rest.at)
		return fault_set(f, RC_SYSTEM, "out of memory");
	rc = walk_reader(c, &c->first, &first, f);
	for (size_t i = c->first.n; i < c->names.n; i++)
		if (has_place(c, c->names.at[i]))
			c->rest.at[c->rest.n++] = c->names.at[i];
	if (rc == RC_OK)
		rc = walk_names(c, "/leases", &c->holders, v, f);
	return rc == RC_DONE ? RC_OK : rc;
}

enum rc
contents_waiters(struct contents *c, const struct visitor *v, struct fault *f)
{
	enum rc rc = walk_names(c, "/locks", &c->queued, v, f);

	if (rc == RC_OK)
		rc = walk_names(c, "", &c->rest, v, f);
	return rc == RC_DONE ? RC_OK : rc;
}

size_t
contents_waiting(struct contents *c)
{
	return c->queued.n + c->rest.n;
}

void
contents_end(struct contents *c)
{
	reader_end(&c->first);
	call_drop(c->list);
	call_drop(c->leases);
	call_drop(c->locks);
	names_free(&c->names);
	names_free(&c->seats);
	names_free(&c->holders);
	names_free(&c->queued);
	names_free(&c->rest);
	*c = (struct contents){.list = NULL};
}
