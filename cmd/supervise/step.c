/*
 * step.c - decides what the keeper does next, from state, time and one event.
 *
 *	PH_NEW -> PH_ASK -> PH_HOLD -> (PH_LINGER) -> PH_GIVE_BACK -> PH_OVER
 *
 * absorb() takes the event, then each phase has its turn in that order, so one event may pass
 * several.
 */
#include "step.h"

#include "backends/common/retry.h"

#include <assert.h>
#include <errno.h>

/* ---- small questions and answers ---- */

void
keep_init(struct keep *k, const struct terms *terms, uint64_t seed)
{
	*k = (struct keep){
	    .terms = *terms,
	    .phase = PH_NEW,
	    .lease = {.renew_at = NEVER, .term_at = NEVER, .kill_at = NEVER},
	    .tree = {.started_at = NEVER, .stop_by = NEVER, .killing_since = NEVER},
	    .jitter = seed | 1,
	};
}

/* The length that attempts are measured by: a lease for ever is still looked at now and then. */
static int64_t
span(const struct keep *k)
{
	return k->lease.length == LEASE_FOREVER ? k->terms.ttl : k->lease.length;
}

/* So that a thousand holders do not ask in the same moment. */
static int64_t
jittered(struct keep *k, int64_t least, int64_t most)
{
	return least + jitter_below(&k->jitter, most - least + 1);
}

static int64_t
jittered_backoff(struct keep *k)
{
	int64_t b = lease_backoff(span(k));

	return jittered(k, b / 2, b / 2 + b);
}

static void
take_lease(struct keep *k, instant now, const struct event *e)
{
	struct keep_lease *l = &k->lease;

	l->sent = e->sent;
	l->asked = l->asked > l->sent ? l->asked : l->sent;
	l->length = e->lease;
	l->pace = e->pace ? e->pace : lease_pace(span(k));
	lease_deadlines(l->sent, l->length, k->terms.grace, &l->term_at, &l->kill_at);
	l->renew_at = l->sent + (e->soon ? e->soon : l->pace);
	/* the answer took that long, or is that of an outer dlock */
	if (l->renew_at <= now)
		l->renew_at = now + jittered_backoff(k);
}

static void
end_with(struct keep *k, enum ending_kind kind, int value)
{
	if (k->ending.kind == END_NONE) {
		k->ending.kind = kind;
		k->ending.value = value;
	}
}

bool
keep_is_lost(const struct keep *k)
{
	return k->ending.kind == END_LOST && k->ending.loss != LOSS_REVOKED;
}

/* A loss outdoes every other ending but those in which nothing ran. */
static void
lose(struct keep *k, enum loss how)
{
	if (keep_is_lost(k) || k->ending.kind == END_EXEC ||
	    k->ending.kind == END_REFUSED || k->reported)
		return;
	k->ending = (struct ending){.kind = END_LOST, .loss = how};
}

/*
 * Has all ended that may run only under the lock?  Runs that have joined need not be below us:
 * as long as the lock is ours, it is theirs.  When it is not, they are told, and keep our
 * deadlines themselves; one that is frozen is waited for until kill_at.
 */
static bool
finished(const struct keep *k, instant now)
{
	if (k->tree.stopping || k->lease.disowned || k->ending.kind == END_LOST)
		return k->tree.empty &&
		    (k->tree.joined == 0 || now >= k->lease.kill_at ||
			(k->lease.disowned && k->lease.length == LEASE_FOREVER));
	return k->tree.gone && (k->tree.empty || !k->terms.wait_tree) &&
	    k->tree.joined == 0;
}

/*
 * It was asked back, and one that has joined does not part though it had its grace: it may be
 * frozen.  So the lease is not renewed, and ends.
 */
static bool
lets_lease_end(const struct keep *k, instant now)
{
	return k->lease.revoked && k->tree.empty && now >= k->tree.stop_by;
}

/* --max-run ends the command, or what it left behind if the lock covers that. */
static instant
run_ends(const struct keep *k)
{
	if (k->tree.started_at == NEVER || k->tree.empty ||
	    (k->tree.gone && !k->terms.wait_tree))
		return NEVER;
	return instant_after(k->tree.started_at, k->terms.max_run);
}

/* Has a command run as long as it could, or was let, under a lock that was ours? */
static bool
has_run(const struct ending *e)
{
	return e->kind == END_COMMAND || e->kind == END_MAX_RUN || e->kind == END_KILLED;
}

instant
keep_wanted_until(const struct keep *k)
{
	return has_run(&k->ending) ? k->after.keep_until : 0;
}

/*
 * When the server has surely ended the lease, whatever it got of us and however
 * slow its clock; 0: there is none that would outlive us.
 */
static instant
surely_over(const struct keep *k)
{
	return k->lease.length == LEASE_FOREVER
	    ? 0
	    : k->lease.asked + k->lease.length + k->lease.length / 50;
}

/*
 * From when on an alert would help; NEVER: as things are, it would not.  Of a lock that is
 * tied to a connection, each may be the end.
 */
static instant
wants_alert_from(const struct keep *k, instant now)
{
	if ((k->phase != PH_HOLD && k->phase != PH_LINGER) || k->call != CALL_NONE ||
	    k->lease.suspect || keep_is_lost(k) || lets_lease_end(k, now))
		return NEVER;
	return k->lock.tied ? 0 : alert_due(&k->lease.alerts, span(k));
}

bool
keep_wants_alert(const struct keep *k, instant now)
{
	return now >= wants_alert_from(k, now);
}

/* ---- what an event tells ---- */

static void
keep_granted(struct keep *k, instant now, const struct event *e, struct actions *a)
{
	k->call = CALL_NONE;
	if (!k->terms.grace_fixed && lease_grace(e->lease) < k->terms.grace)
		k->terms.grace = lease_grace(e->lease);
	take_lease(k, now, e);
	if (e->value != RC_OK)
		end_with(k, END_REFUSED, e->value);
	if (k->ending.kind == END_NONE && e->lease != LEASE_FOREVER &&
	    !lease_fits(e->lease, k->lease.pace, k->terms.grace))
		end_with(k, END_REFUSED, RC_CONFIG);
	if (k->ending.kind == END_NONE && now >= k->lease.term_at) {
		end_with(k, END_REFUSED, RC_AGAIN);
		k->ending.too_late = true;
	}
	if (k->ending.kind != END_NONE) {
		k->phase = PH_GIVE_BACK;
		return;
	}
	k->phase = PH_HOLD;
	k->granted_at = now;
	k->after.keep_until = instant_after(now, k->terms.min_hold);
	a->set |= DO_PUBLISH | DO_GO;
}

static void
keep_refused(struct keep *k, enum rc rc)
{
	k->call = CALL_NONE;
	end_with(k, END_REFUSED, rc);
	k->phase = PH_GIVE_BACK;
}

static void
renewed(struct keep *k, instant now, const struct event *e, struct actions *a)
{
	k->call = CALL_NONE;
	k->lease.suspect = false;
	k->after.checked = k->phase == PH_LINGER;
	if (keep_is_lost(k) || now >= k->lease.term_at)
		return;
	take_lease(k, now, e);
	a->set |= DO_PUBLISH;
}

static void
unanswered(struct keep *k, instant now)
{
	k->call = CALL_NONE;
	k->lease.suspect = true;
	k->after.checked = k->phase == PH_LINGER;
	k->lease.renew_at = now + jittered_backoff(k);
}

/* Renewed, but wanted back: the command is to stop while the lock is still ours. */
static void
revoked(struct keep *k, instant now, const struct event *e, struct actions *a)
{
	renewed(k, now, e, a);
	k->lease.revoked = true;
	if (k->phase == PH_HOLD && !finished(k, now) && !k->tree.stopping)
		lose(k, LOSS_REVOKED);
}

static void
released(struct keep *k, instant now, enum rc rc)
{
	k->call = CALL_NONE;
	if (rc == RC_OK || rc == RC_LOST) {
		k->phase = PH_OVER;
		if (rc == RC_OK && k->lock.nested && !k->reported)
			k->ending.kept = KEPT_OUTSIDE;
		if (rc == RC_LOST && (has_run(&k->ending) || k->ending.kind == END_LOST))
			lose(k, LOSS_FOUND);
		return;
	}
	k->after.release_at = now + jittered(k, RELEASE_AGAIN, 2 * RELEASE_AGAIN);
	if (!k->reported)
		k->ending.unconfirmed = true;
}

/*
 * The command was never executed, whatever else has happened; nobody else was in its
 * tree.
 */
static void
not_executed(struct keep *k, int error)
{
	k->tree.gone = k->tree.empty = true;
	if (k->phase != PH_HOLD) /* nor was it meant to be */
		return;
	/* or it was killed, as late */
	if (error == ETIME || (error == 0 && k->ending.kind == END_LOST))
		k->ending = (struct ending){
		    .kind = END_REFUSED, .value = RC_AGAIN, .too_late = true};
	else if (error == 0 && k->ending.kind == END_KILLED)
		k->ending.kind = END_INTERRUPTED;
	else if (error == 0)
		k->ending = (struct ending){.kind = END_REFUSED, .value = RC_SYSTEM};
	else
		k->ending = (struct ending){.kind = END_EXEC, .value = error};
}

/*
 * The front has sent TERM: it was right, or has just not seen our last renewal.  The command
 * may end of that.  A front that we have left to wait for ever, since no lease would end, kills all:
 * if it was killed itself, that is left to us.
 */
static void
overtaken(struct keep *k, instant now)
{
	instant by = k->lease.kill_at == NEVER ? instant_after(now, k->terms.grace)
					       : k->lease.kill_at;

	if (k->phase != PH_HOLD)
		return;
	lose(k, LOSS_SILENCE);
	k->tree.stopping = true;
	k->tree.stop_by = instant_first(k->tree.stop_by, by);
}

/* --kill-after: of several signals the first counts. */
static void
asked(struct keep *k, instant now, int sig)
{
	if (k->phase != PH_HOLD || k->terms.kill_after == NEVER || k->tree.asked)
		return;
	k->tree.asked = sig;
	k->tree.stop_by = instant_first(
	    k->tree.stop_by, instant_after(now, k->terms.kill_after));
}

static void
absorb(struct keep *k, instant now, const struct event *e, struct actions *a)
{
	switch (e->kind) {
	case EV_TICK:
		break;
	case EV_GRANTED:
		keep_granted(k, now, e, a);
		break;
	case EV_REFUSED:
		keep_refused(k, e->value);
		break;
	case EV_RENEWED:
		renewed(k, now, e, a);
		break;
	case EV_UNANSWERED:
		unanswered(k, now);
		break;
	case EV_REVOKED:
		revoked(k, now, e, a);
		break;
	case EV_ALERT:
		alert_follow(&k->lease.alerts, span(k), now);
		k->lease.renew_at = now;
		break;
	case EV_DISOWNED:
		k->call = CALL_NONE;
		k->lease.disowned = true;
		lose(k, LOSS_TAKEN);
		break;
	case EV_RELEASED:
		released(k, now, e->value);
		break;
	case EV_STARTED:
		k->tree.started_at = now;
		break;
	case EV_EXEC_FAILED:
		not_executed(k, e->value);
		break;
	case EV_ENDED:
		k->tree.gone = true;
		if (k->phase < PH_HOLD)
			end_with(k, END_REFUSED, RC_SYSTEM);
		end_with(k, END_COMMAND, e->value);
		break;
	case EV_EMPTY:
		k->tree.empty = true;
		break;
	case EV_JOINED:
		k->tree.joined++;
		break;
	case EV_PARTED:
		k->tree.joined--;
		break;
	case EV_KEEP:
		if (k->after.keep_until < instant_after(now, e->lease))
			k->after.keep_until = instant_after(now, e->lease);
		break;
	case EV_INTERRUPTED:
		if (k->phase < PH_HOLD)
			end_with(k, END_INTERRUPTED, e->value);
		break;
	case EV_ASKED:
		asked(k, now, e->value);
		break;
	case EV_ORPHANED:
		k->orphaned = true;
		end_with(k, END_ORPHANED, 0);
		break;
	case EV_OVERTAKEN:
		overtaken(k, now);
		break;
	case EV_TERMINATED:
		k->after.keep_until = 0;
		k->after.hurry = k->after.hurry || k->phase > PH_HOLD;
		break;
	}
}

/* ---- what to do about it ---- */

static void
keep_stop_tree(struct keep *k, instant by, struct actions *a)
{
	k->tree.stopping = true;
	k->tree.stop_by = instant_first(k->tree.stop_by, by);
	a->set |= DO_TERM;
}

/* The command's right to run: here promise 1 of step.h is kept. */
static void
guard_tree(struct keep *k, instant now, struct actions *a)
{
	/* also if all has ended: it may have ended after term_at, by the front's TERM */
	if (now >= k->lease.term_at && !lets_lease_end(k, now))
		lose(k, LOSS_SILENCE);
	if (finished(k, now))
		return;
	if (k->tree.empty) { /* some have joined, and are to hear of it */
		if (!k->tree.stopping && k->ending.kind == END_LOST)
			keep_stop_tree(k,
			    keep_is_lost(k) ? k->lease.kill_at
					    : instant_after(now, k->terms.grace),
			    a);
		return;
	}
	/* nobody has stopped it since it was asked to end */
	if (now >= k->tree.stop_by && !k->tree.stopping &&
	    (k->ending.kind == END_NONE || k->ending.kind == END_COMMAND))
		k->ending = (struct ending){.kind = END_KILLED, .value = k->tree.asked};
	if (now >= k->lease.kill_at || now >= k->tree.stop_by || k->lease.disowned ||
	    k->tree.killing_since != NEVER) {
		k->tree.stopping = true;
		k->tree.killing_since = instant_first(k->tree.killing_since, now);
		a->set |= DO_KILL;
		if (now >= instant_after(k->tree.killing_since, KILL_PATIENCE)) {
			k->ending.stuck = true;
			k->phase = PH_OVER;
		}
		return;
	}
	if (k->tree.stopping)
		return;
	if (keep_is_lost(k)) {
		keep_stop_tree(k, k->lease.kill_at, a);
	} else if (k->lease.revoked || k->orphaned) {
		keep_stop_tree(k, instant_after(now, k->terms.grace), a);
	} else if (now >= run_ends(k)) {
		k->ending = (struct ending){.kind = END_MAX_RUN};
		keep_stop_tree(k, instant_after(now, k->terms.grace), a);
	}
}

static void
start_call(
    struct keep *k, enum call call, unsigned action, instant until, struct actions *a)
{
	assert(k->call == CALL_NONE);
	k->call = call;
	a->set |= action;
	a->until = until;
}

static void
renew_if_due(struct keep *k, instant now, struct actions *a)
{
	instant until = instant_first(now + lease_attempt(span(k)), k->lease.term_at);

	if (k->call == CALL_NONE && now >= k->lease.renew_at && now < k->lease.term_at &&
	    !keep_is_lost(k))
		start_call(k, CALL_RENEW, DO_RENEW, until, a);
	if (a->set & DO_RENEW)
		k->lease.asked = now;
}

/* --min-hold: the command is gone; confirm once more, tell the front, keep on. */
static void
linger(struct keep *k, instant now, struct actions *a)
{
	if (k->lease.disowned || k->lease.revoked || now >= k->lease.term_at ||
	    now >= k->after.keep_until) {
		k->phase = PH_GIVE_BACK;
		return;
	}
	if (k->after.checked && !k->reported) {
		k->reported = true;
		k->ending.kept = KEPT_MIN_HOLD;
		a->set |= DO_REPORT;
	}
	renew_if_due(k, now, a);
}

static void
step_hold(struct keep *k, instant now, struct actions *a)
{
	guard_tree(k, now, a);
	if (k->phase != PH_HOLD)
		return;
	if (!finished(k, now)) {
		if (!lets_lease_end(k, now))
			renew_if_due(k, now, a);
	} else if (now < keep_wanted_until(k) && !k->lock.nested) {
		k->phase = PH_LINGER;
		k->tree.stop_by = NEVER;
		/* the front is told only what a server has just confirmed */
		k->lease.renew_at = now;
	} else {
		k->phase = PH_GIVE_BACK;
	}
}

/*
 * Until when the next attempt to release may last.  Not after `now`: none is made, since nothing
 * is left to give back, or a run that has joined is frozen and may go on until the lease ends.
 */
static instant
release_until(const struct keep *k, instant now)
{
	bool withdraws = k->ending.kind == END_INTERRUPTED ||
	    k->ending.kind == END_REFUSED;
	bool late = k->ending.kind == END_LOST && k->lease.length != LEASE_FOREVER;
	instant until = now + (withdraws || late ? WITHDRAW_PATIENCE : RELEASE_PATIENCE);

	if ((k->lease.disowned && !k->lock.several) || k->tree.joined > 0)
		return now;
	return late || k->after.release_at ? instant_first(until, surely_over(k)) : until;
}

static void
step_give_back(struct keep *k, instant now, struct actions *a)
{
	instant until = release_until(k, now);

	if (k->call == CALL_RENEW || k->call == CALL_ACQUIRE) {
		a->set |= DO_END_CALL;
		return;
	}
	if (k->call == CALL_RELEASE)
		return;
	if (until <= now || (k->after.release_at && k->after.hurry)) {
		k->phase = PH_OVER;
		return;
	}
	if (now >= k->after.release_at) {
		start_call(k, CALL_RELEASE, DO_RELEASE, until, a);
	} else if (!k->reported) {
		/* the user need not wait for what may take the rest of a lease */
		k->reported = true;
		k->ending.kept = KEPT_TRYING;
		a->set |= DO_REPORT;
	}
}

static instant
next_wake(const struct keep *k, instant now)
{
	instant wake = NEVER, alert = wants_alert_from(k, now);

	if (k->phase == PH_GIVE_BACK && k->call == CALL_NONE)
		return k->after.release_at;
	if (k->phase == PH_HOLD || k->phase == PH_LINGER) {
		bool renews = !keep_is_lost(k) && !lets_lease_end(k, now);

		if (k->call == CALL_NONE && renews)
			wake = k->lease.renew_at;
		wake = instant_first(wake, renews ? k->lease.term_at : k->lease.kill_at);
		if (!k->tree.empty)
			wake = instant_first(wake, k->tree.stop_by);
		if (k->phase == PH_HOLD && !k->tree.stopping)
			wake = instant_first(wake, run_ends(k));
	}
	if (k->phase == PH_LINGER)
		wake = instant_first(wake, k->after.keep_until);
	return alert > now ? instant_first(wake, alert) : wake;
}

struct actions
step(struct keep *k, instant now, const struct event *e)
{
	struct actions a = {.until = NEVER, .wake = NEVER};

	if (k->phase == PH_OVER)
		return a;
	absorb(k, now, e, &a);
	if (k->phase == PH_NEW) {
		k->phase = PH_ASK;
		start_call(k, CALL_ACQUIRE, DO_ACQUIRE, NEVER, &a);
	}
	if (k->phase == PH_ASK && k->ending.kind != END_NONE)
		a.set |= DO_END_CALL;
	if (k->phase == PH_HOLD)
		step_hold(k, now, &a);
	if (k->phase == PH_LINGER)
		linger(k, now, &a);
	if (k->phase == PH_GIVE_BACK)
		step_give_back(k, now, &a);
	if (k->phase == PH_OVER) {
		a.set |= DO_EXIT | (k->reported ? 0 : DO_REPORT);
		k->reported = true;
		return a;
	}
	a.wake = k->phase == PH_HOLD && k->tree.killing_since != NEVER && !k->tree.empty
	    ? now + KILL_AGAIN
	    : next_wake(k, now);
	return a;
}
