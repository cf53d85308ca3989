/*
 * queue.c - orders the children of a lock directory, and says who of them holds the
 * lock.
 */
#include "queue.h"

#include <stdlib.h>
#include <string.h>

static const struct child nobody = {.name = NULL};

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

/* Looks at each name for itself; finds the first of all. */
static struct child
look_at_each(struct place *p, const struct queue *q, const struct child *own)
{
	struct child first = nobody;

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
		if (!first.name || stands_before(&e, &first))
			first = e;
	}
	return first;
}

/* ---- places ---- */

/* Neither of them counts; nobody: there is no such bound. */
static bool
stands_between(const struct child *from, const struct child *e, const struct child *to)
{
	return !is_nobodys(e) && (!from->name || stands_before(from, e)) &&
	    (!to->name || stands_before(e, to));
}

static size_t
count_between(const struct queue *q, const struct child *from, const struct child *to)
{
	size_t count = 0;

	for (size_t i = 0; i < q->n; i++) {
		struct child e = child_at(q, i);

		count += stands_between(from, &e, to);
	}
	return count;
}

/* The first or the last one between them that cannot hold it together with `unlike`. */
static struct child
find_between(const struct queue *q, bool last, const struct child *from,
    const struct child *to, const struct child *unlike)
{
	struct child found = nobody;

	for (size_t i = 0; i < q->n; i++) {
		struct child e = child_at(q, i);

		if (!stands_between(from, &e, to) ||
		    (unlike->name && is_alike(&e, unlike)))
			continue;
		if (!found.name || stands_before(last ? &found : &e, last ? &e : &found))
			found = e;
	}
	return found;
}

static void
count_holders(struct holders *h, const struct queue *q, const struct child *first)
{
	struct child end;

	*h = (struct holders){
	    first->name ? 1 : 0, first->name, first->kind, first->limit};
	if (!first->name || kind_is_exclusive(first->kind))
		return;
	end = find_between(q, false, &nobody, &nobody, first);
	h->n = count_between(q, &nobody, &end);
	if (first->kind == KIND_LIMIT && h->n > first->limit)
		h->n = first->limit;
}

/*
 * Whom we wait for.  A permit that is too far behind to be granted when the last one ends
 * that conflicts with it waits for the permit before it to be granted; the next one in line
 * waits for any holder.
 */
static void
choose_ahead(struct place *p, const struct queue *q, const struct child *own)
{
	struct child ahead = find_between(q, true, &nobody, own, own);
	size_t permits = own->kind == KIND_LIMIT ? count_between(q, &ahead, own) : 0;

	p->awaits = AWAITS_END;
	if (own->kind == KIND_LIMIT && permits >= own->limit) {
		bool next = !ahead.name && permits == own->limit;

		p->awaits = next ? AWAITS_LIST : AWAITS_CHANGE;
		ahead = next ? nobody : find_between(q, true, &nobody, own, &nobody);
	}
	p->ahead = ahead.name;
}

/* The first before us that is not exclusive says what this key is now. */
static const char *
find_other(const struct queue *q, const struct child *own)
{
	struct child first = nobody;

	for (size_t i = 0; i < q->n && !kind_is_exclusive(own->kind); i++) {
		struct child e = child_at(q, i);

		if (!kind_is_exclusive(e.kind) && stands_before(&e, own) &&
		    (!first.name || stands_before(&e, &first)))
			first = e;
	}
	return first.name && !is_alike(&first, own) ? first.name : NULL;
}

void
queue_look(struct place *ret, const struct queue *q, const char *name)
{
	struct child own = layout_read(q->layout, name), first;
	size_t before;

	*ret = (struct place){.found = false};
	first = look_at_each(ret, q, &own);
	count_holders(&ret->holders, q, &first);
	ret->before = before = count_between(q, &nobody, &own);
	ret->position = before < ret->holders.n ? 0 : before - ret->holders.n + 1;
	if (before == 0)
		return;
	if (ret->position > 0)
		choose_ahead(ret, q, &own);
	ret->other = find_other(q, &own);
}

void
queue_hold_back(struct place *p, const char *freeze)
{
	if (p->position > 0)
		return;
	p->position = 1;
	p->ahead = freeze;
	p->awaits = AWAITS_END;
}

/* ---- all of them ---- */

static int
compare(const void *a, const void *b, void *layout)
{
	const struct child x = layout_read(layout, *(const char *const *)a),
			   y = layout_read(layout, *(const char *const *)b);

	return stands_before(&x, &y) ? -1 : stands_before(&y, &x);
}

size_t
queue_sort(const struct layout *l, const char **names, size_t n)
{
	size_t kept = 0;

	for (size_t i = 0; i < n; i++) {
		struct child e = layout_read(l, names[i]);

		if (is_nobodys(&e))
			continue;
		names[i] = names[kept];
		names[kept++] = e.name;
	}
	if (kept > 0)
		qsort_r(names, kept, sizeof *names, compare, (void *)l);
	return kept;
}

const char *
queue_next_holder(const struct holders *h, const struct queue *q, const char *name)
{
	struct child last = *name ? layout_read(q->layout, name) : nobody;
	struct child next = find_between(q, false, &last, &nobody, &nobody);

	return next.name && count_between(q, &nobody, &next) < h->n ? next.name : NULL;
}
