/* redlock_attempt.c - one attempt to get the votes of a quorum for an owner. */
#include "redlock_attempt.h"

#include "votes.h"

#include <stdio.h>

/* ---- the votes ---- */

static bool
is_decided(const struct quorum *q, const struct tally *t)
{
	size_t yes = t->votes[VERDICT_YES] - t->young;

	return yes >= q->need || t->answered + t->open < q->need ||
	    (t->answered >= q->need && yes + t->young + t->open < q->need);
}

/* The sooner, the better: *sent is what the lease counts from. */
static enum rc
collect(
    struct redlock_hold *h, instant most, instant *sent, struct tally *t, struct fault *f)
{
	enum rc rc;

	redlock_hold_next_owner(h);
	h->asked = true;
	*sent = instant_now();
	redlock_hold_ask(h, ORDER_ACQUIRE, false,
	    instant_first(redlock_hold_round_ends(h), most), NULL);
	rc = quorum_hear(h->quorum, h->order.until, is_decided, t);
	return rc == RC_OK ? quorum_check_twins(h->quorum, f) : rc;
}

/* ---- no quorum ---- */

/* What the user may see of who has it. */
static void
show(struct host *host, const struct vote *holder)
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
refuse_young(const struct redlock_hold *h, const struct tally *t, struct fault *f)
{
	return fault_set(f, RC_BUSY,
	    "%zu of %zu masters have been met less than %lld s ago: they may have restarted and forgotten who holds it (with appendonly yes and appendfsync always they would not)",
	    t->young, h->quorum->n, (long long)restart_enough() / 1000);
}

static enum rc
refuse(const struct redlock_hold *h, const struct tally *t, struct refusal *refusal,
    struct fault *f)
{
	const struct quorum *q = h->quorum;
	const struct vote *holder = votes_find_holder(q);

	if (t->answered < q->need)
		return quorum_refused(q, t, f);
	refusal->listens = votes_has(q, &q->masters[q->listener]);
	refusal->left = holder && holder->left >= 0 ? holder->left * NS_PER_MS : -1;
	show(q->host, holder);
	if (holder) {
		refusal->because = BECAUSE_HELD;
		return fault_set(f, RC_BUSY, "%s: held", q->where);
	}
	if (t->votes[VERDICT_YES] >= q->need) {
		refusal->because = BECAUSE_YOUNG;
		return refuse_young(h, t, f);
	}
	refusal->because = BECAUSE_SPLIT;
	return fault_set(f, RC_BUSY,
	    "%s: no quorum: several ask for it at once, or masters are down", q->where);
}

/* ---- a quorum ---- */

/* Too few masters can be used, though enough: somebody should know. */
static void
notice(struct redlock_hold *h)
{
	const struct quorum *q = h->quorum;

	for (size_t i = 0; i < q->n && !h->told; i++) {
		const struct master *m = &q->masters[i];

		if (!quorum_has_heard(q, m) || m->rc == RC_OK ||
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
write_token(struct redlock_hold *h, uint64_t token, struct fault *f)
{
	struct quorum *q = h->quorum;
	struct tally t;
	enum rc rc;

	h->order.token = token;
	redlock_hold_ask(h, ORDER_EXTEND, true, redlock_hold_round_ends(h), NULL);
	rc = quorum_hear(q, h->order.until, votes_are_in, &t);
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
	enum rc rc = collect(h, most, &sent, &t, f);

	if (rc != RC_OK)
		return rc;
	if (t.votes[VERDICT_YES] - t.young >= h->quorum->need) {
		notice(h);
		rc = write_token(h, t.token, f);
	} else {
		rc = refuse(h, &t, refusal, f);
	}
	if (rc == RC_STOP)
		return rc;
	if (rc != RC_OK)
		return redlock_hold_withdraw(h) == RC_STOP ? RC_STOP : rc;
	redlock_hold_counts_from(h, sent);
	*g = (struct grant){
	    .token = h->order.token, .sent = sent, .lease = h->claim->ttl, .anchor = -1};
	return RC_OK;
}
