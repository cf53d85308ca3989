/*
 * lease_place.c - reads where a claim stands in a queue, and sleeps there, in the server or here,
 * until there is reason to ask.
 */
#include "lease.h"

#include <poll.h>
#include <stdio.h>
#include <string.h>

/* a place, or ms, that a server may tell of: what is reckoned with them fits */
#define BELIEVED INT64_C(1000000000)

/* told by nobody, the first in the queue asks so often, the second half as often, */
#define POLL (200 * NS_PER_MS)
/* but all well within the 3 s of a grant that nobody tells them of */
#define POLL_MAX (2 * NS_PER_S)
/* so long a waiter sleeps in the server, */
#define CHUNK (10 * NS_PER_S)
/* and the first in the queue: less than a grant waits for it */
#define CHUNK_FIRST (2500 * NS_PER_MS)
#define A_BIT_LATER 5 /* ms: for the server's clock to be past the end of a lease */

/* ---- what the server says ---- */

static bool
read_grant(struct lease_place *s, const struct claim *claim, const struct row *r)
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
read_kind(const struct row *r, enum lock_kind *kind, int64_t *limit)
{
	return row_integer(r, ANSWER_LIMIT, 0, LIMIT_MAX, limit) &&
	    kind_of_word(row_words(r, ANSWER_KIND), kind);
}

/* Who holds, or has frozen it, for people.  It may be nobody. */
static void
read_holders(struct host *host, const struct row *r, int64_t held_ms)
{
	const char *word = row_words(r, ANSWER_KIND);
	int64_t holders, limit;

	host->seen.holding.held = held_ms < 0 ? -1 : held_ms * NS_PER_MS;
	if (held_ms < 0)
		host->seen.holding.record[0] = '\0';
	if (!row_integer(r, ANSWER_HOLDERS, 0, BELIEVED, &holders) ||
	    !read_kind(r, &host->seen.holding.kind, &limit)) {
		host->seen.holding.kind = KIND_EXCLUSIVE;
		limit = holders = 0;
	}
	host->seen.holding.limit = limit;
	host->seen.holding.holders = holders;
	host->seen.holding.frozen = word && strcmp(word, KIND_WORD_FREEZE) == 0;
}

static bool
read_place(struct lease_place *s, struct host *host, const struct row *r)
{
	int64_t held_ms;

	if (!row_integer(r, ANSWER_PLACE, 1, BELIEVED, &s->position) ||
	    !row_boolean(r, ANSWER_NEXT, &s->next))
		return false;
	if (!row_integer(r, ANSWER_LEFT_MS, 0, BELIEVED, &s->left_ms))
		/* nobody holds: the first in the queue has not come for it yet */
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
		return read_kind(r, &s->kind, &s->limit);
	case GRANTED:
		return read_grant(s, claim, r);
	case DONE:
		return read_done(&s->done, &claim->job, r, done);
	default:
		return read_place(s, host, r);
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

int64_t
lease_place_chunk(struct lease_place *s, const struct claim *claim, int64_t most)
{
	most = instant_first(most, claim->ttl / 2);
	return most - most / 64 * next_jitter(s, claim);
}

/* ---- sleeping ---- */

/* await: how we slept; a grant; where we are, if that is told; and */
enum { AWAIT_HAS_OWN = ANSWER_MORE, AWAIT_FIELDS };

enum slept { SLEPT_IN_VAIN, SLEPT_UNTIL_WOKEN, SLEPT_NOT, SLEPT_REFUSED };

static enum rc
refuse_held(const struct lease *l, struct fault *f)
{
	return fault_set(f, RC_BUSY, "%s: still held", l->db->where);
}

/* Sleeps here, until `wake`.  RC_BUSY: `until` has come. */
static enum rc
sleep_here(struct lease *l, instant wake, instant until, struct fault *f)
{
	struct host *host = l->db->base.host;

	if (host->wait(host, -1, 0, instant_first(wake, until)) == WOKE_STOP)
		return RC_STOP;
	return instant_now() >= until ? refuse_held(l, f) : RC_OK;
}

static int64_t
next_chunk(struct lease *l)
{
	struct lease_place *s = &l->place;

	if (l->is_one_of_many)
		return lease_place_pause(s, l->claim, 1);
	if (!l->has_own) /* without it we are passed over */
		return lease_place_chunk(s, l->claim, lease_own_space(l, CHUNK_FIRST));
	return lease_place_chunk(s, l->claim, s->position == 1 ? CHUNK_FIRST : CHUNK);
}

/* After a sleep in vain: is there reason to ask nevertheless? */
static bool
is_reason_to_ask(const struct lease_place *s)
{
	if (lease_place_concerns_us(s) && s->left_ms == 0)
		return true; /* a lease has run out */
	/* whom we sleep behind holds beside others, or is passed over */
	return s->position == 1 && !s->next;
}

/*
 * What await has brought: how we slept; the token of a grant, else 0; where we are, if that
 * is told (*placed).
 */
static bool
read_sleep(struct lease *l, const struct row *r, enum slept *slept, bool *placed)
{
	struct lease_place *s = &l->place;
	int64_t code;

	if (!row_integer(r, ANSWER_CODE, SLEPT_IN_VAIN, SLEPT_REFUSED, &code))
		return false;
	*slept = (enum slept)code;
	if (!read_grant(s, l->claim, r))
		s->token = 0;
	if (s->token)
		l->is_listening = false; /* the server has ended that */
	*placed = s->token == 0 && *slept == SLEPT_IN_VAIN &&
	    read_place(s, l->db->base.host, r);
	lease_note_own(l, r, AWAIT_HAS_OWN);
	l->has_slept = true;
	return true;
}

/*
 * Sleeps in the server on a wake-up lock; the first in the queue also for the end of a lease.
 * NULL: does not sleep, but asks for a grant.  RC_BUSY: `until` has come.
 */
static enum rc
sleep_there(
    struct lease *l, const char *lock, instant until, enum slept *slept, struct fault *f)
{
	instant now = instant_now(),
		wake = lease_place_wake(
		    &l->place, instant_first(now + next_chunk(l), until));
	int64_t ms = wake > now ? ns_to_ms(wake - now) : 1;
	struct answer a = {.db = NULL};
	bool placed = false;
	enum rc rc;

	if (l->db->whole_seconds)
		ms = ms / 1000 * 1000;
	*slept = SLEPT_UNTIL_WOKEN;
	if (ms == 0)
		return sleep_here(l, wake, until, f);
	rc = sql_exec(l->db,
	    &CLAIM_QUESTION(
		l, l->me, "await", AWAIT_FIELDS, OWN_LOCK, SQL_TEXT(lock), SQL_INT(ms)),
	    retry_answer(wake, ASK_PATIENCE, until), &a, f);
	if (rc != RC_OK)
		return rc;
	rc = read_sleep(l, &a.row, slept, &placed) ? RC_OK : lease_refuse_answer(l, f);
	answer_drop(&a);
	if (rc != RC_OK || *slept != SLEPT_IN_VAIN || l->place.token)
		return rc;
	if (instant_now() >= until)
		return refuse_held(l, f);
	/* not told where we are, or not known any more: ask */
	if (!placed || is_reason_to_ask(&l->place))
		*slept = SLEPT_UNTIL_WOKEN;
	return RC_OK;
}

/*
 * Sleeps until a notification comes, or a lease ends, or `until`.  Who has been notified looks for
 * its grant by an await that need not sleep.  So it does without the key's lock, which those
 * who release want.
 */
static enum rc
listen_for_grant(struct lease *l, instant until, struct fault *f)
{
	const struct sql_driver *d = l->db->driver;
	struct host *host = l->db->base.host;
	instant wake = lease_place_wake(
	    &l->place, instant_first(instant_now() + next_chunk(l), until));
	bool notified = d->lease->is_notified(l->db);
	enum slept slept;

	if (!notified && sql_is_connected(l->db)) {
		if (host->wait(host, d->descriptor(l->db), POLLIN, wake) == WOKE_STOP)
			return RC_STOP;
		notified = d->lease->is_notified(l->db);
	}
	/* only a session that has slept before is quick at that */
	if (notified && sql_is_connected(l->db) && l->has_own && l->has_slept)
		return sleep_there(l, NULL, until, &slept, f);
	return instant_now() >= until ? refuse_held(l, f) : RC_OK;
}

/*
 * A wake-up lock that was free is worth one question at once, for its owner may just have gone.
 * If the same one is before us still, it has lost its connection: then we ask now and then.
 */
enum rc
lease_sleep(struct lease *l, instant until, struct fault *f)
{
	enum slept slept = SLEPT_IN_VAIN;
	enum rc rc = RC_OK;
	instant wake;

	if (l->is_listening)
		return listen_for_grant(l, until, f);
	if (!*l->ahead || !l->is_direct || strcmp(l->was_free, l->ahead) == 0) {
		*l->was_free = '\0';
		wake = instant_now() +
		    lease_place_pause(&l->place, l->claim, l->place.position);
		return sleep_here(l, lease_place_wake(&l->place, wake), until, f);
	}
	*l->was_free = '\0';
	while (rc == RC_OK && slept == SLEPT_IN_VAIN && l->place.token == 0)
		rc = sleep_there(l, l->ahead, until, &slept, f);
	if (slept == SLEPT_NOT || slept == SLEPT_REFUSED)
		snprintf(l->was_free, sizeof l->was_free, "%s", l->ahead);
	return rc;
}
