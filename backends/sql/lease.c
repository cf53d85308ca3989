/* lease.c - asks a database for a lease, waits for its turn, and confirms it. */
#include "lease.h"

#include "backends/common/text.h"

/* ---- what an answer means ---- */

static bool
is_granted(const struct sql_lease *l)
{
	return l->standing.code == GRANTED;
}

void
sql_lease_granted(struct sql_lease *l, instant sent, struct grant *g)
{
	l->held = true;
	l->token = l->standing.token;
	*g = (struct grant){.token = l->token,
	    .slot = l->standing.slot,
	    .sent = sent,
	    .lease = l->claim->ttl,
	    .anchor = -1};
}

/* The job has been done: when, and by whom. */
static enum rc
tell_done(struct sql_lease *l, struct fault *f)
{
	const struct done *d = &l->standing.done;
	const struct job *job = &l->claim->job;

	if (d->forgotten)
		l->asked = false;
	return d->recently ? refuse_recent(f, job, d->age_ms * NS_PER_MS)
			   : refuse_done(f, job, d->began_ms, d->who);
}

enum rc
sql_lease_heard(struct sql_lease *l, instant sent, struct grant *g, struct fault *f)
{
	const struct standing *s = &l->standing;

	if (s->code == IN_USE)
		return refuse_kind(f, l->store->where, s->kind, s->room, l->claim);
	if (s->code == DONE)
		return tell_done(l, f);
	if (s->code == GRANTED)
		sql_lease_granted(l, sent, g);
	return RC_OK;
}

/* ---- acquire ---- */

enum rc
sql_lease_still_held(const struct sql_lease *l, struct fault *f)
{
	return fault_set(f, RC_BUSY, "%s: still held", l->store->where);
}

enum rc
sql_lease_sleep(struct sql_lease *l, instant wake, instant until, struct fault *f)
{
	struct host *host = l->store->host;

	if (host->wait(host, -1, 0, instant_first(wake, until)) == WOKE_STOP)
		return RC_STOP;
	return instant_now() >= until ? sql_lease_still_held(l, f) : RC_OK;
}

/* A grant that we have been told of becomes ours by a renewal.  *g is set if it did. */
static enum rc
confirm(struct sql_lease *l, instant until, struct grant *g, struct fault *f)
{
	instant now = instant_now();
	enum rc rc;

	sql_lease_granted(l, now, g);
	rc = l->store->backend->lock->renew(
	    l->store, retry_answer(now, ASK_PATIENCE, until), g, f);
	if (rc == RC_REVOKED)
		rc = RC_OK; /* the next renewal will say so again */
	l->standing.code = rc == RC_OK ? GRANTED : QUEUED;
	l->held = rc == RC_OK;
	return rc == RC_LOST ? RC_OK : rc; /* it came too late: ask */
}

/*
 * Waits for our turn; then confirms, or asks.  A job asks, for that is where the server
 * looks whether it has been done.
 */
static enum rc
wait_and_ask(struct sql_lease *l, instant until, struct grant *g, struct fault *f)
{
	enum rc rc;

	l->standing.token = 0;
	rc = l->calls->wait(l->store, until, f);
	if (rc == RC_OK && l->standing.token && !job_is_wanted(&l->claim->job))
		rc = confirm(l, until, g, f);
	if (rc == RC_OK && !is_granted(l))
		rc = l->calls->ask(l->store, true,
		    retry_answer(instant_now(), ASK_PATIENCE, until), g, f);
	return rc;
}

/*
 * We are in the queue.  When a connection has broken, so may have those of a thousand
 * others: no attempt before its turn.
 */
static enum rc
wait_for_lease(struct sql_lease *l, instant until, struct grant *g, struct fault *f)
{
	enum rc rc = RC_OK;

	while (rc == RC_OK && !is_granted(l)) {
		rc = wait_and_ask(l, until, g, f);
		if (rc == RC_OK)
			retry_end_outage(l->patience);
		else
			rc = l->calls->try_again(l->store, rc, until);
	}
	return rc;
}

/*
 * A job that has been done wants no lock any more.  If this goes unheard, the caller's
 * release says it again.
 */
static void
leave_done(struct sql_lease *l)
{
	struct fault unheard;

	(void)l->store->backend->lock->release(
	    l->store, STATUS_NONE, instant_now() + ASK_PATIENCE, &unheard);
}

enum rc
sql_lease_acquire(struct sql_lease *l, instant until, struct grant *g, struct fault *f)
{
	instant first_by = retry_first(l->patience, until);
	enum rc rc;

	l->among = !kind_is_exclusive(l->claim->kind) || job_is_wanted(&l->claim->job);
	do
		rc = l->calls->ask(
		    l->store, until != 0, retry_attempt_by(l->patience, first_by), g, f);
	while (retry_first_again(l->patience, l->store->host, until, &rc));
	if (rc == RC_OK && !is_granted(l))
		rc = until ? wait_for_lease(l, until, g, f)
			   : fault_set(f, RC_BUSY, "%s: held", l->store->where);
	if (rc == RC_BUSY && !until)
		l->asked = false; /* who does not queue leaves nothing */
	if (rc == RC_DONE)
		leave_done(l);
	return rc;
}

/* ---- renew and release ---- */

static enum rc
not_ours(const struct sql_lease *l, struct fault *f)
{
	return fault_set(f, RC_LOST,
	    "%s no longer has it as ours: it expired, was deleted, or the server lost its data",
	    l->store->where);
}

enum rc
sql_lease_renewed(struct sql_lease *l, bool ours, const char *by, instant sent,
    struct grant *g, struct fault *f)
{
	enum rc rc = ours ? RC_OK : RC_LOST;

	if (by)
		rc = refuse_broken(
		    l->store->host, f, ours ? RC_REVOKED : RC_LOST, l->store->where, by);
	else if (!ours)
		rc = not_ours(l, f);
	if (ours) {
		g->sent = sent;
		g->lease = l->claim->ttl;
	}
	return rc;
}

enum rc
sql_lease_not_renewed(struct sql_lease *l, enum rc rc, bool missing, struct fault *f)
{
	if (missing)
		return not_ours(l, f);
	return rc == RC_STOP ? RC_STOP : RC_AGAIN;
}

/* It had been lost before its release: the server may know who has taken it away. */
static enum rc
tell_loss(struct sql_lease *l, instant until, struct fault *f)
{
	struct grant unused;
	enum rc rc = l->store->backend->lock->renew(l->store, until, &unused, f);

	return rc == RC_LOST ? rc : not_ours(l, f);
}

enum rc
sql_lease_released(
    struct sql_lease *l, bool was_ours, bool again, instant until, struct fault *f)
{
	bool lost = l->held && !was_ours;

	if (lost && (again || l->unsure))
		return fault_set(f, RC_AGAIN,
		    "%s closed the connection before it answered", l->store->where);
	l->asked = l->held = false;
	return lost ? tell_loss(l, until, f) : RC_OK;
}

enum rc
sql_lease_not_released(struct sql_lease *l, enum rc rc, bool missing, struct fault *f)
{
	l->unsure = true;
	if (!missing)
		return rc;
	return l->held ? not_ours(l, f) : RC_OK;
}
