/* claim.c - takes the lock, renews the lease, gives the lock back. */
#include "zk.h"

#include "backends/common/job.h"
#include "backends/common/refuse.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HOST_PATIENCE (1500 * NS_PER_MS) /* for one of several hosts */
#define ATTEMPT (5 * NS_PER_S)           /* to have a session, before the next one */
#define NAME_PATIENCE (100 * NS_PER_MS)  /* that the lock is lost is known already */
/* after the grant at most; from then on we hear of our node's end at once */
#define FIRST_RENEWAL (500 * NS_PER_MS)

/* ---- the session ---- */

/*
 * A server that takes connections and says nothing would cost the library two
 * thirds of the timeout; where there are others, one of them is tried first then.
 */
enum rc
claim_connect(struct zk *z, int64_t ttl, instant until, struct fault *f)
{
	bool several = strchr(z->ensemble.hosts, ',') != NULL;
	struct session **s = &z->dir.session;

	if (*s)
		return session_await(*s, until, f);
	for (;;) {
		instant patience = several
		    ? instant_first(until, instant_now() + HOST_PATIENCE)
		    : until;
		enum rc rc = session_begin(
		    s, z->base.host, z->where, &z->ensemble, ttl, until, f);

		if (rc == RC_OK)
			rc = session_await(*s, patience, f);
		if (rc != RC_AGAIN || instant_now() < patience || instant_now() >= until)
			return rc;
		session_abandon(*s);
		*s = NULL;
		ensemble_rotate(&z->ensemble, 1);
	}
}

/* Our place is no more. */
static void
forget_place(struct zk *z)
{
	node_forget(&z->node);
	turn_forget(z);
}

/* The session is no more, and with it our node, or soon. */
void
claim_leave_session(struct zk *z)
{
	session_abandon(z->dir.session);
	z->dir.session = NULL;
	forget_place(z);
}

/* By whom the lock was taken by force, as its directory says, to be freed; NULL: not known. */
static char *
read_forcer(const struct zk *z, struct call *directory, instant until)
{
	struct fault unused;

	return call_await(directory, until, &unused) == RC_OK
	    ? data_forcer(directory->text, z->node.token)
	    : NULL;
}

/*
 * RC_LOST.  If our node has gone, it may have been taken by force, and the lock's directory say by
 * whom: as it was `asked` for (NULL: it was not), or as it is now, if there is time for that.
 */
static enum rc
say_who(struct zk *z, struct call *asked, instant until, struct fault *f)
{
	char *forcer = asked ? read_forcer(z, asked, instant_now()) : NULL;
	struct call *again = NULL;

	if (!forcer && instant_now() < until) {
		again = lockdir_ask(&z->dir, ASK_GET, "", NULL);
		forcer = read_forcer(
		    z, again, instant_first(until, instant_now() + NAME_PATIENCE));
	}
	if (forcer)
		refuse_broken(z->base.host, f, RC_LOST, z->where, forcer);
	free(forcer);
	call_drop(again);
	return RC_LOST;
}

/* ---- given back ---- */

/*
 * What a job has done is written with it, or anew if something is missing for that.  A server
 * that is away is asked again until `until`: whoever waits is to have the lock as soon as it is
 * back.
 */
static enum rc
remove_node(struct zk *z, struct outcome o, instant until, struct fault *f)
{
	const struct job *job = &z->claim->job;
	bool remember = state_is_holders(z->node.state) && o.status >= 0 &&
	    (job_is_wanted(job) || job->remember);

	for (;;) {
		struct memory m = {.n = 0};
		bool refused = true;
		enum rc rc = permit_sweep(z, until, f);

		while (rc == RC_OK && refused) {
			if (remember)
				jobs_remember(z, o, &m);
			rc = node_delete(&z->node, m.changes, m.n, &refused, until, f);
			if (rc == RC_OK && refused)
				rc = jobs_prepare(z, o, until, f);
			/* what is only shown keeps the lock for nobody */
			if (rc == RC_DENIED && remember && job_is_shown(job)) {
				job_note_unshown(z->base.host, job, z->where, o.status);
				remember = false;
				m.n = 0;
				refused = true;
				rc = RC_OK;
			}
		}
		if (rc != RC_AGAIN)
			return rc;
		if (instant_now() >= until) {
			/* or the next attempt would be with one who says nothing */
			session_poison(z->dir.session);
			return rc;
		}
		if (zk_pause(z, instant_first(until, instant_now() + RETRY)) == RC_STOP)
			return RC_STOP;
	}
}

/* ---- acquire ---- */

/*
 * Until when a step into the queue may last.  A slow server is not made faster by beginning
 * anew: a run that has time is given a whole ttl for each.
 */
static instant
join_by(struct zk *z, instant until)
{
	if (!until || !z->patience.persist)
		return instant_after(instant_now(), z->patience.first);
	return instant_first(instant_after(instant_now(), z->claim->ttl),
	    retry_first(&z->patience, until));
}

/* Into the queue, if we are not there, and to its head. */
static enum rc
go_through_queue(struct zk *z, instant until, struct fault *f)
{
	enum rc rc = RC_OK;

	if (!*z->node.path) /* what is left before a permit stops others */
		rc = permit_sweep(z, join_by(z, until), f);
	if (rc == RC_OK)
		rc = turn_await(z, join_by(z, until), until, f);
	if (rc != RC_OK)
		return rc;
	return z->claim->kind == KIND_LIMIT && z->node.permit.state != PERMIT_TAKEN
	    ? permit_take(z, until, f)
	    : turn_earn(z, f);
}

/* From wherever we are: no session, no node, or all of that. */
static enum rc
try_acquire(struct zk *z, instant until, struct fault *f)
{
	instant patience = instant_first(
	    retry_first(&z->patience, until), instant_after(instant_now(), ATTEMPT));
	enum rc rc = claim_connect(z, z->claim->ttl, patience, f);

	z->node.grant = (struct grant){.anchor = -1};
	if (rc == RC_OK)
		rc = z->dir.layout->single ? single_take(z, until, f)
					   : go_through_queue(z, until, f);
	if (rc == RC_OK && job_is_wanted(&z->claim->job))
		rc = jobs_check(z, zk_answer_by(z), f);
	else if (rc == RC_OK && job_is_shown(&z->claim->job))
		rc = jobs_begin_shown(z, zk_answer_by(z), f);
	return rc;
}

/*
 * After a failure: makes ready for the next attempt, and waits for its time.  A session
 * that has ended costs the place.
 */
static enum rc
prepare_retry(struct zk *z, enum rc rc, instant until)
{
	struct session *s = z->dir.session;

	if (rc != RC_LOST && rc != RC_AGAIN)
		return rc;
	if (rc == RC_LOST && z->turn.counted)
		/* that is an answer: the server is back */
		retry_end_outage(&z->patience);
	if (s && session_look(s).dead)
		claim_leave_session(z);
	else if (rc == RC_LOST)
		forget_place(z);
	else if (s)
		session_poison(s); /* it has had its time */
	if (!z->patience.persist && instant_now() >= z->turn.over)
		return RC_AGAIN;
	if (instant_now() >= z->turn.over)
		z->turn.over = NEVER; /* or no attempt would have any time */
	if (z->turn.counted && z->turn.place.position == 0)
		z->base.host->seen.position = 1; /* all wait for us */
	return retry_wait(&z->patience, z->base.host, RC_AGAIN, z->turn.queued, until);
}

enum rc
claim_acquire(struct store *s, const struct claim *claim, instant until,
    struct grant *ret, struct fault *f)
{
	struct zk *z = zk_of(s);
	struct fault unused;
	enum rc rc;

	z->claim = claim;
	/* so that not all go to the same server */
	ensemble_rotate(&z->ensemble, (unsigned char)claim->owner[0]);
	layout_name(z->dir.prefix, z->dir.layout, claim);
	lockdir_place(&z->dir, z->ensemble.chroot, claim->key);
	z->node = (struct node){.dir = &z->dir,
	    .record = claim->record,
	    .owner = z->dir.layout->single ? claim->owner : NULL};
	z->turn = (struct turn){.queued = false};
	z->jobs = (struct jobs){.began = -1};
	forget_place(z);
	retry_begin(&z->patience, claim);
	do
		rc = try_acquire(z, until, f);
	while (
	    rc != RC_OK && rc != RC_DONE && (rc = prepare_retry(z, rc, until)) == RC_OK);
	/* the job has been done: the next one's turn; or the release that follows does it */
	if (rc == RC_DONE &&
	    remove_node(z, NO_OUTCOME, zk_answer_by(z), &unused) == RC_OK) {
		node_note(&z->node, EVENT_GONE);
		forget_place(z);
	}
	if (rc != RC_OK)
		return rc;
	node_note(&z->node, EVENT_GRANTED);
	turn_forget(z); /* the queue may be long */
	*ret = z->node.grant;
	ret->token = z->node.token;
	ret->slot = z->node.permit.number;
	ret->soon = instant_first(ret->pace, FIRST_RENEWAL);
	return RC_OK;
}

/* ---- renew ---- */

/*
 * A server that has left renewals unanswered for a while: there is time yet to ask the
 * next one.  Where there is but one, a late answer is better than none.
 */
static void
try_another_server(struct zk *z, instant began)
{
	struct credit credit = session_look(z->dir.session).credit;
	int64_t patience = credit_pace(&credit) *
	    (strchr(z->ensemble.hosts, ',') ? 3 : 8) / 2;

	z->silent_since = instant_first(z->silent_since, began);
	if (instant_now() < instant_after(z->silent_since, patience))
		return;
	session_poison(z->dir.session);
	z->silent_since = NEVER;
}

/*
 * Writes our node, also where others write to it, until nothing is to be heard of its
 * end.
 */
static enum rc
write_through(struct zk *z, instant until, struct fault *f)
{
	struct node *n = &z->node;
	bool written, alarmed;
	enum rc rc;

	do {
		written = false;
		session_clear_alarm(z->dir.session);
		/* or we would write to another's, which is at that place now */
		rc = z->dir.layout->single ? node_read(n, until, f) : RC_OK;
		if (rc == RC_OK)
			rc = node_written(n, node_write(n), until, &written, f);
		alarmed = session_look(z->dir.session).alarmed;
	} while (rc == RC_OK && (!written || alarmed) && instant_now() < until);
	return rc == RC_OK && !written ? node_is_disturbed(n, f) : rc;
}

enum rc
claim_renew(struct store *s, instant until, struct grant *g, struct fault *f)
{
	struct zk *z = zk_of(s);
	struct node *n = &z->node;
	const struct session_view before = session_look(z->dir.session);
	struct call *directory = NULL;
	instant began = instant_now();
	enum rc rc = session_await(z->dir.session, until, f);

	/* our node may have gone: asked for before our write, so that nothing waits for it */
	if (rc == RC_OK && (before.alarmed || !before.connected || !n->guarded))
		directory = lockdir_ask(&z->dir, ASK_GET, "", NULL);
	if (rc == RC_OK) {
		node_guard(n); /* not at the grant: short commands do without */
		rc = write_through(z, until, f);
	}
	/* what was asked for after an alarm is the last word; else it may have been too early */
	if (rc == RC_LOST)
		rc = say_who(z, directory, before.alarmed ? 0 : until, f);
	if (rc == RC_AGAIN) /* a watch that was asked for just before may be lost */
		n->guarded = false;
	call_drop(directory);
	if (rc == RC_OK) {
		z->silent_since = NEVER;
		g->sent = n->grant.sent;
		g->lease = n->grant.lease;
		g->pace = n->grant.pace;
		g->soon = 0;
		if (n->revocation.state != REVOKED_NEWS)
			return RC_OK;
		n->revocation.state = REVOKED_TOLD;
		return refuse_broken(
		    s->host, f, RC_REVOKED, z->where, n->revocation.asker);
	}
	if (rc == RC_STOP || rc == RC_LOST)
		return rc;
	if (session_look(z->dir.session).dead)
		return RC_LOST;
	try_another_server(z, began);
	return RC_AGAIN;
}

/* ---- release ---- */

/*
 * Our node has gone, but an attempt to delete it went unanswered: was it that, or was the lock taken by
 * force before?  RC_LOST: it was, a note says so.  RC_AGAIN: nobody knows, since a note may be missing or
 * was not to be read.
 */
static enum rc
judge_gone(struct zk *z, instant until, struct fault *f)
{
	struct call *directory = lockdir_ask(&z->dir, ASK_GET, "", NULL);
	enum rc rc = call_await(directory, until, f);
	char *forcer = rc == RC_OK ? data_forcer(directory->text, z->node.token) : NULL;

	if (forcer)
		rc = refuse_broken(z->base.host, f, RC_LOST, z->where, forcer);
	else if (rc != RC_AGAIN && rc != RC_STOP) {
		node_note(&z->node, EVENT_GONE); /* it is not asked for again */
		rc = fault_set(
		    f, RC_AGAIN, "%s closed the connection before it answered", z->where);
	}
	free(forcer);
	call_drop(directory);
	return rc;
}

enum rc
claim_release(struct store *s, struct outcome o, instant until, struct fault *f)
{
	struct zk *z = zk_of(s);
	/* the next one writes its node now: our end would take disk and processors from it */
	bool alone = z->turn.place.n <= 1, lost;
	enum rc rc;

	if (!z->dir.session || z->node.state == STATE_NONE)
		return RC_OK;
	rc = remove_node(z, o, until, f);
	lost = rc == RC_LOST;
	if (rc == RC_OK && z->node.state == STATE_GIVING)
		rc = judge_gone(z, until, f);
	z->leaves = rc == RC_OK && alone;
	if (lost)
		rc = state_is_holders(z->node.state) ? say_who(z, NULL, until, f) : RC_OK;
	/*
	 * Where we must not delete our node, or get nonsense for an answer, it goes with the
	 * session alone: to ask again would be to keep that alive.
	 */
	if (rc != RC_AGAIN && rc != RC_STOP)
		node_note(&z->node, EVENT_GONE);
	if (rc == RC_OK || rc == RC_LOST)
		forget_place(z);
	return rc;
}
