/* contents.c - lists a lock's directory, and reads its nodes. */
#include "contents.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- nodes ---- */

static struct reader
reader_of(const char *part, const char **names, size_t n)
{
	return (struct reader){ASK_GET, .part = part, .names = names, .n = n};
}

void
reader_ask(struct reader *r, const struct lockdir *d)
{
	/* lists may be long */
	size_t ahead = r->what == ASK_LIST ? READ_AHEAD / 4 : READ_AHEAD;

	for (; r->asked < r->n && r->asked < r->given + ahead; r->asked++)
		r->calls[r->asked % READ_AHEAD] = lockdir_ask(
		    d, r->what, r->part, r->names[r->asked]);
}

const char *
reader_next(struct reader *r, const struct lockdir *d, struct call **c)
{
	reader_ask(r, d);
	if (r->given == r->n)
		return NULL;
	*c = r->calls[r->given % READ_AHEAD];
	return r->names[r->given++];
}

void
reader_end(struct reader *r)
{
	for (; r->given < r->asked; r->given++)
		call_drop(r->calls[r->given % READ_AHEAD]);
}

/* ---- the list ---- */

void
contents_begin(
    struct contents *c, const struct lockdir *d, const char *path, instant until)
{
	*c = (struct contents){.dir = *d, .until = until};
	if (path)
		snprintf(c->dir.path, sizeof c->dir.path, "%s", path);
	c->list = lockdir_ask(&c->dir, d->layout->single ? ASK_GET : ASK_LIST, "", NULL);
}

enum rc
contents_list(struct contents *c, const char *owner, bool *there, struct fault *f)
{
	struct call *list = c->list;
	struct reader *r = &c->reader;
	size_t n;
	enum rc rc = call_await(list, c->until, f);

	*there = rc == RC_OK && list->code == ZOK;
	if (!*there || c->dir.layout->single)
		return rc;
	*there = queue_look(
	    &c->place, &(struct queue){c->dir.layout, list->names, list->nnames}, "");
	if (!*there)
		return fault_set(f, RC_SYSTEM, "out of memory");
	n = c->place.holders.n;
	*r = reader_of("", list->names, owner ? 0 : n);
	for (size_t i = 0; owner && i < n; i++) {
		struct child child = layout_read(c->dir.layout, r->names[i]);

		if (child_has_owner(&child, owner))
			r->names[r->n++] = r->names[i];
	}
	if (owner)
		c->place.n = r->n;
	reader_ask(r, &c->dir);
	return RC_OK;
}

/* ---- semaphores ---- */

int
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

const char *
contents_seat(const struct contents *c, const char *name)
{
	const char **seat = c->seats > 0 ? bsearch(name, c->lists.of[LEASES]->names,
					       c->seats, sizeof seat, compare_uuid)
					 : NULL;

	return seat ? *seat : NULL;
}

/* Puts dlocks' first, and gives how many these are; others' come in the order of their numbers. */
static size_t
sort_seats(const struct layout *l, struct call *list)
{
	size_t ours = 0, n = 0;

	for (size_t i = 0; i < list->nnames; i++) {
		const char *name = list->names[i];
		struct child child = layout_read(l, name);

		if (child.what == CHILD_FREEZE || strlen(name) >= NAME_BYTES)
			continue;
		list->names[i] = list->names[n];
		list->names[n++] = name;
		if (!child.owner)
			continue;
		list->names[n - 1] = list->names[ours];
		list->names[ours++] = name;
	}
	list->nnames = n;
	if (n > 0) {
		qsort(list->names, ours, sizeof *list->names, compare_names);
		qsort(list->names + ours, n - ours, sizeof *list->names, compare_numbers);
	}
	return ours;
}

enum rc
contents_judge(struct contents *c, bool freeze, int64_t now, struct fault *f)
{
	const struct call *list = c->list;
	enum rc rc = RC_OK;

	if (freeze && c->place.freeze)
		rc = freeze_look(&c->freeze, &c->dir, "", list->names + c->place.n,
		    list->nnames - c->place.n, now, false, c->until, f);
	if (rc != RC_OK || !c->place.semaphore)
		return rc;
	lists_ask(&c->lists, &c->dir, SLOTS);
	rc = lists_await(&c->lists, c->until, NULL, f);
	if (rc != RC_OK)
		return rc;
	c->seats = sort_seats(c->dir.layout, c->lists.of[LEASES]);
	c->queued = sort_seats(c->dir.layout, c->lists.of[LOCKS]);
	return RC_OK;
}

/* ---- who holds it, and who does not ---- */

static bool
is_holder(const struct contents *c, const struct member *m)
{
	bool permit = layout_read(c->dir.layout, m->name).kind == KIND_LIMIT;

	if (permit && !contents_seat(c, m->name))
		return false;
	return !m->node || permit || freeze_leaves(&c->freeze, m->node);
}

static bool
has_place(struct contents *c, const char *name)
{
	if (layout_read(c->dir.layout, name).what != CHILD_FOREIGN &&
	    strlen(name) < NAME_BYTES)
		return true;
	c->odd.first = c->odd.first ? c->odd.first : name;
	c->odd.n++;
	return false;
}

/* In that part of it: those that are no dlocks'. */
static struct reader
others_in(const struct contents *c, enum part part, size_t from)
{
	struct call *list = c->lists.of[part];

	return list && list->nnames > from
	    ? reader_of(parts[part], list->names + from, list->nnames - from)
	    : (struct reader){.n = 0};
}

static void
next_step(struct contents *c)
{
	const char **names = c->list->names;

	switch (++c->step) {
	case READS_LEASES:
		for (size_t i = c->reader.n; i < c->place.n; i++)
			if (has_place(c, names[i]))
				names[c->rest++] = names[i];
		c->waiting = c->rest + others_in(c, LOCKS, c->queued).n;
		c->reader = others_in(c, LEASES, c->seats);
		break;
	case READS_LOCKS:
		c->reader = others_in(c, LOCKS, c->queued);
		break;
	default:
		c->reader = reader_of("", names, c->rest);
	}
}

enum rc
contents_next(struct contents *c, bool holder, struct member *m, struct fault *f)
{
	for (;;) {
		enum rc rc;

		call_drop(c->current);
		c->current = NULL;
		*m = (struct member){.part = c->reader.part};
		m->name = reader_next(&c->reader, &c->dir, &c->current);
		if (!m->name && c->step == (holder ? READS_LEASES : READS_REST))
			return RC_DONE;
		if (!m->name) {
			next_step(c);
			continue;
		}
		rc = call_await(c->current, c->until, f);
		/* NOLINTNEXTLINE(clang-analyzer-core.*): call_await() is not RC_OK of NULL */
		if (rc == RC_OK && c->current->code != ZOK)
			continue; /* it is gone */
		if (rc == RC_OK)
			m->node = c->current;
		else if (rc != RC_DENIED)
			return rc;
		if (c->step == READS_FIRST && !has_place(c, m->name))
			continue;
		if (c->step != READS_FIRST || is_holder(c, m))
			return RC_OK;
		c->list->names[c->rest++] = m->name;
	}
}

void
contents_end(struct contents *c)
{
	reader_end(&c->reader);
	call_drop(c->current);
	call_drop(c->list);
	lists_drop(&c->lists);
	*c = (struct contents){.list = NULL};
}
