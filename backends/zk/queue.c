/*
 * queue.c - orders the children of a lock directory, and says who of them holds the
 * lock.
 */
#include "queue.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

enum {
	NUMBER = 10,
	VERSION_AT = 17, /* in "_c_01234567-0123-d" */
	RANDOM = 16,     /* digits in the name of a freeze */
	LENGTH_DIGITS = 12,
};

static const char *const tags[] = {"lock-", "unit-", "__READ__", "__WRIT__"};

enum { TAGS = sizeof tags / sizeof *tags };

/* One child. */
struct queued {
	const char *name; /* NULL: there is none */
	const char *rank; /* what counts of the name for the order */
	enum lock_kind kind;
	unsigned limit;
};

static const struct queued nobody = {.name = NULL};

static bool
ends_with(const char *start, const char *end, const char *tag)
{
	size_t n = strlen(tag);

	return (size_t)(end - start) >= n && memcmp(end - n, tag, n) == 0;
}

static bool
is_after_tag(const char *name, const char *s)
{
	for (size_t i = 0; i < TAGS; i++)
		if (ends_with(name, s, tags[i]))
			return true;
	return false;
}

/* What follows the last tag; mostly a number of ten digits. */
static const char *
rank(const char *name)
{
	size_t n = strlen(name);
	const char *s = n > NUMBER ? name + n - NUMBER : name;

	if (strspn(s, "0123456789") == NUMBER && is_after_tag(name, s))
		return s;
	for (s = name + n; s > name; s--)
		if (is_after_tag(name, s))
			return s;
	return name;
}

bool
queue_is_dlocks(const char *name)
{
	return strncmp(name, "_c_", 3) == 0 && strnlen(name, VERSION_AT) == VERSION_AT &&
	    name[VERSION_AT] == 'd';
}

/* The N of "...-N-unit-"; 0: it is none. */
static unsigned
limit_before(const char *name, const char *end)
{
	const char *s = end - strlen("-unit-");
	unsigned limit = 0, place = 1;

	if (!ends_with(name, end, "-unit-"))
		return 0;
	for (; s > name && isdigit((unsigned char)s[-1]) && place <= LIMIT_MAX;
	     place *= 10)
		limit += (*--s - '0') * place;
	return s > name && s[-1] == '-' && limit <= LIMIT_MAX ? limit : 0;
}

static struct queued
queued_of(const char *name)
{
	struct queued e = {.name = name, .rank = rank(name), .kind = KIND_EXCLUSIVE};

	if (ends_with(name, e.rank, "__READ__"))
		e.kind = KIND_SHARED;
	else if (ends_with(name, e.rank, "__WRIT__"))
		e.kind = KIND_WRITER;
	else if ((e.limit = limit_before(name, e.rank)) > 0)
		e.kind = KIND_LIMIT;
	return e;
}

enum lock_kind
queue_kind(const char *name, unsigned *limit)
{
	struct queued e = queued_of(name);

	*limit = e.limit;
	return e.kind;
}

static bool
stands_before(const struct queued *a, const struct queued *b)
{
	int order = strcmp(a->rank, b->rank);

	return order < 0 || (order == 0 && strcmp(a->name, b->name) < 0);
}

/* Can they hold the lock together? */
static bool
is_alike(const struct queued *a, const struct queued *b)
{
	return !kind_is_exclusive(a->kind) && a->kind == b->kind && a->limit == b->limit;
}

/* ---- strangers ---- */

/* kazoo's locks see no others'; of Curator's recipes each sees its own tags only. */
static bool
is_foreign(const struct queued *e, enum lock_kind own)
{
	bool tagged = e->rank != e->name;

	if (strstr(e->name, "__lock__") || strstr(e->name, "__rlock__"))
		return true;
	if (queue_is_dlocks(e->name) || !tagged || e->kind == KIND_LIMIT)
		return false;
	if (e->kind == KIND_SHARED || e->kind == KIND_WRITER)
		return own == KIND_EXCLUSIVE || own == KIND_LIMIT;
	return own != KIND_EXCLUSIVE;
}

/* "...lock-2147483647", "...lock--2147483648" */
static bool
is_exhausted(const struct queued *e)
{
	const char *number = e->rank;

	if (number == e->name)
		return false;
	return strcmp(number, "2147483647") == 0 ||
	    (number[0] == '-' && number[1] >= '0' && number[1] <= '9');
}

static bool
is_part_of_semaphore(const char *name)
{
	return strcmp(name, "locks") == 0 || strcmp(name, "leases") == 0;
}

int64_t
queue_freeze_length(const char *name)
{
	const char *s = name + strlen(FREEZE);
	size_t digits;

	if (strncmp(name, FREEZE, strlen(FREEZE)) != 0 ||
	    strspn(s, "0123456789abcdef") != RANDOM || s[RANDOM] != '-')
		return 0;
	s += RANDOM + 1;
	if (strcmp(s, "inf" FREEZE_END) == 0)
		return NEVER;
	digits = strspn(s, "0123456789");
	if (digits == 0 || digits > LENGTH_DIGITS || strcmp(s + digits, FREEZE_END) != 0)
		return 0;
	return strtoll(s, NULL, 10) * NS_PER_MS;
}

static bool
is_nobodys(const char *name)
{
	return is_part_of_semaphore(name) || strcmp(name, "slots") == 0 ||
	    queue_freeze_length(name) > 0;
}

/* Looks at each name for itself; finds the first of all. */
static struct queued
look_at_each(
    struct place *p, const char *const *names, size_t n, const struct queued *own)
{
	struct queued first = nobody;

	for (size_t i = 0; i < n; i++) {
		struct queued e = queued_of(names[i]);

		p->semaphore = p->semaphore || is_part_of_semaphore(names[i]);
		if (queue_freeze_length(names[i]) > 0)
			p->freeze = names[i];
		if (is_nobodys(names[i]))
			continue;
		if (strcmp(names[i], own->name) == 0)
			p->found = true;
		else if (!p->foreign && is_foreign(&e, own->kind))
			p->foreign = names[i];
		if (!p->exhausted && is_exhausted(&e))
			p->exhausted = names[i];
		if (!first.name || stands_before(&e, &first))
			first = e;
	}
	return first;
}

/* ---- places ---- */

/* The first one that cannot hold it together with the first of all. */
static struct queued
find_end_of_holders(const char *const *names, size_t n, const struct queued *first)
{
	struct queued end = nobody;

	for (size_t i = 0; i < n; i++) {
		struct queued e = queued_of(names[i]);

		if (!is_nobodys(e.name) && e.name != first->name &&
		    !is_alike(&e, first) && (!end.name || stands_before(&e, &end)))
			end = e;
	}
	return end;
}

/*
 * How many stand from one (NULL: the first), which does not count, to the other, which
 * neither does (NULL: the last).
 */
static size_t
count_between(const char *const *names, size_t n, const struct queued *from,
    const struct queued *to)
{
	size_t count = 0;

	for (size_t i = 0; i < n; i++) {
		struct queued e = queued_of(names[i]);

		if (!is_nobodys(e.name) && (!from->name || stands_before(from, &e)) &&
		    (!to->name || stands_before(&e, to)))
			count++;
	}
	return count;
}

static void
count_holders(
    struct place *p, const char *const *names, size_t n, const struct queued *first)
{
	struct queued end;

	p->first = first->name;
	p->kind = first->kind;
	p->limit = first->limit;
	p->holders = first->name ? 1 : 0;
	if (!first->name || kind_is_exclusive(first->kind))
		return;
	end = find_end_of_holders(names, n, first);
	p->holders = count_between(names, n, &nobody, &end);
	if (first->kind == KIND_LIMIT && p->holders > first->limit)
		p->holders = first->limit;
}

/*
 * The last one before us that we cannot hold it together with; with `any`, the last one
 * before us.
 */
static struct queued
find_ahead(const char *const *names, size_t n, const struct queued *own, bool any)
{
	struct queued ahead = nobody;

	for (size_t i = 0; i < n; i++) {
		struct queued e = queued_of(names[i]);

		if (!is_nobodys(e.name) && stands_before(&e, own) &&
		    (any || !is_alike(&e, own)) &&
		    (!ahead.name || stands_before(&ahead, &e)))
			ahead = e;
	}
	return ahead;
}

/*
 * Whom we wait for.  A unit that is too far behind to be granted when the last one ends
 * that conflicts with it waits for the unit before it to be granted; the next one in line
 * waits for any holder.
 */
static void
choose_ahead(
    struct place *p, const char *const *names, size_t n, const struct queued *own)
{
	struct queued ahead = find_ahead(names, n, own, false);
	size_t units = own->kind == KIND_LIMIT ? count_between(names, n, &ahead, own) : 0;

	p->awaits = AWAITS_END;
	if (own->kind == KIND_LIMIT && units >= own->limit) {
		bool next = !ahead.name && units == own->limit;

		p->awaits = next ? AWAITS_LIST : AWAITS_CHANGE;
		ahead = next ? nobody : find_ahead(names, n, own, true);
	}
	p->ahead = ahead.name;
}

/* The first before us that is not exclusive says what this key is now. */
static const char *
find_other(const char *const *names, size_t n, const struct queued *own)
{
	struct queued first = nobody;

	for (size_t i = 0; i < n && !kind_is_exclusive(own->kind); i++) {
		struct queued e = queued_of(names[i]);

		if (!kind_is_exclusive(e.kind) && stands_before(&e, own) &&
		    (!first.name || stands_before(&e, &first)))
			first = e;
	}
	return first.name && !is_alike(&first, own) ? first.name : NULL;
}

void
queue_look(struct place *ret, const char *const *names, size_t n, const char *name)
{
	struct queued own = queued_of(name), first;
	size_t before;

	*ret = (struct place){.found = false};
	first = look_at_each(ret, names, n, &own);
	count_holders(ret, names, n, &first);
	ret->before = before = count_between(names, n, &nobody, &own);
	ret->position = before < ret->holders ? 0 : before - ret->holders + 1;
	if (before == 0)
		return;
	if (ret->position > 0)
		choose_ahead(ret, names, n, &own);
	ret->other = find_other(names, n, &own);
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

enum child
queue_child(const char *name)
{
	struct queued e = queued_of(name);

	if (queue_freeze_length(name) > 0)
		return CHILD_FREEZE;
	if (is_nobodys(name))
		return CHILD_PART;
	if (strstr(name, "__lock__") || strstr(name, "__rlock__") || e.rank == e.name)
		return CHILD_FOREIGN;
	return queue_is_dlocks(name) ? CHILD_DLOCKS : CHILD_CURATORS;
}

static int
compare(const void *a, const void *b)
{
	const struct queued x = queued_of(*(const char *const *)a),
			    y = queued_of(*(const char *const *)b);

	return stands_before(&x, &y) ? -1 : stands_before(&y, &x);
}

size_t
queue_sort(const char **names, size_t n)
{
	size_t kept = 0;

	for (size_t i = 0; i < n; i++)
		if (!is_nobodys(names[i]))
			names[kept++] = names[i];
	qsort(names, kept, sizeof *names, compare);
	return kept;
}

const char *
queue_next_holder(
    const struct place *p, const char *const *names, size_t n, const char *name)
{
	struct queued last = *name ? queued_of(name) : nobody, next = nobody;

	for (size_t i = 0; i < n; i++) {
		struct queued e = queued_of(names[i]);

		if (!is_nobodys(e.name) && (!last.name || stands_before(&last, &e)) &&
		    (!next.name || stands_before(&e, &next)))
			next = e;
	}
	return next.name && count_between(names, n, &nobody, &next) < p->holders
	    ? next.name
	    : NULL;
}
