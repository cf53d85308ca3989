/* redlock_hold.c - the votes of one owner: asking for them, renewing them, giving them back. */
#include "redlock_hold.h"

#include "backends/common/text.h"

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

/* Nothing has been asked for this one. */
static void
hold_next_owner(struct redlock_hold *h)
{
	h->order.token = 0;
	snprintf(
	    h->order.owner, sizeof h->order.owner, "%s-%u", h->claim->owner, h->owners++);
}

/* That is time enough for a round. */
static instant
round_ends(const struct redlock_hold *h)
{
	return instant_now() + instant_first(ROUND_MOST, h->claim->ttl / ROUNDS_OF_LEASE);
}

static void
hold_ask(struct redlock_hold *h, enum order_kind kind, bool flag, instant until,
    bool (*whom)(const struct quorum *, const struct master *))
{
	h->order.kind = kind;
	h->order.flag = flag;
	h->order.until = until;
	quorum_ask(h->quorum, &h->order, whom);
}

/* A quorum gave, or renewed, its votes for what was asked at `sent`. */
static void
hold_counts_from(struct redlock_hold *h, instant sent)
{
	h->is = true;
	h->ends = sent + h->claim->ttl - h->claim->ttl / 100 - 2 * NS_PER_MS;
}

/* ---- withdrawing ---- */

/* Who may have given us a vote: all but those who said no. */
static bool
may_have_voted(const struct quorum *q, const struct master *m)
{
	(void)q;
	return !master_has_vote(m) ||
	    (m->vote.verdict != VERDICT_NO && m->vote.verdict != VERDICT_ABSENT);
}

/* All are told; those that are slow have a little time to answer. */
static enum rc
hold_let_go(struct redlock_hold *h, bool wake, instant until,
    bool (*whom)(const struct quorum *, const struct master *), struct tally *t)
{
	hold_ask(h, ORDER_RELEASE, wake, until, whom);
	return quorum_hear(
	    h->quorum, instant_first(until, instant_now() + REST_PATIENCE), NULL, t);
}

/* Gives back what the last round may have won, which is no quorum.  RC_OK or RC_STOP. */
static enum rc
hold_withdraw(struct redlock_hold *h)
{
	struct tally t;
	enum rc rc = hold_let_go(
	    h, false, instant_now() + ROUND_MOST, may_have_voted, &t);

	if (rc == RC_OK && t.failed + t.open == 0)
		h->asked = false;
	return rc;
}

/* ---- asking for them ---- */

static bool
hold_is_decided(const struct quorum *q, const struct tally *t)
{
	size_t yes = t->votes[VERDICT_YES] - t->young;

	return yes >= q->need || t->answered + t->open < q->need ||
	    (t->answered >= q->need && yes + t->young + t->open < q->need);
}

/* The sooner, the better: *sent is what the lease counts from. */
static enum rc
hold_collect(
    struct redlock_hold *h, instant most, instant *sent, struct tally *t, struct fault *f)
{
	enum rc rc;

	hold_next_owner(h);
	h->asked = true;
	*sent = instant_now();
	hold_ask(h, ORDER_ACQUIRE, false, instant_first(round_ends(h), most), NULL);
	rc = quorum_hear(h->quorum, h->order.until, hold_is_decided, t);
	return rc == RC_OK ? quorum_check_twins(h->quorum, f) : rc;
}

/* ---- no quorum ---- */

/* What the user may see of who has it. */
static void
hold_show(struct host *host, const struct vote *holder)
{
	host->seen.position = 0;
	host->seen.holding.held = holder && holder->held >= 0 ? holder->held * NS_PER_MS
							      : -1;
	snprintf(host->seen.holding.record, sizeof host->seen.holding.record, "%s",
	    holder ? holder->record : "");
	host->seen.holding.kind = KIND_EXCLUSIVE;
	host->seen.holding.holders = holder ? 1 : 0;
	host->seen.holding.frozen = false;
}

static enum rc
hold_refuse_young(const struct redlock_hold *h, const struct tally *t, struct fault *f)
{
	return fault_set(f, RC_BUSY,
	    "%zu of %zu masters have been met less than %lld s ago: they may have restarted and forgotten who holds it (with appendonly yes and appendfsync always they would not)",
	    t->young, h->quorum->n, (long long)restart_enough() / 1000);
}

static enum rc
hold_refuse(const struct redlock_hold *h, const struct tally *t, struct refusal *refusal,
    struct fault *f)
{
	const struct quorum *q = h->quorum;
	const struct vote *holder = quorum_find_holder(q);

	if (t->answered < q->need)
		return quorum_refused(q, t, f);
	refusal->listens = master_has_vote(&q->masters[q->listener]);
	refusal->left = holder && holder->left >= 0 ? holder->left * NS_PER_MS : -1;
	hold_show(q->host, holder);
	if (holder) {
		refusal->because = BECAUSE_HELD;
		return fault_set(f, RC_BUSY, "%s: held", q->where);
	}
	if (t->votes[VERDICT_YES] >= q->need) {
		refusal->because = BECAUSE_YOUNG;
		return hold_refuse_young(h, t, f);
	}
	refusal->because = BECAUSE_SPLIT;
	return fault_set(f, RC_BUSY,
	    "%s: no quorum: several ask for it at once, or masters are down", q->where);
}

/* ---- a quorum ---- */

/* Too few masters can be used, though enough: somebody should know. */
static void
hold_notice(struct redlock_hold *h)
{
	const struct quorum *q = h->quorum;

	for (size_t i = 0; i < q->n && !h->told; i++) {
		const struct master *m = &q->masters[i];

		if (!master_is_heard(m) || m->rc == RC_OK ||
		    (m->rc == RC_AGAIN && !q->host->verbose))
			continue;
		h->told = true;
		fault_set(&q->host->notice, RC_OK,
		    "%.400s (one of %zu masters, of which %zu are needed)", m->fault.text,
		    q->n, q->need);
	}
}

/* The token to a quorum, and our vote to who has not yet been asked for it. */
static enum rc
hold_write_token(struct redlock_hold *h, uint64_t token, struct fault *f)
{
	struct quorum *q = h->quorum;
	struct tally t;
	enum rc rc;

	h->order.token = token;
	hold_ask(h, ORDER_EXTEND, true, round_ends(h), NULL);
	rc = quorum_hear(q, h->order.until, quorum_has_voted, &t);
	if (rc != RC_OK)
		return rc;
	if (t.answered < q->need)
		return quorum_refused(q, &t, f);
	return t.votes[VERDICT_YES] + t.votes[VERDICT_HEALED] >= q->need
	    ? RC_OK
	    : fault_set(
		  f, RC_AGAIN, "%s: votes were lost while it was granted", q->where);
}

enum rc
redlock_attempt(struct redlock_hold *h, instant most, struct grant *g,
    struct refusal *refusal, struct fault *f)
{
	struct tally t;
	instant sent;
	enum rc rc = hold_collect(h, most, &sent, &t, f);

	if (rc != RC_OK)
		return rc;
	if (t.votes[VERDICT_YES] - t.young >= h->quorum->need) {
		hold_notice(h);
		rc = hold_write_token(h, t.token, f);
	} else {
		rc = hold_refuse(h, &t, refusal, f);
	}
	if (rc == RC_STOP)
		return rc;
	if (rc != RC_OK)
		return hold_withdraw(h) == RC_STOP ? RC_STOP : rc;
	hold_counts_from(h, sent);
	*g = (struct grant){
	    .token = h->order.token, .sent = sent, .lease = h->claim->ttl, .anchor = -1};
	return RC_OK;
}

/* ---- renew ---- */

static bool
hold_is_settled(const struct quorum *q, const struct tally *t)
{
	return t->votes[VERDICT_YES] >= q->need ||
	    t->votes[VERDICT_NO] + t->votes[VERDICT_ABSENT] > q->n - q->need;
}

static bool
has_forgotten(const struct quorum *q, const struct master *m)
{
	(void)q;
	return master_has_vote(m) && m->vote.verdict == VERDICT_ABSENT &&
	    !*m->vote.record;
}

/* Those who forgot it, when a quorum has just renewed. */
static enum rc
hold_heal(struct redlock_hold *h, instant until)
{
	struct tally t;

	quorum_count(h->quorum, &t);
	if (t.votes[VERDICT_ABSENT] == 0)
		return RC_OK;
	hold_ask(h, ORDER_EXTEND, true,
	    instant_first(h->ends, instant_now() + HEAL_PATIENCE), has_forgotten);
	return quorum_hear(
	    h->quorum, instant_first(until, instant_now() + REST_PATIENCE), NULL, &t);
}

static enum rc
not_renewed(struct redlock_hold *h, const struct tally *t, struct fault *f)
{
	struct quorum *q = h->quorum;
	char mark[RECORD_BYTES];
	size_t no = t->votes[VERDICT_NO] + t->votes[VERDICT_ABSENT] + t->foreign;

	if (no <= q->n - q->need) {
		quorum_refused(q, t, f);
		return RC_AGAIN;
	}
	quorum_find_mark(q, mark, sizeof mark);
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

	hold_ask(h, ORDER_EXTEND, false, until, NULL);
	rc = quorum_hear(q, until, hold_is_settled, &t);
	if (rc != RC_OK)
		return rc;
	if (t.votes[VERDICT_YES] < q->need)
		return not_renewed(h, &t, f);
	if (instant_now() >= h->ends)
		return fault_set(
		    f, RC_AGAIN, "%s answered after the end of the lease", q->where);
	hold_counts_from(h, sent);
	g->sent = sent;
	g->lease = h->claim->ttl;
	/* nobody waits for us: those behind the quorum are heard, too */
	rc = quorum_hear(
	    q, instant_first(until, instant_now() + REST_PATIENCE), NULL, &t);
	quorum_find_mark(q, mark, sizeof mark);
	if (*mark)
		return refuse_broken(q->host, f, RC_REVOKED, q->where, mark);
	if (rc == RC_OK)
		hold_heal(h, until);
	return RC_OK;
}

/* ---- release ---- */

static enum rc
hold_released(struct redlock_hold *h, const struct tally *t, struct fault *f)
{
	const struct quorum *q = h->quorum;
	char mark[RECORD_BYTES];

	if (t->votes[VERDICT_YES] >= q->need || (!h->is && t->answered >= q->need))
		return RC_OK;
	if (t->votes[VERDICT_NO] + t->foreign <= q->n - q->need)
		return quorum_refused(q, t, f) == RC_OK ? RC_OK : RC_AGAIN;
	quorum_find_mark(q, mark, sizeof mark);
	if (*mark)
		return refuse_broken(q->host, f, RC_LOST, q->where, mark);
	if (quorum_is_repeated(q))
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
	rc = hold_let_go(h, h->is, until, NULL, &t);
	if (rc == RC_OK && t.answered < h->quorum->need)
		rc = quorum_hear(h->quorum, until, quorum_has_voted, &t);
	if (rc != RC_OK)
		return rc;
	rc = hold_released(h, &t, f);
	if (rc == RC_OK || rc == RC_LOST)
		h->asked = h->is = false;
	return rc;
}
