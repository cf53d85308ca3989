/*
 * queue.c - orders the children of a lock directory, and says who of them holds the
 * lock.
 */
#include "queue.h"

#include <stdlib.h>
#include <string.h>

static struct child
child_at(const struct queue *q, size_t i)
{
	return layout_read(q->layout, q->names[i]);
}

static bool
is_nobodys(const struct child *e)
{
	return e->what == CHILD_PART || e->what == CHILD_FREEZE;
}

/* Those who have no place stand behind all. */
static bool
stands_before(const struct child *a, const struct child *b)
{
	int order;

	if (a->blind != b->blind)
		return b->blind;
	order = strcmp(a->rank, b->rank);
	return order < 0 || (order == 0 && strcmp(a->name, b->name) < 0);
}

/* Can they hold the lock together? */
static bool
is_alike(const struct child *a, const struct child *b)
{
	return !kind_is_exclusive(a->kind) && a->kind == b->kind && a->limit == b->limit;
}

/* ---- strangers ---- */

bool
queue_is_strange(const struct layout *l, const char *name)
{
	struct child e = layout_read(l, name), other;

	return e.what == CHILD_FOREIGN && !e.owner && !layout_of(name, &other);
}

/*
 * Users of each recipe see nodes of their own.  A dlock that has come after us in another layout
 * has seen our node, as it lists after it has made its own, and goes.
 */
static bool
is_of_other_recipe(const struct layout *l, const struct child *e, const struct child *own)
{
	struct child other;
	bool leaves = e->blind && own->rank != own->name && layout_of(e->name, &other) &&
	    other.owner && strcmp(other.rank, own->rank) > 0;

	if (e->blind)
		return !queue_is_strange(l, e->name) && !leaves;
	if (!l->recipes || e->owner || e->rank == e->name || e->kind == KIND_LIMIT)
		return false;
	if (e->kind == KIND_SHARED || e->kind == KIND_WRITER)
		return own->kind == KIND_EXCLUSIVE || own->kind == KIND_LIMIT;
	return own->kind != KIND_EXCLUSIVE;
}

/* "...lock-2147483647", "...lock--2147483648" */
static bool
is_exhausted(const struct child *e)
{
	const char *number = e->rank;

	if (number == e->name)
		return false;
	return strcmp(number, "2147483647") == 0 ||
	    (number[0] == '-' && number[1] >= '0' && number[1] <= '9');
}

/* Looks at each name for itself. */
static void
look_at_each(struct place *p, const struct queue *q, const struct child *own)
{
	for (size_t i = 0; i < q->n; i++) {
		struct child e = child_at(q, i);

		if (e.what == CHILD_PART && strcmp(q->names[i], "slots") != 0)
			p->semaphore = true;
		if (e.what == CHILD_FREEZE)
			p->freeze = q->names[i];
		if (is_nobodys(&e))
			continue;
		if (strcmp(q->names[i], own->name) == 0)
			p->found = true;
		else if (!p->foreign && is_of_other_recipe(q->layout, &e, own))
			p->foreign = q->names[i];
		else if (e.blind && queue_is_strange(q->layout, q->names[i]))
			p->strange = true;
		if (!p->exhausted && is_exhausted(&e))
			p->exhausted = q->names[i];
	}
}

/* ---- places ---- */

static int
compare(const void *a, const void *b)
{
	return stands_before(a, b) ? -1 : stands_before(b, a);
}

/*
 * All but those that are nobody's, in order, and how many these are; NULL: there is no memory.
 * The names are put into the same order, and what is nobody's behind them.
 */
static struct child *
put_into_order(const struct queue *q, size_t *n)
{
	struct child *all = calloc(q->n + 1, sizeof *all);
	size_t rest = q->n;

	*n = 0;
	for (size_t i = 0; all && i < rest;) {
		struct child e = child_at(q, i);

		if (is_nobodys(&e)) {
			q->names[i] = q->names[--rest];
			q->names[rest] = e.name;
		} else {
			all[i++] = e;
			*n = i;
		}
	}
	if (*n > 1)
		qsort(all, *n, sizeof *all, compare);
	for (size_t i = 0; i < *n; i++)
		q->names[i] = all[i].name;
	return all;
}

static void
count_holders(struct holders *h, const struct child *all, size_t n)
{
	const struct child *first = all;

	*h = (struct holders){.n = 0};
	if (n == 0)
		return;
	*h = (struct holders){1, first->name, first->kind, first->limit};
	while (h->n < n && is_alike(&all[h->n], first))
		h->n++;
	if (first->kind == KIND_LIMIT && h->n > first->limit)
		h->n = first->limit;
}

/*
 * Whom we wait for, of so many before us.  A permit that is too far behind to be granted when the
 * last one ends that conflicts with it waits for the permit before it to be granted; the next one
 * in line waits for any holder.
 */
static void
choose_ahead(struct place *p, const struct child *all, const struct child *own)
{
	size_t others = p->before, permits;

	while (others > 0 && is_alike(&all[others - 1], own))
		others--;
	permits = p->before - others;
	p->awaits = AWAITS_END;
	p->ahead = others > 0 ? all[others - 1].name : NULL;
	if (own->kind == KIND_LIMIT && permits >= own->limit) {
		bool next = others == 0 && permits == own->limit;

		p->awaits = next ? AWAITS_LIST : AWAITS_CHANGE;
		p->ahead = next ? NULL : all[p->before - 1].name;
	}
}

bool
queue_look(struct place *ret, const struct queue *q, const char *name)
{
	struct child own = layout_read(q->layout, name);
	size_t n, first = 0;
	struct child *all = put_into_order(q, &n);

	*ret = (struct place){.n = n};
	if (!all)
		return false;
	look_at_each(ret, q, &own);
	count_holders(&ret->holders, all, n);
	while (ret->before < n && stands_before(&all[ret->before], &own))
		ret->before++;
	if (ret->before >= ret->holders.n)
		ret->position = ret->before - ret->holders.n + 1;
	if (ret->before > 0 && ret->position > 0)
		choose_ahead(ret, all, &own);
	/* the first before us that is not exclusive says what this key is now */
	while (first < ret->before && kind_is_exclusive(all[first].kind))
		first++;
	if (!kind_is_exclusive(own.kind) && first < ret->before &&
	    !is_alike(&all[first], &own))
		ret->other = all[first].name;
	free(all);
	return true;
}

void
queue_hold_back(struct place *p, const char *ahead, enum awaits awaits)
{
	if (p->position > 0)
		return;
	p->position = 1;
	p->ahead = ahead;
	p->awaits = awaits;
}

const char *
queue_next_holder(const struct holders *h, const struct queue *q, const char *name)
{
	struct child last = layout_read(q->layout, name);

	for (size_t i = 0; i < h->n && i < q->n; i++) {
		struct child e = child_at(q, i);

		if (!*name || stands_before(&last, &e))
			return e.name;
	}
	return NULL;
}
