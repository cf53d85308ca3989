/* multi.c - several keys as one lock: a store for each, see multi.h. */
#include "multi.h"

#include "backends/common/alert.h"
#include "backends/common/identity.h"

#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#define ATTEMPT (3 * NS_PER_S)   /* for a renewal while we wait, or a tenth of the ttl */
#define GIVE_BACK NS_PER_S       /* for what is given back to be asked for again, */
#define BREATH (100 * NS_PER_MS) /* which is so long after that */
#define HASTE (200 * NS_PER_MS)  /* for what others have to say when one is lost */

enum { NAME_SHOWN = 100 }; /* bytes of a key in front of a text */

/* One key. */
struct part {
	struct host host; /* first: the store's way back to us */
	struct multi *multi;
	struct store *store; /* NULL: could not be opened again */
	const char *key;
	size_t place; /* among the keys as named */
	struct claim claim;
	char owner[OWNER_CHARS + 1];
	struct grant grant;
	instant due;        /* when it is to be renewed while we wait */
	enum rc rc;         /* of the last renewal or release */
	struct fault fault; /* and its words */
	bool asked;         /* its server may know of us */
};

enum request { RENEW, RELEASE };

/*
 * A request to several parts at once: each is begun while those before it wait for their
 * answers.
 */
struct round {
	enum request request;
	const struct part *but; /* not this one; NULL */
	size_t next, end;       /* of the parts still to be asked */
	int status;             /* for a release */
	instant until;
	/* once one is lost the others have little time left to answer: */
	bool hasty;
	instant ends; /* until then; NEVER: none is lost so far */
};

/* How far the taking of all of them has come. */
struct taking {
	const struct part *asking; /* the one being acquired; NULL */
	size_t held;               /* parts[0..held) are ours, */
	size_t gone;               /* but this one no longer; n: none */
	struct alert_pace alerts;  /* of theirs */
	bool stop;                 /* a renewal beside the waiting was told to stop */
	/* how often something was asked for again: makes owners fresh */
	unsigned again;
};

/* Who wants to be told of every call. */
struct tracer {
	void (*tell)(void *ctx, const char *line); /* NULL: nobody wants to know */
	void *ctx;
};

struct multi {
	struct store base;
	const struct backend *backend;
	const struct site *site;
	const struct claim *claim; /* the caller's */
	char where[WHERE_BYTES];
	struct tracer tracer;

	struct round round;
	struct taking taking;
	int alerts;          /* is readable if any part's alert is; -1 */
	struct fault notice; /* the last one that was passed on */
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
named(struct multi *m, size_t place)
{
	struct part *p = m->parts;

	while (p->place != place)
		p++;
	return p;
}

/* ---- what the caller is told ---- */

/* "KEY", and ": TEXT" unless that is "". */
static void
say_of_key(const struct part *p, const char *text, struct fault *f)
{
	size_t n = strnlen(p->key, NAME_SHOWN);

	while (n > 0 && (p->key[n] & 0xC0) == 0x80) /* whole characters */
		n--;
	snprintf(f->text, sizeof f->text, "%.*s%s%s%.*s", (int)n, p->key,
	    p->key[n] ? "..." : "", *text ? ": " : "",
	    (int)(sizeof f->text - NAME_SHOWN - 8), text);
}

/* "KEY: text", in the place of the text. */
static void
name_key(const struct part *p, struct fault *f)
{
	struct fault said = *f;

	if (*said.text)
		say_of_key(p, said.text, f);
}

/* One that the caller has not taken yet is not replaced: ours waits. */
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

static void
pass_seen(struct part *p)
{
	struct host *to = p->multi->base.host;

	to->seen = p->host.seen;
	to->seen.key = p->key;
}

/* ---- the time of each ---- */

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

static int64_t
attempt_time(const struct multi *m)
{
	return instant_first(m->claim->ttl / 10, ATTEMPT);
}

static instant
next_due(const struct multi *m)
{
	instant due = NEVER;

	for (size_t i = 0; i < m->taking.held; i++)
		due = instant_first(due, m->parts[i].due);
	return due;
}

/* What all of them are worth together. */
static void
combine(struct multi *m, struct grant *g)
{
	const struct part *first = m->parts, *p;
	int64_t shortest = pace(first);
	int anchor = -1;

	for (p = m->parts; p < m->parts + m->n; p++) {
		first = part_ends(p) < part_ends(first) ? p : first;
		shortest = instant_first(shortest, pace(p));
		anchor = anchor < 0 ? p->grant.anchor : anchor;
	}
	*g = named(m, 0)->grant;
	g->sent = first->grant.sent;
	g->lease = first->grant.lease;
	g->pace = shortest;
	g->anchor = anchor;
}

/* ---- all at once ---- */

static void
renew_part(struct part *p, instant until)
{
	p->rc = p->store->backend->lock->renew(p->store, until, &p->grant, &p->fault);
	p->due = p->rc == RC_OK
	    ? instant_after(p->grant.sent, pace(p))
	    : instant_first(instant_now() + attempt_time(p->multi) / 3, part_ends(p));
	p->asked = p->rc != RC_LOST;
}

static void
release_part(struct part *p, int status, instant until)
{
	p->rc = p->store->backend->lock->release(p->store, status, until, &p->fault);
	p->asked = p->rc != RC_OK && p->rc != RC_LOST;
}

static void
ask_rest(struct multi *m)
{
	struct round *r = &m->round;

	while (r->next < r->end) {
		struct part *p = &m->parts[r->next++];

		if (!p->asked || p == r->but)
			continue;
		p->fault.text[0] = '\0';
		if (r->request == RENEW)
			renew_part(p, r->until);
		else
			release_part(p, r->status, r->until);
		name_key(p, &p->fault);
		pass_notice(p);
	}
}

static void
renew_all(struct multi *m, size_t n, bool hasty, instant until)
{
	m->round = (struct round){
	    .request = RENEW, .end = n, .until = until, .hasty = hasty, .ends = NEVER};
	ask_rest(m);
}

static void
release_all(
    struct multi *m, size_t first, const struct part *but, int status, instant until)
{
	m->round = (struct round){.request = RELEASE,
	    .but = but,
	    .next = first,
	    .end = m->n,
	    .status = status,
	    .until = until};
	ask_rest(m);
}

/* How much it matters among what others say. */
static int
weight(enum rc rc)
{
	switch (rc) {
	case RC_OK:
		return 0;
	case RC_STOP:
		return 1;
	case RC_REVOKED:
		return 3;
	case RC_LOST:
		return 4;
	default:
		return 2;
	}
}

/* What matters most of what the parts were told, in its words; of one broken, its key. */
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
		if (*to->breaker && weight(worst->rc) >= weight(RC_REVOKED))
			say_of_key(worst, "", f);
	}
	return worst->rc;
}

/* How many are known to be no longer ours. */
static size_t
multi_lost(const struct multi *m)
{
	size_t n = 0;

	for (const struct part *p = m->parts; p < m->parts + m->n; p++)
		n += p->rc == RC_LOST;
	return n;
}

/* ---- what may happen to those that are held ---- */

static void
watch_also(int *all, int fd, uint32_t events)
{
	struct epoll_event e = {.events = events};

	if (*all < 0)
		*all = epoll_create1(EPOLL_CLOEXEC);
	if (*all >= 0)
		epoll_ctl(*all, EPOLL_CTL_ADD, fd, &e);
}

/*
 * A descriptor that is readable when one of the alerts is; -1: there is none.  Made
 * anew each time, since a number may have become another descriptor.  One that
 * could not be asked what had happened goes on ringing, and is left alone.
 */
static int
gather_alerts(const struct multi *m)
{
	int all = -1;

	for (const struct part *p = m->parts; p < m->parts + m->taking.held; p++)
		if (p->host.alert >= 0 && p->rc == RC_OK)
			watch_also(&all, p->host.alert, EPOLLIN);
	return all;
}

static void
watch_alerts(struct multi *m)
{
	if (m->alerts >= 0)
		close(m->alerts);
	m->alerts = m->base.host->alert = gather_alerts(m);
}

static bool
is_ready(int fd, short events)
{
	return fd >= 0 && poll(&(struct pollfd){.fd = fd, .events = events}, 1, 0) > 0;
}

/* Renews what we hold while we wait, and sees whether one has gone. */
static void
keep_held(struct multi *m, instant until)
{
	instant now;

	renew_all(m, m->taking.held, false,
	    instant_first(until, instant_now() + attempt_time(m)));
	now = instant_now();
	m->taking.gone = m->n;
	for (size_t i = m->taking.held; i-- > 0;) {
		const struct part *p = &m->parts[i];

		if (p->rc == RC_LOST || p->rc == RC_REVOKED ||
		    (p->rc != RC_OK && now >= part_ends(p)))
			m->taking.gone = i;
		m->taking.stop = m->taking.stop || p->rc == RC_STOP;
	}
}

/* When alerts are listened to; at once where each may be the end of a lock (alert.h). */
static instant
listens_from(const struct multi *m)
{
	for (size_t i = 0; i < m->taking.held; i++)
		if (m->parts[i].grant.anchor >= 0)
			return 0;
	return alert_due(&m->taking.alerts, m->claim->ttl);
}

/*
 * host->wait of the part that is being acquired; stops it when one that we hold has
 * gone.
 */
static enum woke
wait_and_keep(struct multi *m, int fd, short events, instant until)
{
	struct host *outer = m->base.host;
	bool rang = false;

	for (;;) {
		instant alert = listens_from(m), ends;
		enum woke woke;
		bool listens;
		int all;

		if (rang || instant_now() >= next_due(m))
			keep_held(m, until);
		if (m->taking.stop || m->taking.gone < m->n)
			return WOKE_STOP;
		listens = alert <= instant_now(); /* else at the latest then */
		ends = instant_first(until, next_due(m));
		all = listens ? gather_alerts(m) : -1;
		if (all >= 0 && fd >= 0)
			watch_also(&all, fd, events);
		woke = outer->wait(outer, all >= 0 ? all : fd, all >= 0 ? POLLIN : events,
		    listens ? ends : instant_first(ends, alert));
		if (all >= 0)
			close(all);
		rang = woke == WOKE_READY && all >= 0 && !is_ready(fd, events);
		if (rang)
			alert_follow(&m->taking.alerts, m->claim->ttl, instant_now());
		if (woke != WOKE_TIMEOUT && !rang)
			return woke;
		if (instant_now() >= until)
			return WOKE_TIMEOUT;
	}
}

/* host->wait of one of those that are asked at once. */
static enum woke
multi_await(struct multi *m, int fd, short events, instant until)
{
	struct round *r = &m->round;
	enum woke woke;

	if (r->hasty && r->ends == NEVER && multi_lost(m))
		r->ends = instant_now() + HASTE;
	woke = m->base.host->wait(
	    m->base.host, fd, events, r->hasty ? instant_first(until, r->ends) : until);
	return r->hasty && woke == WOKE_TIMEOUT && instant_now() >= r->ends ? WOKE_STOP
									    : woke;
}

/* host->wait of every part. */
static enum woke
part_wait(struct host *h, int fd, short events, instant until)
{
	struct part *p = (struct part *)h;
	struct multi *m = p->multi;

	pass_notice(p);
	if (p == m->taking.asking) {
		pass_seen(p);
		return wait_and_keep(m, fd, events, until);
	}
	ask_rest(m);
	return multi_await(m, fd, events, until);
}

/* ---- open and close ---- */

static enum rc
open_part(struct part *p, struct fault *f)
{
	struct multi *m = p->multi;
	const struct backend *b;
	struct store *traced;
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
		    "%s: one of its settings names the lock, so several keys would be the same one",
		    p->store->where);
	b = p->store->backend; /* a scheme of m->backend may have one of its own */
	rc = b->together ? b->together(p->store, m->parts[0].key, p->key, f) : RC_OK;
	if (rc != RC_OK)
		return rc;
	traced = m->tracer.tell
	    ? trace_wrap(p->store, p->key, m->tracer.tell, m->tracer.ctx)
	    : NULL;
	p->store = traced ? traced : p->store;
	return RC_OK;
}

static void
close_part(struct part *p)
{
	if (p->store)
		p->store->backend->close(p->store);
	p->store = NULL;
}

static void
multi_close(struct store *s)
{
	struct multi *m = s ? multi_of(s) : NULL;

	if (!m)
		return;
	for (size_t i = 0; i < m->n; i++)
		close_part(&m->parts[i]);
	if (m->alerts >= 0)
		close(m->alerts);
	m->base.host->alert = -1;
	free(m);
}

static enum rc
identify_part(struct part *p, struct identity *id, struct fault *f)
{
	struct store *s = p->store;

	return s && s->backend->identify
	    ? s->backend->identify(s, id, f)
	    : fault_set(f, RC_CONFIG, "it is not known which lock %s is", p->key);
}

/* All parts must have reached the same place: each of them looks for itself. */
static enum rc
multi_identify(struct store *s, struct identity *id, struct fault *f)
{
	static struct identity other;
	const struct identity begun = *id;
	struct multi *m = multi_of(s);
	enum rc rc = identify_part(&m->parts[0], id, f);

	for (size_t i = 1; i < m->n && rc == RC_OK; i++) {
		other = begun;
		rc = identify_part(&m->parts[i], &other, f);
		if (rc == RC_OK && strcmp(other.text, id->text) != 0)
			rc = fault_set(
			    f, RC_CONFIG, "its keys are not of the same place");
	}
	return rc;
}

static int
compare_keys(const void *a, const void *b)
{
	return strcmp(((const struct part *)a)->key, ((const struct part *)b)->key);
}

static struct multi *
multi_new(struct host *host, const struct backend *backend, const struct site *site,
    const char *const *keys, size_t n)
{
	struct multi *m = calloc(1, sizeof *m + n * sizeof m->parts[0]);

	if (!m)
		return NULL;
	m->base = (struct store){
	    .backend = &multi_backend, .host = host, .where = m->where};
	m->backend = backend;
	m->site = site;
	m->alerts = -1;
	m->n = m->taking.gone = n;
	for (size_t i = 0; i < n; i++)
		m->parts[i] = (struct part){.multi = m, .key = keys[i], .place = i};
	qsort(m->parts, n, sizeof m->parts[0], compare_keys);
	return m;
}

enum rc
multi_open(struct store **ret, struct host *host, const struct backend *backend,
    const struct site *site, const char *const *keys, size_t n, struct fault *f)
{
	struct multi *m = multi_new(host, backend, site, keys, n);
	enum rc rc = RC_OK;

	if (!m)
		return fault_set(f, RC_SYSTEM, "out of memory");
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

void
multi_trace(struct store *s, void (*tell)(void *ctx, const char *line), void *ctx)
{
	struct multi *m = multi_of(s);

	m->tracer.tell = tell;
	m->tracer.ctx = ctx;
	for (struct part *p = m->parts; p < m->parts + m->n; p++) {
		struct store *traced = trace_wrap(p->store, p->key, tell, ctx);

		p->store = traced ? traced : p->store;
	}
}

const struct grant *
multi_grant(struct store *s, size_t i)
{
	return &named(multi_of(s), i)->grant;
}

/* ---- the calls ---- */

/* The caller's owner, but no two that we use for one key are the same. */
static void
vary_owner(struct part *p, const char *owner)
{
	static const char digits[] = "0123456789abcdef";
	unsigned again = p->multi->taking.again;

	snprintf(p->owner, sizeof p->owner, "%s", owner);
	for (size_t i = strlen(p->owner); i-- > 0 && again; again /= 16) {
		const char *digit = strchr(digits, p->owner[i]);

		p->owner[i] = digits[((digit ? digit - digits : 0) + again) % 16];
	}
}

static enum rc
ask_part(struct part *p, instant until, struct fault *f)
{
	struct multi *m = p->multi;
	enum rc rc;

	vary_owner(p, m->claim->owner);
	p->claim = *m->claim;
	p->claim.key = p->key;
	p->claim.owner = p->owner;
	if (p->place > 0)
		p->claim.job = (struct job){0};
	p->asked = true;
	m->taking.asking = p;
	rc = p->store->backend->lock->acquire(p->store, &p->claim, until, &p->grant, f);
	m->taking.asking = NULL;
	p->due = rc == RC_OK ? instant_after(p->grant.sent, pace(p)) : NEVER;
	pass_seen(p);
	pass_notice(p);
	if (rc != RC_OK)
		name_key(p, f);
	return rc;
}

/*
 * Gives back the one that has gone and all behind it, and makes them ready to be asked
 * for anew.
 */
static enum rc
begin_again(struct multi *m, instant until, struct fault *f)
{
	struct host *outer = m->base.host;
	const struct part *gone = &m->parts[m->taking.gone];
	enum rc rc = RC_OK;

	if (!until)
		return fault_set(f, RC_BUSY, "%s", gone->fault.text);
	fault_set(
	    &outer->notice, RC_OK, "%.500s; it is asked for again", gone->fault.text);
	release_all(m, m->taking.gone, NULL, STATUS_NONE, instant_now() + GIVE_BACK);
	m->taking.held = m->taking.gone;
	m->taking.gone = m->n;
	m->taking.again++;
	if (outer->wait(outer, -1, 0, instant_now() + BREATH) == WOKE_STOP)
		return RC_STOP;
	for (struct part *p = m->parts + m->taking.held;
	     p < m->parts + m->n && rc == RC_OK; p++) {
		close_part(p);
		rc = open_part(p, f);
	}
	return rc;
}

static enum rc
take_next(struct multi *m, instant until, struct fault *f)
{
	enum rc rc = ask_part(&m->parts[m->taking.held], until, f);

	if (rc == RC_OK)
		m->taking.held++;
	if (m->taking.held == m->n) {
		watch_alerts(m);
		if (instant_now() >= next_due(m) || is_ready(m->alerts, POLLIN))
			keep_held(m, NEVER);
	}
	if (m->taking.stop)
		return RC_STOP;
	return m->taking.gone < m->n ? begin_again(m, until, f) : rc;
}

static enum rc
multi_acquire(struct store *s, const struct claim *claim, instant until, struct grant *g,
    struct fault *f)
{
	struct multi *m = multi_of(s);
	enum rc rc = RC_OK;

	m->claim = claim;
	while (rc == RC_OK && m->taking.held < m->n)
		rc = take_next(m, until, f);
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

	renew_all(m, m->n, true, until);
	rc = gravest(m, f);
	if (rc == RC_OK || rc == RC_REVOKED)
		combine(m, g);
	watch_alerts(m);
	return rc;
}

/*
 * All but the one that remembers the job; returns what that one may be told.  A loss
 * that was known before is in `status`, or came after it had been told.
 */
static int
release_others(struct multi *m, const struct part *first, int status, instant until)
{
	size_t before = multi_lost(m);
	instant now = instant_now();

	/* one that is silent leaves time for the first */
	release_all(m, 0, first, status, until - (until - now) / 4);
	return multi_lost(m) > before ? STATUS_NONE : status;
}

static enum rc
multi_release(struct store *s, int status, instant until, struct fault *f)
{
	struct multi *m = multi_of(s);
	const struct part *first = named(m, 0);

	if (status != STATUS_NONE && job_is_wanted(&first->claim.job))
		status = release_others(m, first, status, until);
	release_all(m, 0, NULL, status, until);
	watch_alerts(m);
	return gravest(m, f);
}

static const struct backend multi_backend = {
    .name = "multi",
    .close = multi_close,
    .identify = multi_identify,
    .lock = &(const struct lock_ops){multi_acquire, multi_renew, multi_release},
};
