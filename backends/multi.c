/* multi.c - takes several keys as one lock, with a store for each: see multi.h. */
#include "multi.h"

#include "backends/common/alert.h"
#include "backends/common/identity.h"
#include "backends/common/trace.h"

#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#define ATTEMPT (3 * NS_PER_S)  /* for a renewal while we wait, or a tenth of the ttl */
#define GIVE_BACK NS_PER_S      /* for what is given back to be asked for again, */
#define PAUSE (100 * NS_PER_MS) /* and the pause before they are */
#define NAME_SHOWN 100          /* bytes of a key in front of a text */

/* One key. */
struct part {
	struct host host; /* must be first: the store's way back to us */
	struct multi *multi;
	struct store *store; /* NULL: it could not be opened again */
	const char *key;
	size_t index; /* among the keys as named */
	struct claim claim;
	char owner[OWNER_CHARS + 1];
	struct grant grant;
	instant due;        /* when to renew it while we wait for another */
	enum rc rc;         /* of the last renewal or release */
	struct fault fault; /* and its words */
	bool asked;         /* its server may know of us */
};

struct multi {
	struct store base;
	const struct backend *backend;
	const struct site *site;
	const struct claim *claim; /* the caller's */
	char where[WHERE_BYTES];

	/* how far acquire has come */
	const struct part *asking; /* the one being acquired; NULL */
	size_t held;               /* parts[0..held) are ours, */
	size_t gone;               /* but this one no longer; n: none */
	bool stop;                 /* a renewal beside the waiting was told to stop */
	unsigned again; /* how often one was asked for again: makes owners fresh */

	struct alert_pace alert_pace; /* of alerts while we wait */
	struct fault notice;          /* the last one that was passed on */
	size_t behind;                /* where the next renewal begins */
	size_t n;
	struct part parts[]; /* in the order of their keys */
};

static const struct backend multi_backend;

static struct multi *
multi_of(struct store *s)
{
	return (struct multi *)store_of(s, &multi_backend);
}

static struct part *
named(struct multi *m, size_t index)
{
	struct part *p = m->parts;

	while (p->index != index)
		p++;
	return p;
}

/* ---- telling the caller ---- */

/* Writes "KEY: TEXT", or "KEY" where the text is "". */
static void
name_key(const struct part *p, const char *text, struct fault *f)
{
	size_t n = strnlen(p->key, NAME_SHOWN);
	struct fault named;

	while (n > 0 && (p->key[n] & 0xC0) == 0x80) /* whole characters */
		n--;
	snprintf(named.text, sizeof named.text, "%.*s%s%s%.*s", (int)n, p->key,
	    p->key[n] ? "..." : "", *text ? ": " : "",
	    (int)(sizeof named.text - NAME_SHOWN - 8), text);
	*f = named;
}

/* Passes a part's notice on.  It waits while the caller has not taken the last one. */
static void
pass_notice(struct part *p)
{
	struct multi *m = p->multi;
	struct fault *to = &m->base.host->notice;

	if (!*p->host.notice.text || *to->text)
		return;
	if (strcmp(p->host.notice.text, m->notice.text) != 0)
		*to = m->notice = p->host.notice;
	p->host.notice.text[0] = '\0';
}

/* Traces a call.  `g`: the grant that it has earned; NULL: such a call earns none. */
static void
pass_call(struct part *p, const char *call, instant began, enum rc rc,
    const struct grant *g, struct fault *f)
{
	trace_call(p->multi->base.host, p->store, p->key, call, began, rc, g, f);
	if (*f->text)
		name_key(p, f->text, f);
	pass_notice(p);
}

static instant
part_ends(const struct part *p)
{
	return instant_after(p->grant.sent, p->grant.lease);
}

static int64_t
pace(const struct part *p)
{
	int64_t lease = p->grant.lease == LEASE_FOREVER ? p->claim.ttl : p->grant.lease;

	return p->grant.pace ? p->grant.pace : lease / 3;
}

/* When to renew the part next, after its grant. */
static int64_t
next_pace(const struct part *p)
{
	return p->grant.soon ? p->grant.soon : pace(p);
}

static int64_t
attempt_time(const struct multi *m)
{
	return instant_first(m->claim->ttl / 10, ATTEMPT);
}

/*
 * The deadline for one part of those that are still to be asked.  Each gets an equal share of the
 * time, so that a silent one leaves the others theirs; but at least a quarter, for a server that
 * is far away.
 */
static instant
share(instant until, size_t left)
{
	instant now = instant_now();

	return until == NEVER ? NEVER
			      : now + (until - now) / (int64_t)(left < 4 ? left : 4);
}

static instant
next_due(const struct multi *m)
{
	instant due = NEVER;

	for (size_t i = 0; i < m->held; i++)
		due = instant_first(due, m->parts[i].due);
	return due;
}

/* Makes the grant of all parts: it is worth as much as the worst of them. */
static void
combine(struct multi *m, struct grant *g)
{
	const struct part *first = m->parts, *p;
	int64_t shortest = pace(first), soon = next_pace(first);
	int anchor = -1;

	for (p = m->parts; p < m->parts + m->n; p++) {
		first = part_ends(p) < part_ends(first) ? p : first;
		shortest = instant_first(shortest, pace(p));
		soon = instant_first(soon, next_pace(p));
		anchor = anchor < 0 ? p->grant.anchor : anchor;
	}
	*g = named(m, 0)->grant;
	g->sent = first->grant.sent;
	g->lease = first->grant.lease;
	g->pace = shortest;
	g->soon = soon;
	g->anchor = anchor;
}

/* ---- asking the parts, one after the other ---- */

static bool
is_ready(int fd, short events)
{
	return poll(&(struct pollfd){.fd = fd, .events = events}, 1, 0) > 0;
}

/* The first part whose alert is ready and whose server may answer; n: there is none. */
static size_t
first_alert(const struct multi *m, size_t n)
{
	size_t i = 0;

	while (i < n &&
	    (m->parts[i].rc != RC_OK || !is_ready(m->parts[i].host.alert, POLLIN)))
		i++;
	return i;
}

/*
 * Renews those of the first n parts that may be ours, until one is lost.  A part with an alert
 * comes first; otherwise the part behind the one that was silent the last time.
 */
static void
renew_all(struct multi *m, size_t n, instant until)
{
	size_t first = first_alert(m, n);

	if (first == n)
		first = m->behind < n ? m->behind : 0;
	m->behind = first;
	for (size_t i = 0; i < n; i++) {
		struct part *p = &m->parts[(first + i) % n];
		instant began = instant_now();

		if (!p->asked)
			continue;
		p->fault.text[0] = p->host.breaker[0] = '\0';
		p->rc = p->store->backend->lock->renew(
		    p->store, share(until, n - i), &p->grant, &p->fault);
		pass_call(p, "renew", began, p->rc, &p->grant, &p->fault);
		p->due = p->rc == RC_OK
		    ? instant_after(p->grant.sent, next_pace(p))
		    : instant_first(instant_now() + attempt_time(m) / 3, part_ends(p));
		p->asked = p->rc != RC_LOST;
		if (p->rc == RC_LOST || p->rc == RC_STOP)
			return;
		if (p->rc != RC_OK && p->rc != RC_REVOKED && m->behind == first)
			m->behind = (first + i + 1) % n;
	}
}

/*
 * Releases the parts from parts[from] on that may be ours; `last` comes last (NULL: any order).
 * Once one is found to be lost, the rest gets NO_OUTCOME, so that no run is remembered as done.
 */
static void
release_all(
    struct multi *m, size_t from, struct part *last, struct outcome o, instant until)
{
	size_t left = 0;

	for (size_t i = from; i < m->n; i++)
		left += m->parts[i].asked;
	for (size_t i = from; i < m->n + (last != NULL); i++) {
		struct part *p = i < m->n ? &m->parts[i] : last;
		instant began = instant_now();

		if (!p->asked || (last && p == last && i < m->n))
			continue;
		p->fault.text[0] = p->host.breaker[0] = '\0';
		p->rc = p->store->backend->lock->release(
		    p->store, o, share(until, left--), &p->fault);
		pass_call(p, "release", began, p->rc, NULL, &p->fault);
		p->asked = p->rc != RC_OK && p->rc != RC_LOST;
		if (p->rc == RC_LOST)
			o = NO_OUTCOME;
	}
}

/* How much an rc matters beside the others. */
static int
weight(enum rc rc)
{
	return rc == RC_OK     ? 0
	    : rc == RC_STOP    ? 1
	    : rc == RC_REVOKED ? 3
	    : rc == RC_LOST    ? 4
			       : 2;
}

/*
 * The rc of all parts is the one that matters most, in the words of its part.  Where a part was
 * broken, the words name its key.
 */
static enum rc
gravest(struct multi *m, struct fault *f)
{
	const struct part *worst = m->parts;

	for (const struct part *p = m->parts; p < m->parts + m->n; p++)
		if (weight(p->rc) > weight(worst->rc))
			worst = p;
	if (worst->rc != RC_OK) {
		struct host *to = m->base.host;

		*f = worst->fault;
		memcpy(to->breaker, worst->host.breaker, sizeof to->breaker);
		to->secret = worst->host.secret;
		if (*to->breaker && weight(worst->rc) >= weight(RC_REVOKED))
			name_key(worst, "", f);
	}
	return worst->rc;
}

/* ---- keys that are held while we wait for another ---- */

/*
 * Makes a descriptor that is readable when an alert is, or when `fd` (unless -1) has its events.
 * -1: no part has an alert.  It is made anew each time, since a number may stand for another
 * descriptor by now.  The alert of a part that did not answer is still there, and is left out,
 * since it would end each wait.
 */
static int
gather_alerts(const struct multi *m, int fd, short events)
{
	struct epoll_event e = {.events = EPOLLIN};
	int all = -1;

	for (const struct part *p = m->parts; p < m->parts + m->held; p++) {
		if (p->host.alert < 0 || p->rc != RC_OK)
			continue;
		all = all < 0 ? epoll_create1(EPOLL_CLOEXEC) : all;
		epoll_ctl(all, EPOLL_CTL_ADD, p->host.alert, &e);
	}
	e.events = (uint32_t)events;
	if (all >= 0 && fd >= 0)
		epoll_ctl(all, EPOLL_CTL_ADD, fd, &e);
	return all;
}

static void
watch_alerts(struct multi *m)
{
	int *alert = &m->base.host->alert;

	if (*alert >= 0)
		close(*alert);
	*alert = gather_alerts(m, -1, 0);
}

/* Renews the parts that we hold, and notes whether one is lost. */
static void
keep_held(struct multi *m, instant until)
{
	renew_all(m, m->held, instant_first(until, instant_now() + attempt_time(m)));
	m->gone = m->n;
	for (size_t i = m->held; i-- > 0;) {
		const struct part *p = &m->parts[i];

		if (p->rc == RC_LOST || p->rc == RC_REVOKED ||
		    (p->rc != RC_OK && instant_now() >= part_ends(p)))
			m->gone = i;
		m->stop = m->stop || p->rc == RC_STOP;
	}
}

/*
 * From when alerts count: at once for session locks, where each alert may be a lock's end
 * (alert.h).
 */
static instant
listens_from(const struct multi *m)
{
	for (size_t i = 0; i < m->held; i++)
		if (m->parts[i].grant.anchor >= 0)
			return 0;
	return alert_due(&m->alert_pace, m->claim->ttl);
}

/* Shows the caller the queue of the part that is being acquired, and its key. */
static void
pass_seen(const struct part *p)
{
	struct host *outer = p->multi->base.host;

	outer->seen = p->host.seen;
	outer->seen.key = p->key;
	outer->secret = p->host.secret;
}

/*
 * Is host->wait of every part.  The part that is being acquired is stopped when one that we hold
 * is lost.
 */
static enum woke
part_wait(struct host *h, int fd, short events, instant until)
{
	struct part *p = (struct part *)h;
	struct multi *m = p->multi;
	struct host *outer = m->base.host;

	pass_notice(p);
	if (p != m->asking)
		return outer->wait(outer, fd, events, until);
	pass_seen(p);
	for (;;) {
		instant alert = listens_from(m), ends;
		enum woke woke;
		bool alerted;
		int all = -1;

		if (instant_now() >= next_due(m))
			keep_held(m, until);
		if (m->stop || m->gone < m->n)
			return WOKE_STOP;
		ends = instant_first(until, next_due(m));
		if (alert > instant_now())
			ends = instant_first(ends, alert); /* alerts count from then on */
		else
			all = gather_alerts(m, fd, events);
		woke = outer->wait(
		    outer, all >= 0 ? all : fd, all >= 0 ? POLLIN : events, ends);
		if (all >= 0)
			close(all);
		alerted = woke == WOKE_READY && all >= 0 && !is_ready(fd, events);
		if (woke != WOKE_TIMEOUT && !alerted)
			return woke;
		if (alerted) {
			alert_follow(&m->alert_pace, m->claim->ttl, instant_now());
			keep_held(m, until);
		}
		if (instant_now() >= until)
			return WOKE_TIMEOUT;
	}
}

/* ---- open and close ---- */

static enum rc
open_part(struct part *p, struct fault *f)
{
	struct multi *m = p->multi;
	enum rc rc;

	p->host = (struct host){.wait = part_wait,
	    .seen.holding.held = -1,
	    .alert = -1,
	    .verbose = m->base.host->verbose};
	p->rc = RC_OK;
	p->asked = false;
	rc = m->backend->open(&p->store, &p->host, m->site, f);
	if (rc != RC_OK)
		return rc;
	if (p->store->caps & ONE_LOCK)
		return fault_set(f, RC_USAGE,
		    "%s: a setting (-O) names the lock, so several keys would be the same lock: give one key",
		    p->store->where);
	/* the store's backend may differ from m->backend: some schemes have one of their own */
	if (p->store->backend->together)
		rc = p->store->backend->together(p->store, m->parts[0].key, p->key, f);
	return rc;
}

static void
multi_close(struct store *s)
{
	struct multi *m = s ? multi_of(s) : NULL;

	if (!m)
		return;
	for (size_t i = 0; i < m->n; i++)
		if (m->parts[i].store)
			m->parts[i].store->backend->close(m->parts[i].store);
	m->held = 0;
	watch_alerts(m);
	free(m);
}

/* All parts must have the same locks, since each has resolved the site for itself. */
static enum rc
multi_identify(struct store *s, struct identity *id, struct fault *f)
{
	static struct identity other;
	const struct identity begun = *id;
	struct multi *m = multi_of(s);
	enum rc rc = RC_OK;

	for (size_t i = 0; i < m->n && rc == RC_OK; i++) {
		struct store *one = m->parts[i].store;

		if (!one || !one->backend->identify)
			return fault_set(
			    f, RC_CONFIG, "it is not known which locks these are");
		other = begun;
		rc = one->backend->identify(one, &other, f);
		if (i == 0)
			*id = other;
		if (rc == RC_OK && strcmp(other.text, id->text) != 0)
			return fault_set(f, RC_CONFIG, "its keys are of two places");
	}
	return rc;
}

static int
compare_keys(const void *a, const void *b)
{
	return strcmp(((const struct part *)a)->key, ((const struct part *)b)->key);
}

enum rc
multi_open(struct store **ret, struct host *host, const struct backend *backend,
    const struct site *site, const char *const *keys, size_t n, struct fault *f)
{
	struct multi *m = calloc(1, sizeof *m + n * sizeof m->parts[0]);
	enum rc rc = RC_OK;

	if (!m)
		return fault_set(f, RC_SYSTEM, "out of memory");
	*m = (struct multi){
	    {&multi_backend, host, m->where, 0}, backend, site, .n = n, .gone = n};
	for (size_t i = 0; i < n; i++)
		m->parts[i] = (struct part){.multi = m, .key = keys[i], .index = i};
	qsort(m->parts, n, sizeof m->parts[0], compare_keys);
	for (size_t i = 0; i < n && rc == RC_OK; i++)
		rc = open_part(&m->parts[i], f);
	if (rc != RC_OK) {
		multi_close(&m->base);
		return rc;
	}
	m->base.caps = m->parts[0].store->caps;
	snprintf(m->where, sizeof m->where, "%s", m->parts[0].store->where);
	*ret = &m->base;
	return RC_OK;
}

const struct grant *
multi_grant(struct store *s, size_t i)
{
	return &named(multi_of(s), i)->grant;
}

/* ---- the calls ---- */

static enum rc
ask_part(struct part *p, instant until, struct fault *f)
{
	struct multi *m = p->multi;
	instant began = instant_now();
	enum rc rc;

	/* begins as the caller's owner, and is another one whenever a key is asked for again */
	snprintf(p->owner, sizeof p->owner, "%.*s%08x", OWNER_CHARS - 8, m->claim->owner,
	    (unsigned)strtoul(m->claim->owner + OWNER_CHARS - 8, NULL, 16) + m->again);
	p->claim = *m->claim;
	p->claim.key = p->key;
	p->claim.owner = p->owner;
	/* the job is the first one's; but each of them can show a run */
	if (p->index > 0)
		p->claim.job = (struct job){.remember = m->claim->job.remember};
	p->asked = true;
	f->text[0] = '\0';
	m->asking = p;
	rc = p->store->backend->lock->acquire(p->store, &p->claim, until, &p->grant, f);
	m->asking = NULL;
	p->due = rc == RC_OK ? instant_after(p->grant.sent, next_pace(p)) : NEVER;
	pass_seen(p);
	pass_call(p, "acquire", began, rc, &p->grant, f);
	return rc;
}

/* Gives back the lost part and all behind it, so that they can be asked for again. */
static enum rc
begin_again(struct multi *m, instant until, struct fault *f)
{
	struct host *outer = m->base.host;
	const char *why = m->parts[m->gone].fault.text;
	enum rc rc = RC_OK;

	if (!until)
		return fault_set(f, RC_BUSY, "%s", why);
	fault_set(&outer->notice, RC_OK, "%.500s; asking again", why);
	release_all(m, m->gone, NULL, NO_OUTCOME, instant_now() + GIVE_BACK);
	m->held = m->gone;
	m->gone = m->n;
	m->again++;
	if (outer->wait(outer, -1, 0, instant_now() + PAUSE) == WOKE_STOP)
		return RC_STOP;
	for (size_t i = m->held; i < m->n && rc == RC_OK; i++) {
		m->parts[i].store->backend->close(m->parts[i].store);
		m->parts[i].store = NULL;
		rc = open_part(&m->parts[i], f);
	}
	return rc;
}

static enum rc
multi_acquire(struct store *s, const struct claim *claim, instant until, struct grant *g,
    struct fault *f)
{
	struct multi *m = multi_of(s);
	enum rc rc = RC_OK;

	m->claim = claim;
	while (rc == RC_OK && m->held < m->n) {
		rc = ask_part(&m->parts[m->held], until, f);
		m->held += rc == RC_OK;
		if (m->held == m->n &&
		    (instant_now() >= next_due(m) || first_alert(m, m->n) < m->n))
			keep_held(m, NEVER);
		if (m->stop)
			rc = RC_STOP;
		else if (m->gone < m->n)
			rc = begin_again(m, until, f);
	}
	if (rc == RC_OK) {
		combine(m, g);
		watch_alerts(m);
	}
	return rc;
}

static enum rc
multi_renew(struct store *s, instant until, struct grant *g, struct fault *f)
{
	struct multi *m = multi_of(s);
	enum rc rc;

	renew_all(m, m->n, until);
	rc = gravest(m, f);
	if (rc == RC_OK || rc == RC_REVOKED)
		combine(m, g);
	watch_alerts(m);
	return rc;
}

/*
 * Never remembers a run as done whose lock was lost.  A loss that was known before is in
 * `status`.
 */
static enum rc
multi_release(struct store *s, struct outcome o, instant until, struct fault *f)
{
	struct multi *m = multi_of(s);
	struct part *first = named(m, 0);

	if (o.status == STATUS_NONE || !job_is_wanted(&first->claim.job))
		first = NULL;
	release_all(m, 0, first, o, until);
	watch_alerts(m);
	return gravest(m, f);
}

static const struct backend multi_backend = {
    .name = "multi",
    .close = multi_close,
    .identify = multi_identify,
    .lock = &(const struct lock_ops){multi_acquire, multi_renew, multi_release},
};
