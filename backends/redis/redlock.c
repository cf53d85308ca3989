/*
 * redlock.c - one lock on N independent Redis masters that know nothing of each other.
 *
 * Who has the votes of N/2 + 1 of them holds the lock.  The algorithm is that of
 * redis.io's page on distributed locks; what its critics asked for is in 4, 5 and 7.
 * What one round asks, and what is heard in it, is told in quorum.h.
 *
 *  1. All masters are asked at once, each by one run of redlock.lua, and a quorum of
 *     answers decides; nobody waits for the rest.  The loss of a minority, before or during
 *     a hold, is noticed by nobody.
 *  2. The lease T counts from before the first master was asked.  The caller takes 1 % and
 *     more off for clocks that differ in speed; by `ends` here, 1 % and 2 ms.
 *  3. Each attempt has an owner of its own: the claim's and a number.  One that wins no
 *     quorum is withdrawn wherever it may have a vote, also where no answer came.  What
 *     was sent for it and arrives later gives a vote to an owner who never uses
 *     it; that ends with its lease.
 *  4. No lease is longer than 60 s.  A vote counts only if some host has known the process
 *     of that master for 61 s, or if it wrote down each change before it answered when it
 *     was first met (quorum_enough, `run` in redlock.lua).  So whoever had a vote that a crash
 *     has made it forget holds no more, however long the leases are of those who ask, and
 *     whoever else is away.  Such a master is voted on and released all the same.
 *  5. Token: each master deals max(the last it knows + 1, its clock in us); the highest of the
 *     voters is ours, and is written back to a quorum before the lock counts as ours.  Any
 *     later quorum has one of these among it, and gets a higher one.  The clock is for
 *     masters that have forgotten.
 *  6. A renewal counts only votes that are still ours; a vote that is missing is asked for
 *     again (healing) when, and only when, a quorum has just renewed, and counts
 *     from the next renewal on.  A hold that fewer than N/2 + 1 masters can still know is lost;
 *     it is never put together again.
 *  7. Waiting: who releases puts an element into a list on the one master that the
 *     key picks, and one of those who wait there (BLPOP) asks for the lock at once.  This
 *     is a hint: who hears nothing asks now and then.  Nobody is promised an order.
 *
 * Why two never hold: let X have had a quorum Q at its last good answer, sent at s, and
 * Y be granted with a quorum R.  Some master m is in both.  It gave its vote to X, after s,
 * for T <= 60 s by its own clock, and to Y later.  Between, X's vote there ended: X released
 * it (then X was over), or T ran out (then X's time, T - 1 % from s, was over, if m's clock
 * did not run more than 1 % fast or was not set forward), or m forgot it.  Then m's process
 * of now, P, began after X's vote, so after s.  Some host had P's first answer at a, later
 * still, and P's vote for Y counts only if that host, or another run on it since the same
 * boot, sent a request at b >= a + 61 s by a clock that nobody can set, and P answered it.
 * Y was granted after b, so more than 60 s after s, when X was over.  What m keeps of this
 * names P by its run ID, which no other process has: data of an earlier one, of a backup
 * or of another master tell nothing of P, and whoever forgets them only waits anew.
 * T does not occur in this: the leases of X and Y, and what the rest of the masters know or
 * are, do not matter.  Healing adds votes to X while X has a quorum, so m may be one of
 * those, by the same argument.
 * What breaks it: a clock that is set forward on a master (that is a vote forgotten; it
 * takes as many as are beyond a quorum in X's favour); eviction; a DEL by hand; a crash
 * that loses what was said to be written, or settings that are made durable while a master
 * is down; a master that takes its data from a replica of its own and is a master again
 * within the minute (what it keeps of this names P, too); another client whose leases on
 * the same keys are longer; a machine that stands still between a look at the clock and the
 * write it allows.  For all of these there is the token.
 */
#include "redis.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* what a grant may take of its lease, in two rounds */
#define ROUND_MOST (2 * NS_PER_S)
enum { ROUNDS_OF_LEASE = 6, TRIES_WITHOUT_WAIT = 4 };
/* for the rest, once a quorum has answered and nobody is waiting for us */
#define REST_PATIENCE (100 * NS_PER_MS)
#define HEAL_PATIENCE NS_PER_S

/* ---- rounds ---- */

/* That is time enough for one. */
static instant
round_ends(const struct redlock *r)
{
	return instant_now() + instant_first(ROUND_MOST, r->claim->ttl / ROUNDS_OF_LEASE);
}

/* A little longer, while nobody waits for us. */
static enum rc
hear_the_rest(struct redlock *r, instant until)
{
	return quorum_hear(
	    &r->quorum, instant_first(until, instant_now() + REST_PATIENCE), NULL);
}

/* Extends the votes that are ours; `heal`: and asks who has forgotten it for one. */
static void
ask_to_extend(
    struct redlock *r, bool heal, instant until, bool (*whom)(const struct master *))
{
	struct script_call *c = quorum_say(&r->quorum, ASK_EXTEND, r->hold.owner);

	script_number(c, ns_to_ms(r->claim->ttl));
	script_word(c, r->claim->record);
	script_number(c, (int64_t)r->hold.token);
	script_word(c, heal ? "1" : "0");
	quorum_ask(&r->quorum, until, whom);
}

/* All are told; those that are slow have a little time to answer. */
static enum rc
redlock_let_go(
    struct redlock *r, bool wake, instant until, bool (*whom)(const struct master *))
{
	script_word(quorum_say(&r->quorum, ASK_RELEASE, r->hold.owner), wake ? "1" : "0");
	quorum_ask(&r->quorum, until, whom);
	return hear_the_rest(r, until);
}

/* A quorum gave, or renewed, its votes for what was asked at `sent`. */
static void
hold_counts_from(struct redlock *r, instant sent, struct grant *g)
{
	int64_t ttl = r->claim->ttl;

	r->hold.is = true;
	r->hold.ends = sent + ttl - ttl / 100 - 2 * NS_PER_MS;
	g->sent = sent;
	g->lease = ttl;
}

/* ---- an attempt: asking for the votes ---- */

/* Who may have given us a vote: all but those who said no. */
static bool
may_have_voted(const struct master *m)
{
	return !master_has_vote(m) ||
	    (m->vote.verdict != VERDICT_NO && m->vote.verdict != VERDICT_ABSENT);
}

static bool
attempt_is_decided(const struct quorum *q)
{
	const struct tally *t = &q->tally;
	size_t yes = t->votes[VERDICT_YES] - t->young;

	return yes >= q->need || t->answered + t->open < q->need ||
	    (t->answered >= q->need && yes + t->young + t->open < q->need);
}

/*
 * As an owner of whom nothing has been asked.  The time is that before it is sent, so that no
 * delay makes a master older.
 */
static enum rc
attempt_collect(struct redlock *r, instant most, struct fault *f)
{
	struct redlock_hold *h = &r->hold;
	instant until = instant_first(round_ends(r), most);
	struct script_call *c;
	enum rc rc;

	h->token = 0;
	snprintf(h->owner, sizeof h->owner, "%s-%u", r->claim->owner, h->owners++);
	h->asked = true;
	c = quorum_say(&r->quorum, ASK_ACQUIRE, h->owner);
	script_number(c, ns_to_ms(r->claim->ttl));
	script_word(c, r->claim->record);
	script_word(c, r->quorum.clock);
	script_number(c, instant_now() / NS_PER_MS);
	script_number(c, quorum_enough);
	quorum_ask(&r->quorum, until, NULL);
	rc = quorum_hear(&r->quorum, until, attempt_is_decided);
	return rc == RC_OK ? quorum_check_twins(&r->quorum, f) : rc;
}

/* Too few masters can be used, though enough: somebody should know. */
static void
attempt_notice(struct redlock *r)
{
	const struct quorum *q = &r->quorum;

	for (size_t i = 0; i < q->n && !r->told; i++) {
		const struct peer *p = &q->fan.peers[i];

		if (!master_is_heard(&q->masters[i]) || p->rc == RC_OK ||
		    (p->rc == RC_AGAIN && !q->host->verbose))
			continue;
		r->told = true;
		fault_set(&q->host->notice, RC_OK,
		    "%.400s (one of %zu masters, of which %zu are needed)", p->fault.text,
		    q->n, q->need);
	}
}

/* The token to a quorum, and our vote to who has not yet been asked for it. */
static enum rc
attempt_write_token(struct redlock *r, struct fault *f)
{
	struct quorum *q = &r->quorum;
	instant until = round_ends(r);
	enum rc rc;

	r->hold.token = q->tally.token;
	ask_to_extend(r, true, until, NULL);
	rc = quorum_hear(q, until, quorum_has_voted);
	if (rc != RC_OK)
		return rc;
	if (q->tally.answered < q->need)
		return quorum_refused(q, f);
	return q->tally.votes[VERDICT_YES] + q->tally.votes[VERDICT_HEALED] >= q->need
	    ? RC_OK
	    : fault_set(f, RC_AGAIN, "%s: votes were lost while the lock was granted",
		  q->where);
}

/* Why it was not granted, and what was heard of those who have it. */
struct refusal {
	enum {
		BECAUSE_HELD,  /* a quorum has given its votes to one other */
		BECAUSE_SPLIT, /* the votes are divided */
		BECAUSE_YOUNG, /* too many votes do not count yet */
	} because;
	int64_t left; /* until the first vote of a holder ends, ns; < 0: not known */
	bool listens; /* the master that tells of releases has answered */
};

static enum rc
attempt_refuse(struct redlock *r, struct refusal *refusal, struct fault *f)
{
	const struct quorum *q = &r->quorum;
	const struct vote *holder = quorum_find_holder(q);
	struct holding *h = &q->host->seen.holding;

	if (q->tally.answered < q->need)
		return quorum_refused(q, f);
	refusal->listens = master_has_vote(&q->masters[q->listener]);
	refusal->left = holder && holder->left >= 0 ? holder->left * NS_PER_MS : -1;
	/* what the user may see of who has it */
	q->host->seen.position = 0;
	h->held = holder && holder->held >= 0 ? holder->held * NS_PER_MS : -1;
	snprintf(h->record, sizeof h->record, "%s", holder ? holder->record : "");
	h->kind = KIND_EXCLUSIVE;
	h->holders = holder ? 1 : 0;
	h->frozen = false;
	if (holder) {
		refusal->because = BECAUSE_HELD;
		return fault_set(f, RC_BUSY, "%s: held", q->where);
	}
	if (q->tally.votes[VERDICT_YES] >= q->need) {
		refusal->because = BECAUSE_YOUNG;
		return fault_set(f, RC_BUSY,
		    "dlock has known %zu of %zu masters for less than %lld s: they may have restarted and forgotten who holds the lock (with appendonly yes and appendfsync always they would not forget)",
		    q->tally.young, q->n, (long long)quorum_enough / 1000);
	}
	refusal->because = BECAUSE_SPLIT;
	return fault_set(f, RC_BUSY,
	    "%s: no quorum: several runs ask for the lock at the same time, or masters are down",
	    q->where);
}

/*
 * It ends with a hold, or with nothing that would ever be used: what it may have won is given
 * back.  RC_OK: it is ours.  RC_BUSY: *refusal, and host->seen.  RC_CONFIG: two masters are
 * one.  Else what quorum_refused() says, or RC_STOP.
 */
static enum rc
redlock_attempt(struct redlock *r, instant most, struct grant *g, struct refusal *refusal,
    struct fault *f)
{
	const struct tally *t = &r->quorum.tally;
	instant sent = instant_now();
	enum rc rc = attempt_collect(r, most, f);

	if (rc != RC_OK)
		return rc;
	if (t->votes[VERDICT_YES] - t->young >= r->quorum.need) {
		attempt_notice(r);
		rc = attempt_write_token(r, f);
	} else {
		rc = attempt_refuse(r, refusal, f);
	}
	if (rc == RC_STOP)
		return rc;
	if (rc != RC_OK) {
		if (redlock_let_go(
			r, false, instant_now() + ROUND_MOST, may_have_voted) == RC_STOP)
			return RC_STOP;
		r->hold.asked = t->failed + t->open > 0;
		return rc;
	}
	*g = (struct grant){.token = r->hold.token, .anchor = -1};
	hold_counts_from(r, sent, g);
	return RC_OK;
}

/* ---- waiting ---- */

static int64_t
pause_of(struct redlock *r, const struct refusal *refusal)
{
	uint64_t *j = &r->jitter;
	int64_t ms, left_ms = refusal->left / NS_PER_MS;

	if (refusal->because == BECAUSE_YOUNG) {
		ms = 200 + jitter_below(j, 200);
	} else if (refusal->because == BECAUSE_SPLIT) {
		ms = r->tries++ < 8 ? 25 + jitter_below(j, 50)
				    : 100 + jitter_below(j, 200);
	} else {
		r->tries = 0;
		ms = refusal->listens ? 500 + jitter_below(j, 500)
				      : 50 + jitter_below(j, 200);
		if (refusal->left >= 0 && left_ms + 5 < ms)
			ms = left_ms + 5 + jitter_below(j, 20);
	}
	return ms * NS_PER_MS;
}

/*
 * Sleeps until there is reason to ask again: somebody releases it, as far as we are told, or
 * the pause is over.  RC_OK, RC_BUSY at `until` (without words), or RC_STOP.
 */
static enum rc
redlock_wait(struct redlock *r, const struct refusal *refusal, instant until)
{
	int64_t pause = pause_of(r, refusal);
	instant ends = instant_first(until, instant_now() + pause);
	struct quorum *q = &r->quorum;
	bool listens = refusal->because == BECAUSE_HELD && refusal->listens;
	enum rc rc = RC_OK;

	if (listens) {
		q->asking = ASK_LISTEN;
		quorum_ask_one(q, q->listener, instant_now() + pause);
		rc = quorum_hear(q, ends + NS_PER_S / 10, NULL);
	}
	if (rc == RC_OK && (!listens || q->tally.failed > 0)) {
		rc = fan_hear(&q->fan, ends, NULL); /* what is under way goes on */
		if (rc == RC_OK && instant_now() < ends &&
		    q->host->wait(q->host, -1, 0, ends) == WOKE_STOP)
			rc = RC_STOP;
	}
	return rc == RC_OK && instant_now() >= until ? RC_BUSY : rc;
}

/* RC_OK: there is reason to ask again.  Else that is what acquire returns. */
static enum rc
redlock_go_on(
    struct redlock *r, const struct refusal *refusal, instant until, struct fault *f)
{
	bool young = refusal->because == BECAUSE_YOUNG;
	enum rc rc;

	/* one that does not wait asks again only while votes are divided */
	if (until == 0 &&
	    (refusal->because != BECAUSE_SPLIT || r->tries >= TRIES_WITHOUT_WAIT ||
		instant_now() >= r->began + NS_PER_S))
		return young ? RC_AGAIN : RC_BUSY;
	if (young && !r->told) {
		r->store.base.host->notice = *f;
		r->told = true;
	}
	rc = redlock_wait(r, refusal, until ? until : NEVER);
	if (rc != RC_BUSY)
		return rc;
	return young ? RC_AGAIN : fault_set(f, rc, "%s: still held", r->store.where);
}

/* ---- the lock ---- */

/* What a master that restarts may have forgotten is never longer than quorum_longest. */
static enum rc
redlock_acquire(struct store *s, const struct claim *claim, instant until,
    struct grant *g, struct fault *f)
{
	struct redlock *r = redlock_of(s);
	struct retry *patience = &r->store.patience;
	struct refusal refusal = {.left = -1};
	bool heard = false;
	enum rc rc;

	if (ns_to_ms(claim->ttl) > quorum_longest)
		return fault_set(f, RC_USAGE, "with redlock --ttl is 3s to %llds",
		    (long long)quorum_longest / 1000);
	quorum_name(&r->quorum, store_key(&r->store, claim->key), redlock_is_bare(r));
	quorum_name_clock(&r->quorum, claim->owner);
	r->claim = claim;
	r->began = instant_now();
	r->jitter = jitter_of(claim->owner);
	retry_begin(patience, claim);
	do {
		rc = redlock_attempt(r, retry_attempt(patience, until), g, &refusal, f);
		if (rc == RC_BUSY) {
			heard = true;
			retry_end_outage(patience);
			rc = redlock_go_on(r, &refusal, until, f);
		} else if (rc != RC_OK && (until || rc != RC_AGAIN)) {
			rc = retry_wait(patience, s->host, rc, heard, until);
		}
	} while (rc == RC_OK && !r->hold.is);
	return rc;
}

static bool
renewal_is_settled(const struct quorum *q)
{
	const struct tally *t = &q->tally;

	return t->votes[VERDICT_YES] >= q->need ||
	    t->votes[VERDICT_NO] + t->votes[VERDICT_ABSENT] > q->n - q->need;
}

static bool
has_forgotten(const struct master *m)
{
	return master_has_vote(m) && m->vote.verdict == VERDICT_ABSENT &&
	    !*m->vote.record;
}

/* Too few masters have renewed it, or given it back. */
static enum rc
redlock_not_ours(const struct redlock *r, bool release, struct fault *f)
{
	const struct quorum *q = &r->quorum;
	const struct tally *t = &q->tally;
	size_t no = t->votes[VERDICT_NO] + t->votes[VERDICT_ABSENT] + t->foreign;
	enum rc rc = RC_LOST;

	if (no <= q->n - q->need) {
		quorum_refused(q, f);
		return RC_AGAIN;
	}
	if (quorum_is_broken(q, &rc, f))
		return rc;
	if (release && t->repeated)
		return fault_set(
		    f, RC_AGAIN, "%s closed connections before they answered", q->where);
	return fault_set(f, RC_LOST,
	    "%zu of %zu masters no longer %s it as ours: it expired, was deleted, or they lost their data",
	    no, q->n, release ? "had" : "have");
}

/* Those who forgot it are asked for their vote when a quorum has just renewed. */
static enum rc
redlock_renew(struct store *s, instant until, struct grant *g, struct fault *f)
{
	struct redlock *r = redlock_of(s);
	struct quorum *q = &r->quorum;
	instant sent = instant_now();
	enum rc rc, revoked = RC_REVOKED;

	ask_to_extend(r, false, until, NULL);
	rc = quorum_hear(q, until, renewal_is_settled);
	if (rc != RC_OK)
		return rc;
	if (q->tally.votes[VERDICT_YES] < q->need)
		return redlock_not_ours(r, false, f);
	if (instant_now() >= r->hold.ends)
		return fault_set(
		    f, RC_AGAIN, "%s answered after the end of the lease", q->where);
	hold_counts_from(r, sent, g);
	rc = hear_the_rest(r, until);
	if (quorum_is_broken(q, &revoked, f))
		return revoked;
	if (rc == RC_OK && q->tally.votes[VERDICT_ABSENT] > 0) {
		ask_to_extend(r, true,
		    instant_first(r->hold.ends, instant_now() + HEAL_PATIENCE),
		    has_forgotten);
		hear_the_rest(r, until);
	}
	return RC_OK;
}

static enum rc
redlock_release(struct store *s, struct outcome o, instant until, struct fault *f)
{
	struct redlock *r = redlock_of(s);
	const struct tally *t = &r->quorum.tally;
	enum rc rc;

	(void)o;
	if (!r->hold.asked)
		return RC_OK;
	rc = redlock_let_go(r, r->hold.is, until, NULL);
	if (rc == RC_OK && t->answered < r->quorum.need)
		rc = quorum_hear(&r->quorum, until, quorum_has_voted);
	if (rc != RC_OK)
		return rc;
	if (t->votes[VERDICT_YES] < r->quorum.need &&
	    (r->hold.is || t->answered < r->quorum.need))
		rc = redlock_not_ours(r, true, f);
	if (rc == RC_OK || rc == RC_LOST)
		r->hold.asked = r->hold.is = false;
	return rc;
}

const struct backend redlock_backend = {
    .name = "redis",
    .settings = redis_settings,
    .close = redis_close,
    .identify = redis_identify,
    .lock = &(const struct lock_ops){redlock_acquire, redlock_renew, redlock_release},
    .admin = &(const struct admin_ops){.each = redlock_each,
	.revoke = redlock_revoke,
	.check = redlock_check},
};
