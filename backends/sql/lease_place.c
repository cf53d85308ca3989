/* lease_place.c - reads where a claim stands in a queue, and says when to ask again. */
#include "lease_place.h"

#include <string.h>

/* a place, or ms, that a server may tell of: what is reckoned with them fits */
#define BELIEVED INT64_C(1000000000)

/* told by nobody, the first in line asks so often, the second half as often, */
#define POLL (200 * NS_PER_MS)
/* but all well within the 3 s of a grant that nobody tells them of */
#define POLL_MAX (2 * NS_PER_S)
#define A_BIT_LATER 5 /* ms: for the server's clock to be past the end of a lease */

/* ---- what the server says ---- */

bool
lease_place_read_grant(
    struct lease_place *s, const struct claim *claim, const struct row *r)
{
	int64_t slot;

	if (!row_integer(r, ANSWER_TOKEN, 1, INT64_MAX, &s->token) ||
	    !kind_slot(
		r, ANSWER_SLOT, claim->kind == KIND_LIMIT ? claim->limit : 0, &slot))
		return false;
	s->slot = slot < 0 ? 0 : slot;
	return true;
}

bool
lease_place_read_taken(struct lease_place *s, const struct row *r)
{
	*s = (struct lease_place){.jitter = s->jitter};
	if (!row_integer(r, 0, 1, INT64_MAX, &s->token))
		return false;
	s->code = GRANTED;
	return true;
}

static bool
read_kind(const struct row *r, enum lock_kind *kind, int64_t *room)
{
	return row_integer(r, ANSWER_ROOM, 0, LIMIT_MAX, room) &&
	    kind_of_word(row_words(r, ANSWER_KIND), kind);
}

/* Who holds, or has frozen it, for people.  It may be nobody. */
static void
read_holders(struct host *host, const struct row *r, int64_t held_ms)
{
	const char *word = row_words(r, ANSWER_KIND);
	int64_t holders, room;

	host->seen.holding.held = held_ms < 0 ? -1 : held_ms * NS_PER_MS;
	if (held_ms < 0)
		host->seen.holding.record[0] = '\0';
	if (!row_integer(r, ANSWER_HOLDERS, 0, BELIEVED, &holders) ||
	    !read_kind(r, &host->seen.holding.kind, &room)) {
		host->seen.holding.kind = KIND_EXCLUSIVE;
		room = holders = 0;
	}
	host->seen.holding.limit = room;
	host->seen.holding.holders = holders;
	host->seen.holding.frozen = word && strcmp(word, KIND_WORD_FREEZE) == 0;
}

bool
lease_place_read_place(struct lease_place *s, struct host *host, const struct row *r)
{
	int64_t held_ms;

	if (!row_integer(r, ANSWER_PLACE, 1, BELIEVED, &s->position) ||
	    !row_boolean(r, ANSWER_NEXT, &s->next))
		return false;
	if (!row_integer(r, ANSWER_LEFT_MS, 0, BELIEVED, &s->left_ms))
		/* nobody holds: the first in line has not come for it yet */
		s->left_ms = 0;
	if (!row_integer(r, ANSWER_HELD_MS, 0, BELIEVED * 1000, &held_ms) ||
	    !row_text(r, ANSWER_HOLDER, host->seen.holding.record,
		sizeof host->seen.holding.record))
		held_ms = -1;
	host->seen.position = s->position;
	read_holders(host, r, held_ms);
	return true;
}

/* The job has been done: when, and how that was found. */
static bool
read_done(struct done *d, const struct job *job, const struct row *r, int first)
{
	const char *by = row_words(r, first + DONE_BY);

	d->forgotten = row_is_null(r, ANSWER_TOKEN);
	if (!by ||
	    !row_integer(r, first + DONE_AGE_MS, 0, INT64_MAX / NS_PER_MS, &d->age_ms))
		return false;
	d->recently = strcmp(by, "cooldown") == 0;
	return d->recently ||
	    (job->once &&
		row_integer(
		    r, first + DONE_BEGAN_MS, 0, INT64_MAX / NS_PER_MS, &d->began_ms));
}

bool
lease_place_read(struct lease_place *s, const struct claim *claim, struct host *host,
    const struct row *r, int done)
{
	int64_t code;

	if (!row_integer(r, ANSWER_CODE, IN_USE, DONE, &code))
		return false;
	*s = (struct lease_place){.code = (enum place_code)code, .jitter = s->jitter};
	switch (s->code) {
	case IN_USE:
		return read_kind(r, &s->kind, &s->room);
	case GRANTED:
		return lease_place_read_grant(s, claim, r);
	case DONE:
		return read_done(&s->done, &claim->job, r, done);
	default:
		return lease_place_read_place(s, host, r);
	}
}

/* ---- when to ask again ---- */

bool
lease_place_concerns_us(const struct lease_place *s)
{
	return s->next || s->position == 1;
}

instant
lease_place_wake(const struct lease_place *s, instant wake)
{
	if (!lease_place_concerns_us(s) || s->left_ms == 0)
		return wake;
	return instant_first(
	    wake, instant_now() + (s->left_ms + A_BIT_LATER) * NS_PER_MS);
}

/* A few bits of the owner and a counter: enough to keep a thousand apart.  0 to 15. */
static int64_t
next_jitter(struct lease_place *s, const struct claim *claim)
{
	return claim->owner[s->jitter++ % OWNER_CHARS] % 16;
}

int64_t
lease_place_pause(struct lease_place *s, const struct claim *claim, int64_t position)
{
	int64_t pause = instant_first(position * POLL, POLL_MAX);

	return pause * 3 / 4 + pause / 32 * next_jitter(s, claim);
}

instant
lease_place_next_question(struct lease_place *s, const struct claim *claim)
{
	return lease_place_wake(
	    s, instant_now() + lease_place_pause(s, claim, s->position));
}

int64_t
lease_place_chunk(struct lease_place *s, const struct claim *claim, int64_t most)
{
	most = instant_first(most, claim->ttl / 2);
	return most - most / 64 * next_jitter(s, claim);
}
