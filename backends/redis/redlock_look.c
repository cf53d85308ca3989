/*
 * redlock_look.c - what locks there are on a quorum of masters, and taking them away.
 *
 * All masters are asked.  Who has the votes of more than half of all masters holds; who might
 * have them, if those that do not answer had given theirs, is told as unknown; fewer are
 * nothing.  There must be a quorum of answers, or nothing can be said.
 */
#include "redis.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* for the rest, once a quorum has answered */
#define REST_PATIENCE (300 * NS_PER_MS)

/* What is being told. */
struct votes_view {
	struct quorum *quorum;
	bool bare;
	const struct look *look;
	struct fault *fault;
	bool scanned[REDLOCK_MOST]; /* all keys of these have been told */
	const struct peer *silent;  /* whose keys could not be told; NULL: none */
	bool enough;                /* nobody wants to hear more */
};

/* ---- entries ---- */

static int
compare_down(const void *left, const void *right)
{
	const int64_t *a = left, *b = right;

	return *a < *b ? 1 : -(*a > *b);
}

/*
 * The lease ends when a quorum has it no more.  Each master's times are told by its own
 * clock: what is left of them is told by the clock of the one that is told of first.
 */
static void
sum_up(const struct quorum *q, const struct vote *first, struct entry *e)
{
	int64_t left[REDLOCK_MOST] = {0}, held = -1;
	size_t n = 0;

	for (size_t i = 0; i < q->n; i++) {
		const struct vote *v = &q->masters[i].vote;

		if (!master_has_vote(&q->masters[i]) ||
		    strcmp(v->owner, first->owner) != 0)
			continue;
		left[n++] = v->until < 0 ? INT64_MAX : v->until - v->now;
		if (v->since >= 0 && v->now - v->since > held)
			held = v->now - v->since;
		if (v->token > e->token)
			e->token = v->token;
		if (*v->record)
			e->record = v->record;
		e->revoked = e->revoked || v->revoked;
	}
	qsort(left, n, sizeof *left, compare_down);
	if (left[q->need - 1] != INT64_MAX)
		e->until = first->now + left[q->need - 1];
	if (held >= 0)
		e->since = first->now - held;
}

static void
votes_tell(struct votes_view *v, const char *key, struct entry *e, int64_t now)
{
	e->key = key;
	v->enough = v->enough || !v->look->see(v->look->ctx, e, now);
}

/*
 * Nobody, a holder, or one who may be that: fewer votes, even with those of the
 * masters that do not answer, are an attempt under way or what is left of a hold.
 */
static void
votes_tell_lock(struct votes_view *v, const char *key, size_t silent)
{
	static const struct foreign other = {
	    .what = "a lock of another client of Redlock"};
	const struct quorum *q = v->quorum;
	const struct vote *holder = quorum_find_holder(q);
	struct entry e = look_entry_of(holder ? ENTRY_HOLDER : ENTRY_UNKNOWN);
	char what[160];
	size_t votes = 0;
	int64_t now = 0;

	if (holder) {
		e.owner = holder->owner;
		sum_up(q, holder, &e);
		e.foreign = e.record ? NULL : &other;
		votes_tell(v, key, &e, holder->now);
		return;
	}
	for (size_t i = 0; i < q->n; i++) {
		const struct vote *vote = &q->masters[i].vote;
		size_t n = *vote->owner ? quorum_votes_of(q, vote->owner) : 0;

		if (n > votes) {
			votes = n;
			now = vote->now;
		}
	}
	if (votes == 0 || votes + silent < q->need)
		return;
	snprintf(what, sizeof what,
	    "it may be held: it has the votes of %zu of %zu masters, and %zu of them do not answer",
	    votes, q->n, silent);
	e.what = what;
	votes_tell(v, key, &e, now);
}

/* ---- one lock, all locks ---- */

static bool
has_quorum(const struct quorum *q)
{
	return q->tally.answered >= q->need;
}

/* A quorum must answer; the others have a little longer. */
static enum rc
hear_all(struct quorum *q, instant until, struct fault *f)
{
	enum rc rc = quorum_hear(q, until, has_quorum);

	if (rc == RC_OK && has_quorum(q))
		rc = quorum_hear(
		    q, instant_first(until, instant_now() + REST_PATIENCE), NULL);
	if (rc != RC_OK)
		return rc;
	return has_quorum(q) ? RC_OK : quorum_refused(q, f);
}

/* Has one told of it already whose keys were all told? */
static bool
is_told(const struct votes_view *v)
{
	for (size_t i = 0; i < v->quorum->n; i++) {
		const struct master *m = &v->quorum->masters[i];

		if (v->scanned[i] && master_has_vote(m) && m->vote.remembers)
			return true;
	}
	return false;
}

static enum rc
votes_lock(struct votes_view *v, const char *key)
{
	struct quorum *q = v->quorum;
	enum rc rc;

	quorum_name(q, key, v->bare);
	quorum_say(q, ASK_LOOK, "");
	quorum_ask(q, look_answer_by(v->look), NULL);
	rc = hear_all(q, look_answer_by(v->look), v->fault);
	if (rc == RC_OK && !is_told(v))
		votes_tell_lock(v, key, q->n - q->tally.answered);
	return rc;
}

/* All that a master knows of, page by page.  *done: that was all. */
static enum rc
votes_master(struct votes_view *v, size_t one, bool *done)
{
	struct quorum *q = v->quorum;
	struct master *m = &q->masters[one];
	char cursor[24] = "0", key[KEY_BYTES + 1];
	enum rc rc = RC_OK;

	*done = false;
	do {
		redisReply *page;
		const char *text;

		quorum_say(q, ASK_SCAN, cursor);
		quorum_ask_one(q, one, look_answer_by(v->look));
		if (quorum_hear(q, look_answer_by(v->look), NULL) != RC_OK ||
		    q->tally.answered == 0)
			return RC_OK;
		page = m->reply;
		m->reply = NULL;
		if (!page || !answer_members(page, 0, "s", &text)) {
			freeReplyObject(page);
			return RC_OK;
		}
		snprintf(cursor, sizeof cursor, "%s", text);
		for (size_t i = 1; rc == RC_OK && i < page->elements && !v->enough; i++)
			if (answer_members(page, i, "s", &text) &&
			    encode_read_key(key, text, strlen(text)))
				rc = votes_lock(v, key);
		freeReplyObject(page);
	} while (rc == RC_OK && strcmp(cursor, "0") != 0 && !v->enough);
	*done = rc == RC_OK;
	return rc;
}

/* What a quorum knows of: who holds is known to one of any quorum. */
static enum rc
votes_all(struct votes_view *v)
{
	size_t scanned = 0;
	enum rc rc = RC_OK;

	for (size_t i = 0; rc == RC_OK && i < v->quorum->n && !v->enough; i++) {
		rc = votes_master(v, i, &v->scanned[i]);
		scanned += v->scanned[i];
		if (!v->scanned[i])
			v->silent = &v->quorum->fan.peers[i];
	}
	if (rc != RC_OK || v->enough || scanned >= v->quorum->need)
		return rc;
	if (v->silent && v->silent->rc != RC_OK && v->silent->rc != RC_AGAIN)
		return fault_set(v->fault, v->silent->rc, "%s", v->silent->fault.text);
	return fault_set(v->fault, RC_AGAIN,
	    "%zu of %zu masters do not answer, and only %zu may fail",
	    v->quorum->n - scanned, v->quorum->n, v->quorum->n - v->quorum->need);
}

/* As look_each(). */
enum rc
redlock_each(struct store *s, const struct look *look, struct fault *f)
{
	struct redlock *r = redlock_of(s);
	struct votes_view v = {
	    .quorum = &r->quorum, .bare = redlock_is_bare(r), .look = look, .fault = f};

	for (size_t i = 0; i < r->quorum.n; i++)
		if (r->quorum.fan.peers[i].bounds != &resp_pages) {
			fan_close(&r->quorum.fan.peers[i]);
			r->quorum.fan.peers[i].bounds = &resp_pages;
		}
	return look->key ? votes_lock(&v, store_key(&r->store, look->key))
			 : votes_all(&v);
}

/* ---- taking away ---- */

enum rc
redlock_revoke(struct store *s, const struct target *target, const char *record,
    bool force, instant until, struct fault *f)
{
	struct redlock *r = redlock_of(s);
	struct quorum *q = &r->quorum;
	const struct tally *t = &q->tally;
	struct script_call *c;
	enum rc rc;

	quorum_name(q, store_key(&r->store, target->key), redlock_is_bare(r));
	c = quorum_say(q, ASK_REVOKE, target->owner ? target->owner : "");
	script_number(c, (int64_t)target->token);
	script_word(c, record);
	script_word(c, force ? "1" : "0");
	quorum_ask(q, until, NULL);
	rc = hear_all(q, until, f);
	if (rc != RC_OK)
		return rc;
	if (t->votes[VERDICT_YES] >= q->need ||
	    (t->votes[VERDICT_YES] > 0 && t->answered == q->n))
		return RC_OK;
	return t->votes[VERDICT_YES] > 0
	    ? quorum_refused(q, f)
	    : fault_set(f, RC_LOST, "%s: this holder no longer has the lock", q->where);
}
