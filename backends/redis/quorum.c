/* quorum.c - N independent masters, asked at once. */
#include "quorum.h"

#include "backends/common/url.h"
#include "restart.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* ---- from a URL ---- */

static enum rc
bad_url(struct fault *f, const char *what)
{
	return fault_set(f, RC_USAGE,
	    "the redlock URL %s (redlock[s]://[user:password@]host[:port],host,host...[/db])",
	    what);
}

static bool
wants_tls(const struct url *u)
{
	return url_part_is(&u->scheme, "redlocks");
}

/* Reads one host as if it were the only one: who we are, and the database, go for all. */
static enum rc
read_master(
    struct address *a, const struct url *u, const struct url_part *host, struct fault *f)
{
	const char *login = u->scheme.at + u->scheme.n + strlen("://");
	size_t size = strlen(login) + 32;
	char *url = malloc(size);
	enum rc rc;

	if (!url)
		return fault_set(f, RC_SYSTEM, "out of memory");
	snprintf(url, size, "%s://%.*s%.*s%s", wants_tls(u) ? "rediss" : "redis",
	    (int)(u->hosts.at - login), login, (int)host->n, host->at,
	    u->hosts.at + u->hosts.n);
	rc = address_parse(a, url, f);
	explicit_bzero(url, size);
	free(url);
	return rc;
}

/* Of a list of hosts; 0: too many. */
static size_t
count_hosts(struct url_part list)
{
	size_t n = 0;

	while (list.at && n <= QUORUM_MOST) {
		url_part_first(&list);
		n++;
	}
	return n <= QUORUM_MOST ? n : 0;
}

/* The name for people says where one is, and nothing else. */
static bool
is_twice(const struct quorum *q, size_t i)
{
	for (size_t j = 0; j < i; j++)
		if (strcasecmp(q->masters[i].where, q->masters[j].where) == 0)
			return true;
	return false;
}

static void
print_where(struct quorum *q)
{
	size_t used = snprintf(q->where, sizeof q->where, "redlock");

	for (size_t i = 0; i < q->n && used < sizeof q->where; i++)
		used += snprintf(q->where + used, sizeof q->where - used, "%s%s",
		    i ? "," : " ", strchr(q->masters[i].where, ' ') + 1);
}

static enum rc
read_masters(struct quorum *q, const struct url *u, struct fault *f)
{
	struct url_part list = u->hosts;

	for (size_t i = 0; i < q->n; i++) {
		struct url_part host = url_part_first(&list);
		struct master *m = &q->masters[i];
		enum rc rc = host.n == 0 ? bad_url(f, "names an empty host")
					 : read_master(&m->address, u, &host, f);

		if (rc != RC_OK)
			return rc;
		master_init(m, together_host(&q->together, i), &q->names);
		if (is_twice(q, i))
			return bad_url(f, "names the same host twice");
	}
	print_where(q);
	return RC_OK;
}

enum rc
quorum_begin(struct quorum *q, struct host *host, const char *text, struct fault *f)
{
	struct url u;
	const char *wrong = url_cut(&u, text);
	enum rc rc;

	*q = (struct quorum){.host = host};
	if (wrong)
		return bad_url(f, wrong);
	q->n = count_hosts(u.hosts);
	if (q->n < QUORUM_LEAST) {
		bool many = q->n == 0;

		q->n = 0;
		return bad_url(
		    f, many ? "names more than 15 hosts" : "needs at least three hosts");
	}
	q->need = q->n / 2 + 1;
	q->masters = calloc(q->n, sizeof *q->masters);
	rc = q->masters ? together_begin(&q->together, host, q->n, f)
			: fault_set(f, RC_SYSTEM, "out of memory");
	q->is_begun = q->masters;
	return rc == RC_OK ? read_masters(q, &u, f) : rc;
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
	if (q->is_begun)
		together_end(&q->together);
	for (size_t i = 0; q->masters && i < q->n; i++)
		if (q->masters[i].names)
			master_close(&q->masters[i]);
	tls_close(q->tls);
	if (q->masters)
		explicit_bzero(q->masters, q->n * sizeof *q->masters);
	free(q->masters);
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
	q->listener = quorum_listens_at(q, key);
}

/* ---- a round ---- */

bool
quorum_has_heard(const struct quorum *q, const struct master *m)
{
	return q->asked_to[m - q->masters] && m->answered == q->round;
}

static void
quorum_put(struct quorum *q, const struct order *order, const bool *picked)
{
	q->round++;
	memcpy(q->asked_to, picked, sizeof q->asked_to);
	/* whoever listens there is told when the others have been */
	for (size_t n = 1; n <= q->n; n++) {
		size_t i = (q->listener + n) % q->n;
		struct master *m = &q->masters[i];

		if (!picked[i])
			continue;
		m->next = *order;
		m->next.round = q->round;
		m->has_next = true;
		if (!together_is_busy(&q->together, i))
			together_start(&q->together, i, master_run, m);
	}
}

void
quorum_ask(struct quorum *q, const struct order *order,
    bool (*whom)(const struct quorum *, const struct master *))
{
	bool picked[QUORUM_MOST] = {false};

	for (size_t i = 0; i < q->n; i++)
		picked[i] = !whom || whom(q, &q->masters[i]);
	quorum_put(q, order, picked);
}

void
quorum_ask_one(struct quorum *q, size_t i, const struct order *order)
{
	bool picked[QUORUM_MOST] = {false};

	picked[i] = true;
	quorum_put(q, order, picked);
}

static void
count_one(const struct master *m, struct tally *t)
{
	t->failed += m->rc != RC_OK;
	if (m->rc != RC_OK)
		return;
	t->answered++;
	t->votes[m->vote.verdict]++;
	if (m->vote.verdict == VERDICT_YES && m->vote.token > t->token)
		t->token = m->vote.token;
}

static bool
is_young(const struct master *m)
{
	return m->rc == RC_OK && m->order.kind == ORDER_ACQUIRE &&
	    m->vote.verdict == VERDICT_YES && !restart_is_over(m->vote.known);
}

void
quorum_count(const struct quorum *q, struct tally *t)
{
	*t = (struct tally){.open = 0};
	for (size_t i = 0; i < q->n; i++) {
		const struct master *m = &q->masters[i];

		if (q->asked_to[i] && m->answered != q->round)
			t->open++;
		if (!quorum_has_heard(q, m))
			continue;
		count_one(m, t);
		t->young += is_young(m);
	}
}

enum rc
quorum_hear(struct quorum *q, instant until,
    bool (*enough)(const struct quorum *, const struct tally *), struct tally *t)
{
	enum woke woke = WOKE_READY;

	for (;;) {
		quorum_count(q, t);
		if (t->open == 0 || (enough && enough(q, t)) || woke == WOKE_TIMEOUT)
			return RC_OK;
		woke = together_wait(&q->together, until);
		if (woke == WOKE_STOP)
			return RC_STOP;
	}
}

void
quorum_hurry(struct quorum *q)
{
	for (size_t i = 0; i < q->n; i++)
		for (int tries = 0; q->masters[i].has_next && tries < 8 &&
		     together_is_busy(&q->together, i);
		     tries++)
			together_cut(&q->together, i);
}

void
quorum_drop(struct quorum *q)
{
	for (size_t i = 0; i < q->n; i++)
		q->masters[i].has_next = false;
	together_stop(&q->together);
}

enum rc
quorum_sleep(struct quorum *q, instant until)
{
	for (;;)
		switch (together_wait(&q->together, until)) {
		case WOKE_STOP:
			return RC_STOP;
		case WOKE_TIMEOUT:
			return RC_OK;
		case WOKE_READY:
			break;
		}
}

/* ---- what is common to all of them ---- */

static uint64_t
hash(const char *text, uint64_t h)
{
	for (; *text; text++) /* FNV-1a */
		h = (h ^ (unsigned char)*text) * 1099511628211ULL;
	return h;
}

size_t
quorum_listens_at(const struct quorum *q, const char *key)
{
	uint64_t best = 0;
	size_t at = 0;

	/* in whatever order the URL names them */
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

		if (!quorum_has_heard(q, m) || m->rc == RC_OK)
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

			if (quorum_has_heard(q, a) && a->rc == RC_OK &&
			    quorum_has_heard(q, b) && b->rc == RC_OK && *a->vote.run &&
			    strcmp(a->vote.run, b->vote.run) == 0)
				return fault_set(f, RC_CONFIG,
				    "%.150s and %.150s are one server, whose vote would count twice",
				    a->where, b->where);
		}
	return RC_OK;
}
