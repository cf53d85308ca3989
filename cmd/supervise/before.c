/* before.c - looks at what has to be so before a run begins, beside its lock. */
#include "before.h"

#include "backends/common/retry.h"
#include "backends/common/trace.h"
#include "cmd/look.h"
#include "cmd/record.h"

#include <stdio.h>
#include <string.h>

#define AGAIN NS_PER_S              /* least pause of a run that waits for a thaw */
#define AGAIN_JITTER (NS_PER_S / 4) /* and how much longer it may be */
#define CONFIRM (5 * NS_PER_S)      /* how long to look in vain while the lock is ours */
#define CONFIRM_AGAIN (100 * NS_PER_MS) /* pause between two such looks */

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

/* host->wait of the looks. */
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
		woke = b->keeper->wait(
		    b->keeper, fd, events, instant_first(until, b->renew_at));
		if (woke != WOKE_TIMEOUT || instant_now() >= until)
			return woke;
	}
}

/* ---- a look ---- */

/* A freeze that a look has found. */
struct found_freeze {
	bool is_frozen;
	struct holding *holding; /* where it is told as a run is told of it */
};

static bool
see_freeze(void *ctx, const struct entry *e, int64_t now)
{
	struct found_freeze *found = ctx;

	if (e->kind != ENTRY_FREEZE)
		return true;
	found->is_frozen = true;
	*found->holding = (struct holding){
	    .frozen = true, .held = view_span(e->since, now)};
	if (e->record)
		snprintf(found->holding->record, sizeof found->holding->record, "%s",
		    e->record);
	return false;
}

static void
leave_store(struct before *b)
{
	if (b->store)
		b->store->backend->close(b->store);
	b->store = NULL;
}

static enum rc
open_store(struct before *b, struct fault *f)
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

/*
 * RC_OK: the i-th switch is not frozen.  RC_BUSY: it is; keeper->seen tells of it.  With another rc
 * nothing is known, and the store is closed.
 */
static enum rc
look_at_switch(struct before *b, size_t i, instant until, struct fault *f)
{
	const char *key = b->run->params->before.switches[i];
	static struct holding holding; /* large for a stack */
	struct found_freeze found = {.holding = &holding};
	const struct look look = {.key = key,
	    .brief = true,
	    .until = until,
	    .patience = b->patience,
	    .see = see_freeze,
	    .ctx = &found};
	instant began = instant_now();
	struct fault why = {""};
	enum rc rc = open_store(b, f);

	if (rc != RC_OK)
		return rc;
	rc = b->store->backend->admin->each(b->store, &look, &why);
	if (found.is_frozen && (rc == RC_OK || rc == RC_DENIED))
		rc = RC_BUSY;
	trace_call(b->keeper, b->store, key, "look", began, rc, NULL, &why);
	if (rc == RC_BUSY) {
		record_blot(holding.record, b->host.secret);
		b->keeper->seen.silent = false;
		b->keeper->seen.position = 0;
		b->keeper->seen.key = key;
		b->keeper->seen.holding = holding;
	} else if (rc != RC_OK) {
		leave_store(b);
		if (rc == RC_AGAIN || rc == RC_STOP)
			*f = why;
		else
			fault_set(f, rc,
			    "cannot look at %s, which --unless-frozen names: %.400s",
			    text_key(key).text, why.text);
	}
	return rc;
}

/* All of them, up to one that is frozen. */
static enum rc
look_at_switches(struct before *b, instant until, struct fault *f)
{
	enum rc rc = RC_OK;

	for (size_t i = 0; i < b->run->params->before.nswitches && rc == RC_OK; i++)
		rc = look_at_switch(b, i, until, f);
	return rc;
}

/* ---- before the lock is asked for ---- */

static bool
pauses(struct before *b, int64_t pause, instant until)
{
	until = instant_first(until, instant_now() + pause);
	return b->host.wait(&b->host, -1, 0, until) != WOKE_STOP;
}

/* RC_OK: none is frozen. */
static enum rc
await_thaw(struct before *b, instant until, struct fault *f)
{
	struct retry retry;

	retry_init(&retry);
	retry.first = b->patience;
	retry_begin(&retry, &b->lock->claim);
	for (bool heard = false;;) {
		enum rc rc = look_at_switches(b, retry_attempt(&retry, until), f);

		if (rc == RC_OK || rc == RC_BUSY) {
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
before_ask(struct before *b, const struct run *r, struct lock *l, struct host *keeper,
    instant until, struct fault *f)
{
	enum rc rc = params_check_switches(r->params, l->store, f);

	if (rc != RC_OK)
		return rc;
	b->run = r;
	b->lock = l;
	b->keeper = keeper;
	b->patience = look_connect_timeout(&r->where->site);
	b->jitter = jitter_of(r->owner);
	b->renew_at = NEVER;
	rc = await_thaw(b, until, f);
	leave_store(b);
	if (rc == RC_OK) {
		keeper->seen.silent = false;
		keeper->seen.key = NULL;
		keeper->seen.holding = (struct holding){.held = -1};
	}
	return rc;
}

/* ---- when it was granted ---- */

enum rc
before_go(struct before *b, struct fault *f)
{
	instant give_up = instant_now() + CONFIRM;

	b->renew_at = renew_at(b->lock);
	for (;;) {
		instant by = instant_now() + LOOK_LASTS;
		enum rc rc = look_at_switches(b, by, f);

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
			    "a look at %s, which --unless-frozen names, takes longer than the %d s that it counts",
			    text_key(b->run->params->before.switches[0]).text,
			    (int)(LOOK_LASTS / NS_PER_S));
		if (instant_now() >= give_up)
			return RC_BUSY;
		if (!pauses(b, CONFIRM_AGAIN, NEVER))
			return b->gone ? RC_BUSY : RC_STOP;
	}
}
