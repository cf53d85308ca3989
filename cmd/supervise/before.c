/*
 * before.c - looks at what has to be so before a run begins, beside its lock: see before.h.
 *
 *	before_acquire()   find_time(): --newest asks for the server's time
 *	                   await_thaw(): looks at the switches until none is frozen
 *	                   acquire_as_newest(): asks for the lock, and looks meanwhile who else came
 *	before_go()        with the lock: once more whether a newer run has come (look_for_newer),
 *	                   then whether a switch is frozen (confirm_switches)
 */
#include "before.h"

#include "backends/common/retry.h"
#include "backends/common/trace.h"
#include "cmd/look.h"
#include "cmd/record.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define AGAIN NS_PER_S              /* least pause between two looks */
#define AGAIN_JITTER (NS_PER_S / 4) /* and how much longer it may be */
#define AGAIN_EACH (40 * NS_PER_MS) /* and for each that waits, at a queue */
/* at a queue, each look that fails doubles the pause up to that: the server may be overloaded */
#define AGAIN_MOST (16 * NS_PER_S)
#define CONFIRM (5 * NS_PER_S) /* how long to look in vain while the lock is ours */
#define CONFIRM_AGAIN (100 * NS_PER_MS) /* pause between two such looks */
/* after a thaw, for all that wait for it to look, and to join the queue */
#define SETTLE (AGAIN + AGAIN_JITTER + 1750 * NS_PER_MS)
/* us: the servers of one ensemble may differ by so much */
#define AHEAD INT64_C(5000000)

/* ---- waiting: what is held is renewed ---- */

static instant
renew_at(const struct lock *l)
{
	const struct grant *g = &l->grant;
	int64_t span = g->lease == LEASE_FOREVER ? l->claim.ttl : g->lease;

	return g->sent + (g->soon ? g->soon : g->pace ? g->pace : lease_pace(span));
}

/* A renewal that is not answered is tried again; that the lease ends meanwhile, step() sees. */
static void
renew_held(struct before *b)
{
	struct lock *l = b->lock;
	int64_t span = l->grant.lease == LEASE_FOREVER ? l->claim.ttl : l->grant.lease;
	struct fault f = {""};
	enum rc rc = lock_renew(l, instant_now() + lease_attempt(span), &f);

	b->gone = rc == RC_LOST || rc == RC_REVOKED;
	b->renew_at = rc == RC_OK ? renew_at(l) : instant_now() + lease_backoff(span);
}

/* Waits for a look (host->wait), and renews what is held meanwhile. */
static enum woke
before_wait(struct host *h, int fd, short events, instant until)
{
	struct before *b = (struct before *)h;

	for (;;) {
		enum woke woke;

		if (instant_now() >= b->renew_at)
			renew_held(b);
		if (b->gone)
			return WOKE_STOP;
		woke = b->wait(b->keeper, fd, events, instant_first(until, b->renew_at));
		if (woke != WOKE_TIMEOUT || instant_now() >= until)
			return woke;
	}
}

/* ---- a look ---- */

static void
leave_store(struct before *b)
{
	if (b->store)
		b->store->backend->close(b->store);
	b->store = NULL;
}

static enum rc
open_own_store(struct before *b, struct fault *f)
{
	const struct backend *backend = b->run->params->site.backend;
	enum rc rc;

	if (b->store)
		return RC_OK;
	b->host = (struct host){
	    .wait = before_wait, .seen.holding.held = -1, .alert = -1};
	rc = backend->open(&b->store, &b->host, &b->run->where->site, f);
	if (rc != RC_OK)
		b->store = NULL;
	return rc;
}

/* After one that has failed the store is closed, and the fault says which option needs it. */
static enum rc
look_through(struct before *b, struct look *l, const char *option, struct fault *f)
{
	instant began = instant_now();
	struct fault why = {""};
	enum rc rc = open_own_store(b, f);

	if (rc != RC_OK)
		return rc;
	l->patience = b->patience;
	rc = b->store->backend->admin->each(b->store, l, &why);
	trace_call(b->keeper, b->store, l->key, "look", began, rc, NULL, &why);
	if (rc == RC_OK)
		return rc;
	leave_store(b);
	if (rc == RC_AGAIN || rc == RC_STOP)
		*f = why;
	else
		fault_set(f, rc, "cannot look at %s, which %s needs: %.400s",
		    text_key(l->key).text, option, why.text);
	return rc;
}

/* ---- switches ---- */

/* A freeze that a look has found. */
struct found_freeze {
	const struct host *host; /* of the look */
	bool is_frozen;
	int64_t now;            /* by the server's clock */
	struct holding holding; /* as a run is told of it */
};

static bool
see_freeze(void *ctx, const struct entry *e, int64_t now)
{
	struct found_freeze *found = ctx;

	if (e->kind != ENTRY_FREEZE)
		return true;
	found->is_frozen = true;
	found->now = now;
	found->holding = (struct holding){
	    .frozen = true, .held = view_span(e->since, now)};
	if (e->record)
		snprintf(
		    found->holding.record, sizeof found->holding.record, "%s", e->record);
	/* here: a look that fails after this leaves the store, and the secret with it */
	record_blot(found->holding.record, found->host->secret);
	return false;
}

static void note_arrival(struct before *, int64_t came);

/* RC_OK: the i-th switch is not frozen.  RC_BUSY: it is; keeper->seen tells of it. */
static enum rc
look_at_switch(struct before *b, size_t i, instant until, struct fault *f)
{
	static struct found_freeze found; /* large for a stack */
	const char *key = b->run->params->before.switches[i];
	struct look look = {
	    .key = key, .brief = true, .until = until, .see = see_freeze, .ctx = &found};
	enum rc rc;

	found.host = &b->host;
	found.is_frozen = false;
	rc = look_through(b, &look, "--unless-frozen", f);
	if (!found.is_frozen || (rc != RC_OK && rc != RC_DENIED))
		return rc;
	if (!b->came)
		note_arrival(b, found.now);
	b->keeper->seen.silent = false;
	b->keeper->seen.position = 0;
	b->keeper->seen.key = key;
	b->keeper->seen.holding = found.holding;
	return RC_BUSY;
}

/* Looks at all switches, up to one that is frozen. */
static enum rc
find_frozen_switch(struct before *b, instant until, struct fault *f)
{
	enum rc rc = RC_OK;

	for (size_t i = 0; i < b->run->params->before.nswitches && rc == RC_OK; i++)
		rc = look_at_switch(b, i, until, f);
	return rc;
}

/* ---- which run is the newest ---- */

/* The findings of a look at our key. */
struct found_rivals {
	const struct before *before;
	int64_t now;      /* by the server's clock */
	int64_t joined;   /* our own place is as old as that; 0: not seen */
	uint64_t waiting; /* so many wait */
	struct rival last;
};

/* Says when the run came, for the record and for the next keeper. */
static void
note_arrival(struct before *b, int64_t came)
{
	if (!b->run->params->before.newest || came <= 0)
		return;
	b->came = came;
	atomic_store(&b->run->page->newest, came);
}

static bool
is_later(int64_t at, const char *door, int64_t than, const char *its_door)
{
	return at > than || (at == than && strcmp(door, its_door) > 0);
}

static bool
see_time(void *ctx, const struct entry *e, int64_t now)
{
	(void)e;
	*(int64_t *)ctx = now;
	return false;
}

/* A time that is ahead of the server's own proves nothing: a clock was wrong. */
static bool
see_rivals(void *ctx, const struct entry *e, int64_t now)
{
	struct found_rivals *s = ctx;
	bool waits = e->kind == ENTRY_WAITER;
	struct record r;
	json_t *root;
	int64_t at;

	s->now = now;
	s->waiting += waits;
	if ((!waits && e->kind != ENTRY_HOLDER) || e->foreign || !e->record)
		return true;
	root = record_read(&r, e->record);
	at = r.newest == 0 && waits ? e->since : r.newest;
	if (!r.door || r.newest < 0 || at <= 0 || strlen(r.door) != JOIN_ID_CHARS)
		;
	else if (strcmp(r.door, s->before->run->socket_id) == 0)
		s->joined = at;
	else if (strncmp(r.door, s->before->run->socket_id, RUN_ID_CHARS) == 0)
		; /* what an earlier keeper of ours could not give back */
	else if (at <= now + AHEAD && is_later(at, r.door, s->last.at, s->last.door)) {
		s->last.at = at;
		memcpy(s->last.door, r.door, sizeof s->last.door);
		snprintf(s->last.record, sizeof s->last.record, "%s", e->record);
	}
	json_decref(root);
	return true;
}

/*
 * A place that is seen says it to all others, so it counts before all else: that is the time in our
 * record, or where it has none, since when we wait.  A run whose time is not known, and whose place
 * is not seen, came so long ago as it has waited.
 */
static int64_t
time_we_came(const struct before *b, const struct found_rivals *s)
{
	if (s->joined)
		return s->joined;
	if (b->came || s->now <= 0)
		return b->came;
	return s->now - (instant_now() - b->asked) / 1000;
}

/* Looks whether a newer run has come.  A look that fails supersedes nobody. */
static void
look_for_newer(struct before *b)
{
	static struct found_rivals found; /* large for a stack */
	struct look look = {.key = b->run->params->keys[0],
	    .until = instant_now() + LOOK_LASTS,
	    .see = see_rivals,
	    .ctx = &found};
	char who[sizeof b->run->page->end.newer.text];
	struct fault unused;
	int64_t came;
	enum rc rc;

	memset(&found, 0, sizeof found);
	found.before = b;
	rc = look_through(b, &look, "--newest", &unused);
	came = time_we_came(b, &found);
	if (rc == RC_OK)
		note_arrival(b, came);
	if (rc == RC_OK && came > 0 && found.last.at > 0 &&
	    is_later(found.last.at, found.last.door, came, b->run->socket_id)) {
		b->rival = found.last;
		record_blot(b->rival.record, b->host.secret);
		record_describe(b->rival.record, who, sizeof who);
		fault_set(&b->run->page->end.newer, RC_OK, "%s", who);
		atomic_store(&b->run->page->end.superseded, true);
		b->superseded = true;
	}
	leave_store(b);
	if (rc == RC_OK)
		b->pause = AGAIN + (int64_t)found.waiting * AGAIN_EACH;
	else if (b->pause < AGAIN_MOST)
		b->pause *= 2;
	b->look_at = instant_now() + b->pause + jitter_below(&b->jitter, b->pause / 4);
}

/* The one whose lock is waited for: a backend hands on its host alone. */
static struct before *waiting;

/* Stands in place of the keeper's host->wait while the lock is waited for. */
static enum woke
wait_and_look(struct host *h, int fd, short events, instant until)
{
	struct before *b = waiting;

	while (!b->superseded) {
		enum woke woke = b->wait(h, fd, events, instant_first(until, b->look_at));

		if (woke != WOKE_TIMEOUT || instant_now() >= until)
			return woke;
		if (b->keeper->seen.silent)
			b->look_at = instant_now() + AGAIN;
		else
			look_for_newer(b);
	}
	return WOKE_STOP;
}

/* Asks for the server's time before we join.  Where nobody uses the key, a look tells none. */
static enum rc
find_time(struct before *b, struct fault *f)
{
	int64_t now = 0;
	struct look look = {.key = b->run->params->keys[0],
	    .brief = true,
	    .until = instant_now() + LOOK_LASTS,
	    .see = see_time,
	    .ctx = &now};
	enum rc rc = params_check_newest(b->run->params, b->lock->store, f);

	b->came = b->run->newest;
	atomic_store(&b->run->page->newest, b->came);
	if (rc == RC_OK && !b->came)
		rc = look_through(b, &look, "--newest", f);
	note_arrival(b, now);
	return rc == RC_AGAIN ? RC_OK : rc; /* who asks for the lock tries longer */
}

static enum rc
acquire_as_newest(struct before *b, instant until, struct fault *f)
{
	const struct params *p = b->run->params;
	enum rc rc;

	record_write_newest(b->record, p,
	    p->terms.min_hold > 0 ? getpid() : b->run->shown, b->run->socket_id, b->came);
	b->lock->claim.record = b->record;
	b->pause = AGAIN;
	b->look_at = instant_now() + b->pause + jitter_below(&b->jitter, AGAIN_JITTER);
	waiting = b;
	b->keeper->wait = wait_and_look;
	rc = lock_acquire(b->lock, until, f);
	b->keeper->wait = b->wait;
	return rc;
}

/* ---- before the lock is asked for ---- */

static bool
pauses(struct before *b, int64_t pause, instant until)
{
	until = instant_first(until, instant_now() + pause);
	return b->host.wait(&b->host, -1, 0, until) != WOKE_STOP;
}

/* None is frozen, and the lock is to be asked for. */
static enum rc
note_thaw(struct before *b, bool waited)
{
	b->keeper->seen.silent = false;
	b->keeper->seen.key = NULL;
	b->keeper->seen.holding = (struct holding){.held = -1};
	if (waited)
		b->settled_at = instant_now() + SETTLE;
	return RC_OK;
}

static enum rc
await_thaw(struct before *b, instant until, struct fault *f)
{
	struct retry retry;

	retry_init(&retry);
	retry.first = b->patience;
	retry_begin(&retry, &b->lock->claim);
	for (bool heard = false, waited = b->run->again;;) {
		enum rc rc = find_frozen_switch(b, retry_attempt(&retry, until), f);

		if (rc == RC_OK)
			return note_thaw(b, waited);
		waited = waited || rc == RC_BUSY;
		if (rc == RC_BUSY) {
			retry_end_outage(&retry);
			heard = true;
		}
		if (rc == RC_BUSY && instant_now() < until) {
			if (!pauses(
				b, AGAIN + jitter_below(&b->jitter, AGAIN_JITTER), until))
				return RC_STOP;
			continue;
		}
		if (rc != RC_AGAIN || until == 0)
			return rc;
		b->keeper->seen.key = b->run->params->before.switches[0];
		rc = retry_wait(&retry, b->keeper, rc, heard, until);
		if (rc != RC_OK)
			return rc;
	}
}

enum rc
before_acquire(struct before *b, const struct run *r, struct lock *l, struct host *keeper,
    instant until, struct fault *f)
{
	const struct params *p = r->params;
	enum rc rc = RC_OK;

	*b = (struct before){.host.wait = before_wait,
	    .run = r,
	    .lock = l,
	    .keeper = keeper,
	    .wait = keeper->wait,
	    .patience = look_connect_timeout(&r->where->site),
	    .jitter = jitter_of(r->owner),
	    .renew_at = NEVER,
	    .asked = instant_now(),
	    .look_at = NEVER};
	if (p->before.newest)
		rc = find_time(b, f);
	if (rc == RC_OK && before_switches(r))
		rc = params_check_switches(p, l->store, f);
	if (rc == RC_OK && before_switches(r))
		rc = await_thaw(b, until, f);
	leave_store(b);
	if (rc != RC_OK)
		return rc;
	return p->before.newest ? acquire_as_newest(b, until, f)
				: lock_acquire(l, until, f);
}

/* ---- when it was granted ---- */

/* As host->wait says, or RC_BUSY: what was held no longer is. */
static enum rc
pause_held(struct before *b, instant until)
{
	if (b->host.wait(&b->host, -1, 0, until) != WOKE_STOP)
		return RC_OK;
	return b->gone ? RC_BUSY : RC_STOP;
}

static enum rc
confirm_switches(struct before *b, struct fault *f)
{
	instant give_up = instant_now() + CONFIRM;

	for (;;) {
		instant by = instant_now() + LOOK_LASTS;
		enum rc rc = find_frozen_switch(b, by, f);

		leave_store(b); /* which may take its time */
		if (b->gone)
			return RC_BUSY;
		if (rc != RC_OK && rc != RC_AGAIN)
			return rc;
		atomic_store(&b->run->page->begin_by, by);
		if (rc == RC_OK && instant_now() < by)
			return RC_OK;
		if (instant_now() >= give_up && rc == RC_OK)
			return fault_set(f, RC_AGAIN,
			    "a look at %s, which --unless-frozen names, takes longer than %d s, and an answer that old does not count",
			    text_key(b->run->params->before.switches[0]).text,
			    (int)(LOOK_LASTS / NS_PER_S));
		if (instant_now() >= give_up)
			return RC_BUSY;
		rc = pause_held(b, instant_now() + CONFIRM_AGAIN);
		if (rc != RC_OK)
			return rc;
	}
}

enum rc
before_go(struct before *b, struct fault *f)
{
	enum rc rc = RC_OK;

	if (b->superseded)
		return RC_BUSY;
	b->renew_at = renew_at(b->lock);
	if (b->run->params->before.newest) {
		rc = pause_held(b, b->settled_at);
		if (rc == RC_OK)
			look_for_newer(b);
		if (rc == RC_OK && (b->superseded || b->gone))
			rc = RC_BUSY;
	}
	if (rc == RC_OK && before_switches(b->run))
		rc = confirm_switches(b, f);
	return rc;
}
