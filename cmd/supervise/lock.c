/*
 * lock.c - the lock of a run: of one key, of several, or joined.
 *
 *	open       an outer keeper is joined, or else the backend is opened; checks what it can do
 *	acquire    asks for the lock, and remembers the grant of each key
 *	renew      asks for another lease
 *	release    gives it back, if it was asked for
 *	close      leaves the store
 */
#include "lock.h"

#include "backends/common/secret.h"
#include "backends/common/trace.h"
#include "backends/multi.h"
#include "cmd/environment.h"
#include "cmd/record.h"
#include "cmd/said.h"
#include "loop.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define CLOSE_PATIENCE 2 /* seconds, for a client library to take its leave */

/*
 * Is the store, or will it be, one of several keys (multi.h)?  A joined hold is one store, however
 * many it has: this is asked once l->nested is known.
 */
static bool
is_multi(const struct lock *l)
{
	return l->params->nkeys > 1 && !l->nested;
}

void
lock_init(struct lock *l, const struct params *p, const struct join_site *where,
    struct host *host, const char *owner, const char *record)
{
	l->params = p;
	l->outer.base.host = host; /* the rest of it is large, and zeroed */
	l->outer.params = p;
	l->outer.where = where;
	l->claim = (struct claim){
	    .key = p->keys[0],
	    .kind = p->claim.kind,
	    .limit = p->claim.limit,
	    .job = p->claim.job,
	    .owner = owner,
	    .record = record,
	    .ttl = p->terms.ttl,
	    .persist = p->wait.persist,
	};
	if (!p->claim.period.kind)
		return;
	l->period = p->claim.period;
	l->claim.job.per = &l->period;
	l->claim.job.once = l->period.id;
}

/* ---- opening ---- */

enum rc
lock_open(struct lock *l, struct fault *f)
{
	const struct params *p = l->params;
	const struct backend *b = p->site.backend;
	const struct site *site = &l->outer.where->site;
	struct host *host = l->outer.base.host;
	enum rc rc = RC_OK;

	if (environment_get("DLOCK_KEEPER"))
		rc = join_inner_open(&l->store, &l->outer, f);
	if (rc != RC_OK)
		return rc;
	l->nested = l->store != NULL;
	if (!l->nested && !b->open)
		return fault_set(f, RC_CONFIG,
		    "this dlock was built without the %s backend (dlock version)",
		    b->name);
	if (is_multi(l))
		rc = multi_open(&l->store, host, b, site, p->keys, p->nkeys, f);
	else if (!l->nested)
		rc = b->open(&l->store, host, site, f);
	if (rc != RC_OK)
		return rc == RC_USAGE ? said_blame(p, site, host, f) : rc;
	if (!(l->store->caps & CAP_JOB) && l->claim.job.remember == REMEMBER_IF_ABLE)
		l->claim.job.remember = REMEMBER_NOT;
	rc = params_check_kind(&p->claim, l->store, f);
	/* never asked for anything, so there is nothing to give back */
	if (rc != RC_OK) {
		l->store->backend->close(l->store);
		l->store = NULL;
	}
	return rc;
}

/* ---- the calls ---- */

/* For -v.  With several keys multi.c tells of each of them. */
static void
tell_call(struct lock *l, const char *call, instant began, enum rc rc,
    const struct grant *g, const struct fault *f)
{
	if (l->outer.base.host->tell && !is_multi(l))
		trace_call(l->outer.base.host, l->store, NULL, call, began, rc, g, f);
}

enum rc
lock_acquire(struct lock *l, instant until, struct fault *f)
{
	instant began = instant_now();
	enum rc rc;

	l->asked = true;
	rc = l->store->backend->lock->acquire(l->store, &l->claim, until, &l->grant, f);
	if (rc == RC_DONE) /* it names who has done it */
		secret_blot(f->text, l->outer.base.host->secret);
	tell_call(l, "acquire", began, rc, &l->grant, f);
	if (rc != RC_OK)
		return rc;
	for (size_t i = 0; i < (l->nested ? 1 : l->params->nkeys); i++) {
		const struct grant *g = is_multi(l) ? multi_grant(l->store, i)
						    : &l->grant;

		l->outer.parts[i] = (struct join_part){g->token, g->slot};
		if (g->anchor >= 0)
			l->anchors.fds[l->anchors.n++] = g->anchor;
	}
	if (l->outer.watched.n > 0)
		l->anchors.fds[l->anchors.n++] = l->outer.watched.fds[0];
	/* not later: a link or an option file may lead elsewhere when somebody wants to join */
	if (!l->nested)
		(void)identity_ask(&l->outer.identity, l->params->site.backend, l->store);
	return RC_OK;
}

/* Names the person who has broken it, if known.  Of several keys *f names the one. */
static void
name_breaker(const struct lock *l, const char *unknown, struct fault *f)
{
	struct fault said = *f;
	bool several = l->params->nkeys > 1;
	char who[RECORD_BYTES];

	record_blot(l->outer.base.host->breaker, l->outer.base.host->secret);
	if (*l->outer.base.host->breaker) {
		record_describe(l->outer.base.host->breaker, who, sizeof who);
		fault_set(f, RC_REVOKED, "broken by %s%s%s%s", who, several ? " (" : "",
		    several ? said.text : "", several ? ")" : "");
	} else if (*unknown) {
		fault_set(f, RC_REVOKED, "%s (%.*s)", unknown,
		    (int)(sizeof said.text - 100), said.text);
	}
}

enum rc
lock_renew(struct lock *l, instant until, struct fault *f)
{
	instant began = instant_now();
	enum rc rc;

	*l->outer.base.host->breaker = '\0';
	rc = l->store->backend->lock->renew(l->store, until, &l->grant, f);
	tell_call(l, "renew", began, rc, &l->grant, f);
	if (rc == RC_REVOKED)
		name_breaker(l, "its holder was asked to give it up", f);
	else if (rc == RC_LOST)
		name_breaker(l, "", f);
	return rc;
}

enum rc
lock_release(
    struct lock *l, struct outcome o, instant keep_until, instant until, struct fault *f)
{
	instant began = instant_now();
	enum rc rc = RC_OK;

	l->outer.keep_until = keep_until;
	*l->outer.base.host->breaker = '\0';
	if (l->asked) {
		rc = l->store->backend->lock->release(l->store, o, until, f);
		tell_call(l, "release", began, rc, NULL, f);
	}
	if (rc == RC_LOST)
		name_breaker(l, "", f);
	return rc;
}

void
lock_close(struct lock *l)
{
	if (!l->store)
		return;
	signal(SIGALRM, SIG_DFL);
	alarm(CLOSE_PATIENCE);
	loop_unblock(SIGALRM);
	l->store->backend->close(l->store);
	alarm(0);
}
