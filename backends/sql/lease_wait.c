/* lease_wait.c - sleeps in the queue of a lease, in the server or here, until there is reason to ask. */
#include "lease.h"

#include <poll.h>
#include <stdio.h>
#include <string.h>

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
	return lease_place_chunk(s, l->claim,
	    s->position == 1 || !l->has_own ? PLACE_CHUNK_FIRST : PLACE_CHUNK);
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
	if (!lease_place_read_grant(s, l->claim, r))
		s->token = 0;
	if (s->token)
		l->is_listening = false; /* the server has ended that */
	*placed = s->token == 0 && *slept == SLEPT_IN_VAIN &&
	    lease_place_read_place(s, l->db->base.host, r);
	lease_note_own(l, r, AWAIT_HAS_OWN);
	l->has_slept = true;
	return true;
}

/*
 * Sleeps in the server on a wake-up lock; the first in line also for the end of a lease.
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
	struct row row;
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
	row = answer_next(&a);
	rc = read_sleep(l, &row, slept, &placed) ? RC_OK : lease_refuse_answer(l, f);
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

/* Sleeps until a notification comes (*notified), or a lease ends, or `until`. */
static enum rc
listen(struct lease *l, instant until, bool *notified)
{
	const struct lease_driver *d = l->db->driver->lease;
	struct host *host = l->db->base.host;
	instant wake = lease_place_wake(
	    &l->place, instant_first(instant_now() + next_chunk(l), until));

	*notified = d->is_notified(l->db);
	if (*notified || !sql_is_connected(l->db))
		return RC_OK;
	if (host->wait(host, l->db->driver->descriptor(l->db), POLLIN, wake) == WOKE_STOP)
		return RC_STOP;
	*notified = d->is_notified(l->db);
	return RC_OK;
}

/*
 * Who has been notified looks for its grant by an await that need not sleep.  So it does
 * without the key's lock, which those who release want.
 */
static enum rc
listen_for_grant(struct lease *l, instant until, struct fault *f)
{
	enum slept slept;
	bool notified;
	enum rc rc = listen(l, until, &notified);

	/* only a session that has slept before is quick at that */
	if (rc == RC_OK && notified && sql_is_connected(l->db) && l->has_own &&
	    l->has_slept)
		return sleep_there(l, NULL, until, &slept, f);
	return rc == RC_OK && instant_now() >= until ? refuse_held(l, f) : rc;
}

/*
 * A wake-up lock that was free is worth one question at once, for its owner may just have gone; if the same one
 * is before us still, it has lost its connection, and must be asked about now and then.
 */
enum rc
lease_sleep(struct lease *l, instant until, struct fault *f)
{
	enum slept slept = SLEPT_IN_VAIN;
	enum rc rc = RC_OK;

	if (l->is_listening)
		return listen_for_grant(l, until, f);
	if (!*l->ahead || !l->is_direct || strcmp(l->was_free, l->ahead) == 0) {
		*l->was_free = '\0';
		return sleep_here(
		    l, lease_place_next_question(&l->place, l->claim), until, f);
	}
	*l->was_free = '\0';
	while (rc == RC_OK && slept == SLEPT_IN_VAIN && l->place.token == 0)
		rc = sleep_there(l, l->ahead, until, &slept, f);
	if (slept == SLEPT_NOT || slept == SLEPT_REFUSED)
		snprintf(l->was_free, sizeof l->was_free, "%s", l->ahead);
	return rc;
}
