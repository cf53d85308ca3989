/* redlock_look.c - what locks there are on a quorum of masters, and taking them away. */
#include "redlock_look.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* for the rest, once a quorum has answered */
#define REST_PATIENCE (300 * NS_PER_MS)

/* What is being told. */
struct view {
	struct quorum *quorum;
	bool bare;
	const struct look *look;
	struct fault *fault;
	bool scanned[REDLOCK_MOST];  /* all keys of these have been told */
	const struct master *silent; /* whose keys could not be told; NULL: none */
	bool enough;                 /* nobody wants to hear more */
};

/* What one master says of a lock; times are us by its own clock. */
struct ballot {
	const char *owner; /* "": nobody has its vote */
	const char *record;
	int64_t now, since, until; /* -1: not known, never */
	uint64_t token;
	bool revoked, known;
};

/* ---- one master's answer ---- */

/* False: it has said nothing that could be understood. */
static bool
read_ballot(const struct master *m, struct ballot *b)
{
	int64_t token, revoked, known;

	if (!master_has_vote(m) || !m->reply ||
	    !answer_members(m->reply, 0, "osoooisi", &b->now, &b->owner, &token,
		&b->since, &b->until, &revoked, &b->record, &known))
		return false;
	b->token = token > 0 ? token : 0;
	b->revoked = revoked == 1;
	b->known = known == 1;
	return b->now >= 0;
}

/* How many have given their vote to `owner`. */
static size_t
count_votes(const struct quorum *q, const char *owner)
{
	struct ballot b;
	size_t n = 0;

	for (size_t i = 0; i < q->n; i++)
		n += read_ballot(&q->masters[i], &b) && strcmp(b.owner, owner) == 0;
	return n;
}

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
sum_up(const struct quorum *q, const struct ballot *first, struct entry *e)
{
	int64_t left[REDLOCK_MOST] = {0}, held = -1;
	struct ballot b;
	size_t n = 0;

	for (size_t i = 0; i < q->n; i++) {
		if (!read_ballot(&q->masters[i], &b) ||
		    strcmp(b.owner, first->owner) != 0)
			continue;
		left[n++] = b.until < 0 ? INT64_MAX : b.until - b.now;
		if (b.since >= 0 && b.now - b.since > held)
			held = b.now - b.since;
		if (b.token > e->token)
			e->token = b.token;
		if (*b.record)
			e->record = b.record;
		e->revoked = e->revoked || b.revoked;
	}
	qsort(left, n, sizeof *left, compare_down);
	if (left[q->need - 1] != INT64_MAX)
		e->until = first->now + left[q->need - 1];
	if (held >= 0)
		e->since = first->now - held;
}

static void
votes_tell(struct view *v, const char *key, struct entry *e, int64_t now)
{
	e->key = key;
	v->enough = v->enough || !v->look->see(v->look->ctx, e, now);
}

static void
votes_tell_holder(struct view *v, const char *key, const struct ballot *first)
{
	static const struct foreign other = {
	    .what = "a lock of another client of Redlock"};
	struct entry e = {.kind = ENTRY_HOLDER,
	    .slot = -1,
	    .since = EPOCH_NONE,
	    .until = EPOCH_NONE,
	    .owner = first->owner};

	sum_up(v->quorum, first, &e);
	if (!e.record)
		e.foreign = &other;
	votes_tell(v, key, &e, first->now);
}

static void
votes_tell_votes(
    struct view *v, const char *key, size_t votes, size_t silent, int64_t now)
{
	char what[160];
	struct entry e = {.kind = ENTRY_UNKNOWN,
	    .slot = -1,
	    .since = EPOCH_NONE,
	    .until = EPOCH_NONE,
	    .what = what};

	snprintf(what, sizeof what,
	    "it may be held: it has the votes of %zu of %zu masters, and %zu of them do not answer",
	    votes, v->quorum->n, silent);
	votes_tell(v, key, &e, now);
}

/*
 * Nobody, a holder, or one who may be that: fewer votes, even with those of the
 * masters that do not answer, are an attempt under way or what is left of a hold.
 */
static void
votes_tell_lock(struct view *v, const char *key, size_t silent)
{
	const struct quorum *q = v->quorum;
	size_t votes = 0;
	struct ballot b;
	int64_t now = 0;

	for (size_t i = 0; i < q->n; i++) {
		size_t n;

		if (!read_ballot(&q->masters[i], &b) || !*b.owner)
			continue;
		n = count_votes(q, b.owner);
		if (n >= q->need) {
			votes_tell_holder(v, key, &b);
			return;
		}
		if (n > votes) {
			votes = n;
			now = b.now;
		}
	}
	if (votes > 0 && votes + silent >= q->need)
		votes_tell_votes(v, key, votes, silent, now);
}

/* ---- one lock, all locks ---- */

static bool
has_quorum(const struct quorum *q, const struct tally *t)
{
	return t->answered >= q->need;
}

/* A quorum must answer; the others have a little longer. */
static enum rc
hear_all(struct quorum *q, instant until, struct tally *t, struct fault *f)
{
	enum rc rc = quorum_hear(q, until, has_quorum, t);

	if (rc == RC_OK && t->answered >= q->need)
		rc = quorum_hear(
		    q, instant_first(until, instant_now() + REST_PATIENCE), NULL, t);
	if (rc != RC_OK)
		return rc;
	return t->answered >= q->need ? RC_OK : quorum_refused(q, t, f);
}

/* Has one told of it already whose keys were all told? */
static bool
is_told(const struct view *v)
{
	struct ballot b;

	for (size_t i = 0; i < v->quorum->n; i++)
		if (v->scanned[i] && read_ballot(&v->quorum->masters[i], &b) && b.known)
			return true;
	return false;
}

static enum rc
votes_lock(struct view *v, const char *key)
{
	struct order order = {.kind = ORDER_LOOK, .until = v->look->until};
	struct tally t;
	enum rc rc;

	quorum_name(v->quorum, key, v->bare);
	quorum_ask(v->quorum, &order, NULL);
	rc = hear_all(v->quorum, v->look->until, &t, v->fault);
	if (rc == RC_OK && !is_told(v))
		votes_tell_lock(v, key, v->quorum->n - t.answered);
	return rc;
}

/* The key of that name; false: no dlock would call one so. */
static bool
votes_key_of(char *key, const redisReply *names, size_t i)
{
	char again[ENCODED_BYTES];
	const char *name;

	return answer_members(names, i, "s", &name) &&
	    encode_undo(key, KEY_BYTES + 1, name, strlen(name)) > 0 &&
	    encode_key(again, sizeof again, key) > 0 && strcmp(again, name) == 0;
}

/* One page of the keys of one master, which is taken from it. */
static redisReply *
scan_page(struct view *v, size_t i, const char *cursor)
{
	struct order order = {.kind = ORDER_SCAN, .until = v->look->until};
	struct master *m = &v->quorum->masters[i];
	redisReply *page = NULL;
	const char *next;
	struct tally t;

	snprintf(order.owner, sizeof order.owner, "%s", cursor);
	quorum_ask_one(v->quorum, i, &order);
	if (quorum_hear(v->quorum, v->look->until, NULL, &t) == RC_OK && t.answered > 0 &&
	    answer_members(m->reply, 0, "s", &next)) {
		page = m->reply;
		m->reply = NULL;
	}
	return page;
}

static enum rc
votes_names(struct view *v, const redisReply *page)
{
	char key[KEY_BYTES + 1];
	enum rc rc = RC_OK;

	for (size_t i = 1; rc == RC_OK && i < page->elements && !v->enough; i++)
		if (votes_key_of(key, page, i))
			rc = votes_lock(v, key);
	return rc;
}

/* All that a master knows of.  *done: that was all. */
static enum rc
votes_master(struct view *v, size_t i, bool *done)
{
	char cursor[24] = "0";
	enum rc rc = RC_OK;

	*done = false;
	do {
		redisReply *page = scan_page(v, i, cursor);

		if (!page)
			return RC_OK;
		snprintf(cursor, sizeof cursor, "%s", page->element[0]->str);
		rc = votes_names(v, page);
		freeReplyObject(page);
	} while (rc == RC_OK && strcmp(cursor, "0") != 0 && !v->enough);
	*done = rc == RC_OK;
	return rc;
}

/* What a quorum knows of: who holds is known to one of any quorum. */
static enum rc
votes_all(struct view *v)
{
	size_t scanned = 0;
	enum rc rc = RC_OK;

	for (size_t i = 0; rc == RC_OK && i < v->quorum->n && !v->enough; i++) {
		bool done;

		rc = votes_master(v, i, &done);
		v->scanned[i] = done;
		scanned += done;
		if (!done)
			v->silent = &v->quorum->masters[i];
	}
	if (rc != RC_OK || v->enough || scanned >= v->quorum->need)
		return rc;
	if (v->silent && v->silent->rc != RC_OK && v->silent->rc != RC_AGAIN)
		return fault_set(v->fault, v->silent->rc, "%s", v->silent->fault.text);
	return fault_set(v->fault, RC_AGAIN,
	    "%zu of %zu masters do not answer, and only %zu may fail",
	    v->quorum->n - scanned, v->quorum->n, v->quorum->n - v->quorum->need);
}

/* Pages are larger than what is said to a claim. */
static void
let_pages_in(struct quorum *q)
{
	for (size_t i = 0; i < q->n; i++) {
		fan_close(&q->fan.peers[i]);
		wire_bound(&q->fan.peers[i].wire, &resp_pages);
	}
}

enum rc
redlock_each(struct quorum *q, bool bare, const struct look *look, struct fault *f)
{
	struct view v = {.quorum = q, .bare = bare, .look = look, .fault = f};

	let_pages_in(q);
	return look->key ? votes_lock(&v, look->key) : votes_all(&v);
}

/* ---- taking away ---- */

enum rc
redlock_revoke(struct quorum *q, bool bare, const struct target *target,
    const char *record, bool force, instant until, struct fault *f)
{
	struct order order = {.kind = ORDER_REVOKE,
	    .token = target->token,
	    .record = record,
	    .flag = force,
	    .until = until};
	struct tally t;
	enum rc rc;

	snprintf(
	    order.owner, sizeof order.owner, "%s", target->owner ? target->owner : "");
	quorum_name(q, target->key, bare);
	quorum_ask(q, &order, NULL);
	rc = hear_all(q, until, &t, f);
	if (rc != RC_OK)
		return rc;
	if (t.votes[VERDICT_YES] >= q->need ||
	    (t.votes[VERDICT_YES] > 0 && t.answered == q->n))
		return RC_OK;
	return t.votes[VERDICT_YES] > 0
	    ? quorum_refused(q, &t, f)
	    : fault_set(
		  f, RC_LOST, "%s: who held it by this grant does so no more", q->where);
}
