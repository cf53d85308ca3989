/* place.c - joins the line on a lock file, and says what is before us. */
#include "place.h"

#include <errno.h>
#include <fcntl.h>

#define END BYTE(RANGES, 0)

static const struct span others = {BYTE(LIMITED, 0), END}; /* than exclusive */
static const struct span slots = {BYTE(SLOTS, 0), BYTE(SLOTS, LIMIT_MAX)};

static enum range
line_of(enum lock_kind kind)
{
	return kind == KIND_SHARED ? READERS : kind == KIND_LIMIT ? LIMITED : ALONE;
}

/* Numbers [from, to) of a line. */
static struct span
numbers(enum range l, int64_t from, int64_t to)
{
	return (struct span){BYTE(l, from), BYTE(l, to)};
}

void
place_init(struct place *p, int fd, enum lock_kind kind, unsigned limit)
{
	*p = (struct place){.fd = fd, .kind = kind, .limit = limit, .slot = -1};
}

int64_t
place_byte(const struct place *p, int64_t number)
{
	return BYTE(line_of(p->kind), number);
}

bool
place_is_used(int fd)
{
	struct span found;

	return tickets_look(fd, F_RDLCK, (struct span){1, END}, &found) > 0;
}

/* ---- joining ---- */

/* Somebody's limit in [from, to), which he has locked for reading. */
static int
look_for_limit(const struct place *p, unsigned from, unsigned to, unsigned *limit)
{
	struct span found;
	int got = tickets_look(
	    p->fd, F_WRLCK, (struct span){BYTE(LIMITS, from), BYTE(LIMITS, to)}, &found);

	if (got > 0)
		*limit = (unsigned)NUMBER_OF(found.from);
	return got;
}

int
place_refuses(struct place *p, enum lock_kind *other, unsigned *limit)
{
	struct span found;
	int got;

	if (kind_is_exclusive(p->kind))
		return 0;
	*other = KIND_LIMIT;
	if (p->kind == KIND_SHARED)
		return look_for_limit(p, 1, LIMIT_MAX + 1, limit);
	got = tickets_look(p->fd, F_RDLCK, numbers(READERS, 1, NUMBER_LIMIT), &found);
	if (got != 0)
		*other = KIND_SHARED;
	if (got == 0)
		got = look_for_limit(p, 1, p->limit, limit);
	if (got == 0)
		got = look_for_limit(p, p->limit + 1, LIMIT_MAX + 1, limit);
	return got != 0 ? got : tickets_lock(p->fd, F_RDLCK, BYTE(LIMITS, p->limit));
}

/*
 * The last tickets below a number in the lines that can be before us; a line in which
 * nobody is has 0.
 */
struct lasts {
	int64_t of[RANGES];
};

/* `all`: also in our own, if it does not matter to us but for the numbers. */
static int
find_lasts(
    const struct place *p, bool all, int64_t hint, int64_t below, struct lasts *lasts)
{
	const bool matters[RANGES] = {
	    [ALONE] = true,
	    [LIMITED] = p->kind == KIND_LIMIT ||
		(kind_is_exclusive(p->kind) && !p->plain),
	    [READERS] = (p->kind == KIND_SHARED && all) ||
		(kind_is_exclusive(p->kind) && !p->plain),
	};

	*lasts = (struct lasts){{0}};
	for (enum range l = ALONE; l < RANGES; l++)
		if (matters[l] &&
		    (lasts->of[l] = tickets_last(p->fd, BYTE(l, 0), hint, below)) < 0)
			return -1;
	return 0;
}

static int
wait_for(struct place *p, struct span s)
{
	p->before = s;
	return 0;
}

int
place_take_slot(struct place *p)
{
	for (unsigned s = 0; s < p->limit; s++) {
		if (tickets_lock(p->fd, F_WRLCK, BYTE(SLOTS, s)) == 0) {
			p->slot = (int)s;
			return 1;
		}
		if (errno != EAGAIN)
			return -1;
	}
	return 0;
}

/* Nobody who excludes us has a ticket before ours. */
static int
look_at_slots(struct place *p)
{
	struct span found;
	int got;

	if (p->kind == KIND_LIMIT) {
		got = place_take_slot(p);
		p->any = got == 0;
		return p->any
		    ? wait_for(p, (struct span){BYTE(SLOTS, 0), BYTE(SLOTS, p->limit)})
		    : got < 0 ? -1
			      : 0;
	}
	if (p->kind == KIND_SHARED || p->plain)
		return 0;
	got = tickets_look(p->fd, F_RDLCK, slots, &found);
	return got > 0 ? wait_for(p, slots) : got;
}

/* What is before `number`, if these are the last ones there. */
static int
set_before(struct place *p, int64_t number, const struct lasts *lasts)
{
	const int64_t *last = lasts->of;
	enum range l = ALONE;

	p->before = (struct span){0, 0};
	p->any = false;
	if (p->kind != KIND_SHARED) {
		l = last[LIMITED] > last[l] ? LIMITED : l;
		l = last[READERS] > last[l] ? READERS : l;
	}
	if (last[l] == 0)
		return look_at_slots(p);
	if (l == ALONE || p->kind == KIND_LIMIT)
		return wait_for(p, numbers(l, last[l], last[l] + 1));
	return wait_for(p, numbers(l, last[ALONE] + 1, number));
}

static enum range
latest_line(const struct lasts *lasts)
{
	enum range latest = ALONE;

	for (enum range l = ALONE; l < RANGES; l++)
		latest = lasts->of[l] > lasts->of[latest] ? l : latest;
	return latest;
}

/* Where the file is idle, that is one question. */
int64_t
place_join(struct place *p, int64_t hint)
{
	struct lasts lasts = {{0}};
	struct span found;
	enum range latest;
	int64_t last;
	int used = tickets_look(p->fd, F_RDLCK, (struct span){1, END}, &found), mixed = 0;

	if (used > 0 && kind_is_exclusive(p->kind))
		mixed = tickets_look(p->fd, F_RDLCK, others, &found);
	p->plain = kind_is_exclusive(p->kind) && mixed == 0;
	if (used < 0 || mixed < 0 ||
	    (used > 0 && find_lasts(p, true, hint, NUMBER_LIMIT, &lasts) != 0))
		return -1;
	latest = latest_line(&lasts);
	last = lasts.of[latest];
	hint = hint > last ? hint : last + 1;
	if (hint >= NUMBER_LIMIT)
		return wait_for(p, numbers(latest, last, last + 1)), hint;
	return set_before(p, hint, &lasts) == 0 ? hint : -1;
}

int
place_look(struct place *p)
{
	struct lasts lasts;

	if (find_lasts(p, false, p->ticket, p->ticket, &lasts) != 0)
		return -1;
	return set_before(p, p->ticket, &lasts);
}

int64_t
place_held_byte(const struct place *p)
{
	return p->kind == KIND_LIMIT ? BYTE(SLOTS, p->slot) : place_byte(p, p->ticket);
}

void
place_give_slot_back(struct place *p)
{
	if (p->slot < 0)
		return;
	tickets_unlock(
	    p->fd, (struct span){BYTE(SLOTS, p->slot), BYTE(SLOTS, p->slot + 1)});
	p->slot = -1;
	p->any = false;
	p->before = (struct span){0, 0};
}

void
place_granted(struct place *p)
{
	if (p->kind != KIND_LIMIT || p->ticket == 0)
		return;
	tickets_unlock(p->fd, numbers(LIMITED, p->ticket, p->ticket + 1));
	p->ticket = 0;
}

void
place_leave(struct place *p)
{
	if (p->fd >= 0)
		tickets_unlock_all(p->fd);
	if (p->fd >= 0 && p->slot >= 0)
		tickets_wake(p->fd);
	place_init(p, p->fd, p->kind, p->limit);
}
