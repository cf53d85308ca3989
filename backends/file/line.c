/*
 * line.c - reads the line on a lock file, from the kernel and the file, for people.
 */
#include "line.h"

#include "place.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>

enum {
	TRIES = 20,   /* at a moment in which nothing is granted */
	COUNTED = 32, /* places further back than this are reckoned from the numbers, */
	NEAR = 1,     /* unless fewer than so many are before us */
};

bool
line_is_used(int fd)
{
	return place_any(fd, ALONE, READERS) > 0;
}

/* ---- for people: who holds ---- */

static bool
add_holder(struct line *l, struct line_holder h)
{
	struct line_holder *more = realloc(l->holders, (l->n + 1) * sizeof *more);

	if (!more)
		return false;
	l->holders = more;
	l->holders[l->n++] = h;
	return true;
}

/*
 * Nobody is before who has locked this byte: adds him, unless he only waits.  One of
 * whom nothing is written holds the lock, since he could; but not if it is frozen.
 */
static bool
add_first(struct line *l, int64_t byte)
{
	struct line_holder h = {.byte = byte, .at = -1};
	struct block who;

	if (RANGE_OF(byte) != ALONE) {
		off_t at = block_find(l->fd, byte, &who);

		if (at && who.token > 0)
			h = (struct line_holder){byte, at, who.token, false};
		else if (at || l->frozen)
			return true;
	} else if (l->header.byte == byte || (l->header.byte == META && !l->frozen)) {
		h = (struct line_holder){byte, BLOCK_HEADER, l->header.token, false};
	} else {
		return true;
	}
	return add_holder(l, h);
}

/* Each dlock locks one byte: who has several side by side is none, but keeps us out. */
static bool
is_stranger(struct span s)
{
	return s.to - s.from > 1;
}

/* Once, however many of our ranges he has. */
static bool
add_foreign(struct line *l)
{
	for (size_t i = 0; i < l->n; i++)
		if (l->holders[i].foreign)
			return true;
	return add_holder(
	    l, (struct line_holder){.byte = BYTE(ALONE, 0), .at = -1, .foreign = true});
}

static bool
add_all(struct line *l, enum range r, int64_t from, int64_t below)
{
	struct span s;

	for (; l->n <= l->most && tickets_next(l->fd, numbers(r, from, below), &s);
	     from = NUMBER_OF(s.to - 1) + 1)
		if (!(is_stranger(s) ? add_foreign(l) : add_first(l, s.from)))
			return false;
	return true;
}

/* By the rules of place.h: what is before the first exclusive ticket, or that one. */
static bool
find_holders(struct line *l)
{
	struct span alone, other;
	bool any = tickets_next(l->fd, numbers(ALONE, 1, l->end), &alone);
	int64_t below = any ? NUMBER_OF(alone.from) : l->end;

	l->n = 0;
	if (!l->plain &&
	    (!add_all(l, PERMITS, 0, LIMIT_MAX) || !add_all(l, READERS, 1, below)))
		return false;
	if (any && is_stranger(alone))
		return add_foreign(l);
	if (!any || l->n > 0 ||
	    (!l->plain && tickets_next(l->fd, numbers(LIMITED, 1, below), &other)))
		return true;
	return add_first(l, alone.from);
}

static int
by_token(const void *a, const void *b)
{
	const struct line_holder *x = a, *y = b;

	return (x->token > y->token) - (x->token < y->token);
}

int
line_read(struct line *l, int fd, int64_t ticket, bool plain, int64_t now_us)
{
	int64_t token, freeze;
	int got, tries = 0;

	*l = (struct line){.fd = fd,
	    .end = ticket > 0 ? ticket : NUMBER_LIMIT,
	    .most = ticket == TICKET_OF_A_LOOK ? SIZE_MAX : LINE_HOLDERS,
	    .plain = plain};
	got = block_read(fd, BLOCK_HEADER, &l->header);
	do {
		if (got <= 0)
			return got;
		l->frozen = block_is_frozen(fd, &l->header, now_us, &l->freeze);
		l->used = plain || line_is_used(fd);
		errno = ENOMEM;
		if (l->used && !find_holders(l))
			return -1;
		token = l->header.token;
		freeze = l->header.freeze;
		got = l->used ? block_read(fd, BLOCK_HEADER, &l->header) : 1;
	} while (
	    (l->header.token != token || l->header.freeze != freeze) && ++tries < TRIES);
	if (l->used && !plain)
		(void)place_limit(fd, 1, LIMIT_MAX, &l->limit);
	if (l->n > 1)
		qsort(l->holders, l->n, sizeof *l->holders, by_token);
	return got;
}

void
line_free(struct line *l)
{
	free(l->holders);
	l->holders = NULL;
}

/* By now his block may be that of another one. */
void
line_who(const struct line *l, const struct line_holder *h, struct block *who)
{
	*who = h->at == BLOCK_HEADER ? l->header : (struct block){.next = 1};
	if (h->at > 0 && (block_read(l->fd, h->at, who) != 1 || who->token != h->token))
		*who = (struct block){.next = 1, .token = h->token};
}

/* ---- for people: who waits ---- */

static bool
holds_byte(const struct line *l, int64_t byte)
{
	for (size_t i = 0; i < l->n; i++)
		if (l->holders[i].byte == byte)
			return true;
	return false;
}

/* The next one in this range; NUMBER_LIMIT: there is none. */
static void
find_waiter(const struct line *l, enum range r, struct span *next)
{
	int64_t from = next->to > 0 ? next->to : 1;
	struct span s;

	for (; tickets_next(l->fd, numbers(r, from, l->end), &s);
	     from = NUMBER_OF(s.to - 1) + 1)
		if (!is_stranger(s) && !holds_byte(l, s.from)) {
			*next = (struct span){NUMBER_OF(s.from), NUMBER_OF(s.to - 1) + 1};
			return;
		}
	*next = (struct span){NUMBER_LIMIT, NUMBER_LIMIT};
}

bool
line_wait(const struct line *l, struct line_waiter *w)
{
	static const enum range lines[] = {ALONE, LIMITED, READERS};
	enum range first = ALONE;

	for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
		enum range r = lines[i];

		if (l->plain && r != ALONE)
			w->next[r].from = NUMBER_LIMIT;
		else if (w->position == 0 || RANGE_OF(w->byte) == r)
			find_waiter(l, r, &w->next[r]);
		if (w->next[r].from < w->next[first].from)
			first = r;
	}
	if (w->next[first].from >= NUMBER_LIMIT)
		return false;
	w->byte = BYTE(first, w->next[first].from);
	w->position++;
	return true;
}

/*
 * Behind many it is reckoned from the number of the holder, or of the first who waits.  But many
 * numbers may be of those who have left: who is next is told so.
 */
unsigned
line_position(const struct line *l, int64_t *first)
{
	struct line_waiter w = {.position = 0};
	const struct line_holder *h = l->n == 1 ? l->holders : NULL;
	int64_t behind = h && RANGE_OF(h->byte) == ALONE && !h->foreign
	    ? l->end - NUMBER_OF(h->byte) - 1
	    : 0;
	bool more = true;

	*first = 0;
	while (more && (behind <= COUNTED || w.position < NEAR)) {
		more = line_wait(l, &w);
		if (more && w.position == 1) {
			*first = w.byte;
			behind = l->end - NUMBER_OF(w.byte);
		}
	}
	if (!more)
		return w.position + 1;
	return behind < 1000000 ? (unsigned)behind + 1 : 0;
}

enum lock_kind
line_kind(int64_t byte)
{
	enum range r = RANGE_OF(byte);

	return r == READERS ? KIND_SHARED : r == ALONE ? KIND_EXCLUSIVE : KIND_LIMIT;
}
