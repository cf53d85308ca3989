/* quorum.c - N independent masters, asked at once. */
#include "quorum.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* ---- its life ---- */

static enum heard quorum_take(void *ctx, size_t i, int number, redisReply **);

/* The name for people says where one is, and nothing else. */
static bool
is_twice(const struct quorum *q, size_t i)
{
	for (size_t j = 0; j < i; j++)
		if (strcasecmp(q->masters[i].where, q->masters[j].where) == 0)
			return true;
	return false;
}

/* Each is a server of its own; who we are, and the database, go for all. */
static enum rc
set_masters(struct quorum *q, const struct address *all, struct fault *f)
{
	for (size_t i = 0; i < q->n; i++) {
		struct master *m = &q->masters[i];

		m->address = *all;
		m->address.form = FORM_SINGLE;
		m->address.n = 1;
		m->address.hosts[0] = all->hosts[i];
		address_print(&m->address, m->where, sizeof m->where);
		if (is_twice(q, i))
			return fault_set(f, RC_USAGE,
			    "the redlock URL names the same host twice (redlock[s]://[user:password@]host[:port],host,host...[/db])");
		m->fan = &q->fan;
		m->peer = &q->fan.peers[i];
		m->names = &q->names;
		fan_set(
		    &q->fan, i, &m->address, &m->address.hosts[0], m->where, &resp_usual);
	}
	return RC_OK;
}

enum rc
quorum_begin(struct quorum *q, struct host *host, const char *url, struct fault *f)
{
	struct address all;
	enum rc rc = address_parse(&all, url, f);

	*q = (struct quorum){.host = host};
	if (rc != RC_OK)
		return rc;
	address_print(&all, q->where, sizeof q->where);
	q->masters = calloc(all.n, sizeof *q->masters);
	if (!q->masters)
		return fault_set(f, RC_SYSTEM, "out of memory");
	q->n = all.n;
	q->need = q->n / 2 + 1;
	q->peers = calloc(q->n, sizeof *q->peers);
	if (!q->peers || !fan_begin(&q->fan, host, q->peers, q->n, quorum_take, q))
		rc = fault_set(f, RC_SYSTEM, "no descriptor, or no memory, is left");
	if (rc == RC_OK)
		rc = set_masters(q, &all, f);
	explicit_bzero(&all, sizeof all);
	return rc;
}

enum rc
quorum_secure(struct quorum *q, const struct tls_settings *settings, struct fault *f)
{
	enum rc rc = tls_open_if(
	    q->masters[0].address.secure, "redlocks://", &q->tls, settings, f);

	for (size_t i = 0; i < q->n; i++)
		q->masters[i].address.tls = q->tls;
	return rc;
}

void
quorum_end(struct quorum *q)
{
	fan_end(&q->fan);
	free(q->peers);
	for (size_t i = 0; i < q->n; i++)
		freeReplyObject(q->masters[i].reply);
	tls_close(q->tls);
	if (q->masters)
		explicit_bzero(q->masters, q->n * sizeof *q->masters);
	free(q->masters);
}

static uint64_t
hash(const char *text, uint64_t h)
{
	for (; *text; text++) /* FNV-1a */
		h = (h ^ (unsigned char)*text) * 1099511628211ULL;
	return h;
}

/* In whatever order the URL names them. */
static size_t
listener_of(const struct quorum *q, const char *key)
{
	uint64_t best = 0;
	size_t at = 0;

	for (size_t i = 0; i < q->n; i++) {
		uint64_t h = hash(key, hash(q->masters[i].where, 1469598103934665603ULL));

		h ^= h >> 29;
		if (h > best || i == 0) {
			best = h;
			at = i;
		}
	}
	return at;
}

void
quorum_name(struct quorum *q, const char *key, bool bare)
{
	struct master_names *names = &q->names;
	char tag[ENCODED_BYTES];

	encode_key(tag, sizeof tag, key);
	snprintf(names->lock, sizeof names->lock, bare ? "%s" : "dlock:{%s}:redlock",
	    bare ? key : tag);
	snprintf(names->data, sizeof names->data, "dlock:{%s}:redlock-data", tag);
	snprintf(names->wake, sizeof names->wake, "dlock:{%s}:redlock-wake", tag);
	q->listener = listener_of(q, key);
}

/* ---- a round ---- */

static enum heard
quorum_take(void *ctx, size_t i, int number, redisReply **reply)
{
	struct quorum *q = ctx;

	return master_hear(&q->masters[i], number, reply);
}

static void
quorum_put(struct quorum *q, const struct order *order, const bool *picked)
{
	/* whoever listens there is told when the others have been */
	for (size_t n = 1; n <= q->n; n++) {
		size_t i = (q->listener + n) % q->n;

		q->masters[i].asked = picked[i];
		if (picked[i])
			master_ask(&q->masters[i], order);
	}
}

void
quorum_ask(struct quorum *q, const struct order *order,
    bool (*whom)(const struct quorum *, const struct master *))
{
	bool picked[REDLOCK_MOST] = {false};

	for (size_t i = 0; i < q->n; i++)
		picked[i] = !whom || whom(q, &q->masters[i]);
	quorum_put(q, order, picked);
}

void
quorum_ask_one(struct quorum *q, size_t i, const struct order *order)
{
	bool picked[REDLOCK_MOST] = {false};

	picked[i] = true;
	quorum_put(q, order, picked);
}

static void
count_one(struct master *m, struct tally *t)
{
	if (m->peer->rc != RC_OK) {
		m->rc = m->peer->rc;
		m->fault = m->peer->fault;
	}
	t->failed += m->rc != RC_OK;
	t->foreign += m->foreign;
	if (m->rc != RC_OK)
		return;
	t->answered++;
	t->votes[m->vote.verdict]++;
	if (m->vote.verdict != VERDICT_YES)
		return;
	t->young += m->order.kind == ORDER_ACQUIRE && !restart_is_over(m->vote.known);
	if (m->vote.token > t->token)
		t->token = m->vote.token;
}

void
quorum_count(struct quorum *q, struct tally *t)
{
	*t = (struct tally){.open = 0};
	for (size_t i = 0; i < q->n; i++)
		if (q->masters[i].asked && q->masters[i].peer->busy)
			t->open++;
		else if (q->masters[i].asked)
			count_one(&q->masters[i], t);
}

static bool
has_heard_enough(void *ctx)
{
	struct quorum *q = ctx;

	quorum_count(q, q->tally);
	return q->tally->open == 0 || (q->enough && q->enough(q, q->tally));
}

enum rc
quorum_hear(struct quorum *q, instant until,
    bool (*enough)(const struct quorum *, const struct tally *), struct tally *t)
{
	enum rc rc;

	q->enough = enough;
	q->tally = t;
	rc = fan_hear(&q->fan, until, has_heard_enough);
	quorum_count(q, t);
	return rc;
}

bool
quorum_has_voted(const struct quorum *q, const struct tally *t)
{
	return t->votes[VERDICT_YES] >= q->need || t->answered + t->open < q->need ||
	    (t->answered >= q->need && t->open == 0);
}

enum rc
quorum_sleep(struct quorum *q, instant until)
{
	enum rc rc = fan_hear(&q->fan, until, NULL);

	if (rc != RC_OK || instant_now() >= until)
		return rc;
	return q->host->wait(q->host, -1, 0, until) == WOKE_STOP ? RC_STOP : RC_OK;
}

/* ---- what was heard in it ---- */

/* The votes of one owner other than us. */
static size_t
votes_of(const struct quorum *q, const char *owner)
{
	size_t n = 0;

	for (size_t i = 0; i < q->n; i++) {
		const struct master *m = &q->masters[i];

		n += master_has_vote(m) && m->vote.verdict == VERDICT_NO &&
		    strcmp(m->vote.owner, owner) == 0;
	}
	return n;
}

const struct vote *
quorum_find_holder(const struct quorum *q)
{
	const struct vote *found = NULL;

	for (size_t i = 0; i < q->n; i++) {
		const struct master *m = &q->masters[i];

		if (master_has_vote(m) && m->vote.verdict == VERDICT_NO &&
		    votes_of(q, m->vote.owner) >= q->need && (!found || !*found->record))
			found = &m->vote;
	}
	return found;
}

void
quorum_find_mark(const struct quorum *q, char *mark, size_t size)
{
	*mark = '\0';
	for (size_t i = 0; i < q->n && !*mark; i++)
		if (master_has_vote(&q->masters[i]))
			snprintf(mark, size, "%s", q->masters[i].vote.record);
}

bool
quorum_is_repeated(const struct quorum *q)
{
	for (size_t i = 0; i < q->n; i++)
		if (master_has_vote(&q->masters[i]) && q->masters[i].peer->repeated)
			return true;
	return false;
}

static bool
is_permanent(enum rc rc)
{
	return rc == RC_DENIED || rc == RC_CONFIG || rc == RC_PROTOCOL ||
	    rc == RC_SYSTEM || rc == RC_USAGE;
}

enum rc
quorum_refused(const struct quorum *q, const struct tally *t, struct fault *f)
{
	const struct master *first = NULL, *permanent = NULL;
	size_t n = 0, missing = t->failed;

	for (size_t i = 0; i < q->n; i++) {
		const struct master *m = &q->masters[i];

		if (!master_is_heard(m) || m->rc == RC_OK)
			continue;
		if (!first)
			first = m;
		if (is_permanent(m->rc) && n++ == 0)
			permanent = m;
	}
	if (n > q->n - q->need)
		return fault_set(f, permanent->rc,
		    "%.500s (so it is on %zu of %zu masters)", permanent->fault.text, n,
		    q->n);
	if (missing <= q->n - q->need)
		missing = q->n - t->answered;
	if (missing <= q->n - q->need)
		return fault_set(f, RC_AGAIN,
		    "only %zu of %zu masters say that it is ours, and %zu must",
		    t->votes[VERDICT_YES], q->n, q->need);
	return fault_set(f, RC_AGAIN,
	    "%zu of %zu masters do not answer, and only %zu may fail (%.400s)", missing,
	    q->n, q->n - q->need, first ? first->fault.text : "all are silent");
}

enum rc
quorum_check_twins(const struct quorum *q, struct fault *f)
{
	for (size_t i = 0; i < q->n; i++)
		for (size_t j = 0; j < i; j++) {
			const struct master *a = &q->masters[j], *b = &q->masters[i];

			if (master_has_vote(a) && master_has_vote(b) && *a->vote.run &&
			    strcmp(a->vote.run, b->vote.run) == 0)
				return fault_set(f, RC_CONFIG,
				    "%.150s and %.150s are one server, whose vote would count twice",
				    a->where, b->where);
		}
	return RC_OK;
}
