/* redlock_hold.c - the votes of one owner: renewing and giving them back. */
#include "redlock_hold.h"

#include "backends/common/text.h"
#include "votes.h"

#include <stdio.h>

/* what a grant may take of its lease, in two rounds */
#define ROUND_MOST (2 * NS_PER_S)
enum { ROUNDS_OF_LEASE = 6 };
/* for the rest, once a quorum has answered and nobody is waiting for us */
#define REST_PATIENCE (100 * NS_PER_MS)
#define HEAL_PATIENCE NS_PER_S

/* ---- what is asked ---- */

void
redlock_hold_begin(
    struct redlock_hold *h, struct quorum *quorum, const struct claim *claim)
{
	h->quorum = quorum;
	h->claim = claim;
	h->order = (struct order){.lease = ns_to_ms(claim->ttl), .record = claim->record};
	restart_name_clock(quorum->names.clock, claim->owner);
}

void
redlock_hold_next_owner(struct redlock_hold *h)
{
	h->order.token = 0;
	snprintf(
	    h->order.owner, sizeof h->order.owner, "%s-%u", h->claim->owner, h->owners++);
}

instant
redlock_hold_round_ends(const struct redlock_hold *h)
{
	return instant_now() + instant_first(ROUND_MOST, h->claim->ttl / ROUNDS_OF_LEASE);
}

void
redlock_hold_ask(struct redlock_hold *h, enum order_kind kind, bool flag, instant until,
    bool (*whom)(const struct quorum *, const struct master *))
{
	h->order.kind = kind;
	h->order.flag = flag;
	h->order.until = until;
	quorum_ask(h->quorum, &h->order, whom);
}

void
redlock_hold_counts_from(struct redlock_hold *h, instant sent)
{
	h->is = true;
	h->ends = sent + h->claim->ttl - h->claim->ttl / 100 - 2 * NS_PER_MS;
}

/* ---- withdrawing ---- */

/* Who may have given us a vote: all but those who said no. */
static bool
may_have_voted(const struct quorum *q, const struct master *m)
{
	return !votes_has(q, m) ||
	    (m->vote.verdict != VERDICT_NO && m->vote.verdict != VERDICT_ABSENT);
}

/*
 * All are told, and who is still at another answer has a little time to come to
 * this one; then it is told on a connection of its own.
 */
static enum rc
let_go(struct redlock_hold *h, bool wake, instant until,
    bool (*whom)(const struct quorum *, const struct master *), struct tally *t)
{
	instant rest = instant_now() + REST_PATIENCE;
	enum rc rc;

	redlock_hold_ask(h, ORDER_RELEASE, wake, until, whom);
	rc = quorum_hear(h->quorum, instant_first(until, rest), NULL, t);
	if (rc == RC_OK && t->open > 0) {
		quorum_hurry(h->quorum);
		rc = quorum_hear(
		    h->quorum, instant_first(until, rest + REST_PATIENCE), NULL, t);
	}
	return rc;
}

enum rc
redlock_hold_withdraw(struct redlock_hold *h)
{
	struct tally t;
	enum rc rc = let_go(h, false, instant_now() + ROUND_MOST, may_have_voted, &t);

	if (rc == RC_OK && t.failed + t.open == 0)
		h->asked = false;
	return rc;
}

/* ---- renew ---- */

static bool
is_settled(const struct quorum *q, const struct tally *t)
{
	return t->votes[VERDICT_YES] >= q->need ||
	    t->votes[VERDICT_NO] + t->votes[VERDICT_ABSENT] > q->n - q->need;
}

static bool
has_forgotten(const struct quorum *q, const struct master *m)
{
	return votes_has(q, m) && m->vote.verdict == VERDICT_ABSENT && !*m->vote.record;
}

/* Those who forgot it, when a quorum has just renewed. */
static enum rc
heal(struct redlock_hold *h, instant until)
{
	struct tally t;

	quorum_count(h->quorum, &t);
	if (t.votes[VERDICT_ABSENT] == 0)
		return RC_OK;
	redlock_hold_ask(h, ORDER_EXTEND, true,
	    instant_first(h->ends, instant_now() + HEAL_PATIENCE), has_forgotten);
	return quorum_hear(
	    h->quorum, instant_first(until, instant_now() + REST_PATIENCE), NULL, &t);
}

static enum rc
not_renewed(struct redlock_hold *h, const struct tally *t, struct fault *f)
{
	struct quorum *q = h->quorum;
	char mark[RECORD_BYTES];
	size_t no = t->votes[VERDICT_NO] + t->votes[VERDICT_ABSENT] +
	    votes_count_foreign(q);

	if (no <= q->n - q->need) {
		quorum_refused(q, t, f);
		return RC_AGAIN;
	}
	votes_find_mark(q, mark, sizeof mark);
	if (*mark)
		return refuse_broken(q->host, f, RC_LOST, q->where, mark);
	return fault_set(f, RC_LOST,
	    "%zu of %zu masters no longer have it as ours: it expired, was deleted, or they lost their data",
	    no, q->n);
}

enum rc
redlock_hold_renew(
    struct redlock_hold *h, instant until, struct grant *g, struct fault *f)
{
	struct quorum *q = h->quorum;
	char mark[RECORD_BYTES];
	instant sent = instant_now();
	struct tally t;
	enum rc rc;

	redlock_hold_ask(h, ORDER_EXTEND, false, until, NULL);
	rc = quorum_hear(q, until, is_settled, &t);
	if (rc != RC_OK)
		return rc;
	if (t.votes[VERDICT_YES] < q->need)
		return not_renewed(h, &t, f);
	if (instant_now() >= h->ends)
		return fault_set(
		    f, RC_AGAIN, "%s answered after the end of the lease", q->where);
	redlock_hold_counts_from(h, sent);
	g->sent = sent;
	g->lease = h->claim->ttl;
	/* nobody waits for us: those behind the quorum are heard, too */
	rc = quorum_hear(
	    q, instant_first(until, instant_now() + REST_PATIENCE), NULL, &t);
	votes_find_mark(q, mark, sizeof mark);
	if (*mark)
		return refuse_broken(q->host, f, RC_REVOKED, q->where, mark);
	if (rc == RC_OK)
		heal(h, until);
	return RC_OK;
}

/* ---- release ---- */

static enum rc
released(struct redlock_hold *h, const struct tally *t, struct fault *f)
{
	const struct quorum *q = h->quorum;
	char mark[RECORD_BYTES];

	if (t->votes[VERDICT_YES] >= q->need || (!h->is && t->answered >= q->need))
		return RC_OK;
	if (t->votes[VERDICT_NO] + votes_count_foreign(q) <= q->n - q->need)
		return quorum_refused(q, t, f) == RC_OK ? RC_OK : RC_AGAIN;
	votes_find_mark(q, mark, sizeof mark);
	if (*mark)
		return refuse_broken(q->host, f, RC_LOST, q->where, mark);
	if (votes_are_repeated(q))
		return fault_set(
		    f, RC_AGAIN, "%s closed connections before they answered", q->where);
	return fault_set(f, RC_LOST,
	    "%zu of %zu masters no longer had it as ours: it expired, was deleted, or they lost their data",
	    t->votes[VERDICT_NO], q->n);
}

enum rc
redlock_hold_release(struct redlock_hold *h, instant until, struct fault *f)
{
	struct tally t;
	enum rc rc;

	if (!h->asked)
		return RC_OK;
	rc = let_go(h, h->is, until, NULL, &t);
	if (rc == RC_OK && t.answered < h->quorum->need)
		rc = quorum_hear(h->quorum, until, votes_are_in, &t);
	if (rc != RC_OK)
		return rc;
	rc = released(h, &t, f);
	if (rc == RC_OK || rc == RC_LOST)
		h->asked = h->is = false;
	return rc;
}
