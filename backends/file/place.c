/*
 * place.c - our place in the line of one file, by the rules of place.h.
 *
 *	place_init()     nothing is locked yet
 *	place_refuses()  the key may be in use by another kind of lock
 *	place_join()     a number, and what is before it; a limited lock may have a permit at once
 *	place_look()     what was waited for is gone: what is before us now?
 *	place_granted()  nothing is before us: we hold it by one byte
 *	place_leave()    all is given back
 */
#include "place.h"

#include <errno.h>
#include <fcntl.h>

/* ---- what is asked for people, too ---- */

int
place_any(int fd, enum range first, enum range last)
{
	struct span all = {BYTE(first, first == ALONE), BYTE(last + 1, 0)}, found;

	return tickets_look(fd, F_RDLCK, all, &found);
}

/* All of a limit have locked it for reading. */
int
place_limit(int fd, unsigned least, unsigned most, unsigned *limit)
{
	struct span found;
	int got = tickets_look(fd, F_WRLCK, numbers(LIMITS, least, most + 1), &found);

	if (got > 0)
		*limit = (unsigned)NUMBER_OF(found.from);
	return got;
}

/* ---- our place ---- */

static const struct span nothing = {0, 0};
static const struct span all_permits = {BYTE(PERMITS, 0), BYTE(PERMITS + 1, 0)};

void
place_init(struct place *p, int fd, enum lock_kind kind, unsigned limit)
{
	*p = (struct place){.fd = fd, .kind = kind, .limit = limit, .permit = -1};
}

int64_t
place_byte(const struct place *p, int64_t number)
{
	return BYTE(p->kind == KIND_SHARED ? READERS
		: p->kind == KIND_LIMIT    ? LIMITED
					   : ALONE,
	    number);
}

bool
place_is_waiting(const struct place *p)
{
	return p->before.from < p->before.to;
}

bool
place_has_joined(const struct place *p)
{
	return p->ticket > 0 || p->permit >= 0;
}

/* ---- joining ---- */

int
place_refuses(struct place *p, enum lock_kind *other, unsigned *limit)
{
	int got;

	if (kind_is_exclusive(p->kind))
		return 0;
	*other = KIND_LIMIT;
	if (p->kind == KIND_SHARED)
		return place_limit(p->fd, 1, LIMIT_MAX, limit);
	got = place_any(p->fd, READERS, READERS);
	if (got != 0)
		*other = KIND_SHARED;
	if (got == 0)
		got = place_limit(p->fd, 1, p->limit - 1, limit);
	if (got == 0)
		got = place_limit(p->fd, p->limit + 1, LIMIT_MAX, limit);
	return got != 0 ? got : tickets_lock(p->fd, F_RDLCK, BYTE(LIMITS, p->limit));
}

/*
 * The last tickets below a number, in the lines that matter; 0 where there is none.  `all`:
 * also in our own line, if it does not matter to us but for the numbers.
 */
static int
find_lasts(
    const struct place *p, bool all, int64_t hint, int64_t below, int64_t last[RANGES])
{
	bool mixed = kind_is_exclusive(p->kind) && !p->plain;
	const bool matters[RANGES] = {
	    [ALONE] = true,
	    [LIMITED] = p->kind == KIND_LIMIT || mixed,
	    [READERS] = (p->kind == KIND_SHARED && all) || mixed,
	};

	for (enum range r = ALONE; r < RANGES; r++) {
		last[r] = matters[r] ? tickets_last(p->fd, BYTE(r, 0), hint, below) : 0;
		if (last[r] < 0)
			return -1;
	}
	return 0;
}

static int
wait_for(struct place *p, struct span s)
{
	p->before = s;
	return 0;
}

int
place_take_permit(struct place *p)
{
	for (unsigned s = 0; s < p->limit; s++) {
		if (tickets_lock(p->fd, F_WRLCK, BYTE(PERMITS, s)) == 0) {
			p->permit = (int)s;
			p->before = nothing;
			p->any = false;
			return 1;
		}
		if (errno != EAGAIN)
			return -1;
	}
	return 0;
}

/* Permits come last: nobody who excludes us has a ticket before ours. */
static int
look_at_permits(struct place *p)
{
	int got;

	if (p->kind == KIND_SHARED || p->plain)
		return 0;
	if (p->kind != KIND_LIMIT) {
		got = place_any(p->fd, PERMITS, PERMITS);
		return got > 0 ? wait_for(p, all_permits) : got;
	}
	got = place_take_permit(p);
	p->any = got == 0;
	return got == 0 ? wait_for(p, numbers(PERMITS, 0, p->limit)) : got < 0 ? -1 : 0;
}

/* Returns the line with the last ticket; unless `all`, only ALONE counts. */
static enum range
latest(const int64_t last[RANGES], bool all)
{
	enum range l = ALONE;

	for (enum range r = ALONE; all && r < RANGES; r++)
		l = last[r] > last[l] ? r : l;
	return l;
}

/* Notes what is before `number`, of which `last` are the last tickets below it. */
static int
set_before(struct place *p, int64_t number, const int64_t last[RANGES])
{
	enum range l = latest(last, p->kind != KIND_SHARED);

	p->before = nothing;
	p->any = false;
	if (last[l] == 0)
		return look_at_permits(p);
	if (l == ALONE || p->kind == KIND_LIMIT)
		return wait_for(p, numbers(l, last[l], last[l] + 1));
	return wait_for(p, numbers(l, last[ALONE] + 1, number));
}

/* Where the file is idle, that is one question. */
int64_t
place_join(struct place *p, int64_t hint)
{
	bool exclusive = kind_is_exclusive(p->kind);
	int64_t last[RANGES] = {0};
	enum range l;
	int used = place_any(p->fd, ALONE, READERS),
	    mixed = used > 0 && exclusive ? place_any(p->fd, LIMITED, READERS) : 0;

	p->plain = exclusive && mixed == 0;
	if (used < 0 || mixed < 0 ||
	    (used > 0 && find_lasts(p, true, hint, NUMBER_LIMIT, last) != 0))
		return -1;
	l = latest(last, true);
	hint = hint > last[l] ? hint : last[l] + 1;
	if (hint >= NUMBER_LIMIT)
		p->before = numbers(l, last[l], last[l] + 1);
	else if (set_before(p, hint, last) != 0)
		return -1;
	return hint;
}

int
place_look(struct place *p)
{
	int64_t last[RANGES];

	if (find_lasts(p, false, p->ticket, p->ticket, last) != 0)
		return -1;
	return set_before(p, p->ticket, last);
}

int64_t
place_held_byte(const struct place *p)
{
	return p->kind == KIND_LIMIT ? BYTE(PERMITS, p->permit)
				     : place_byte(p, p->ticket);
}

void
place_give_permit_back(struct place *p)
{
	if (p->permit < 0)
		return;
	tickets_unlock(p->fd, numbers(PERMITS, p->permit, p->permit + 1));
	p->permit = -1;
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
		tickets_unlock(p->fd, (struct span){0, 0}); /* no length: all there are */
	if (p->fd >= 0 && p->permit >= 0)
		tickets_wake(p->fd);
	place_init(p, p->fd, p->kind, p->limit);
}
