/*
 * incoming.c - what may come to the keeper while it waits.
 *
 * incoming_wait() sleeps once, and then deals with what has come, in this order:
 *
 *	the ward      it has begun, changed or ended, or nothing is left of it
 *	signals       TERM, and that a child has changed
 *	the front     signals that it has got; that it is gone
 *	inner runs    they join and part; somebody asks for a release
 *	the backend   its connection has something (the caller deals with that); an alert
 *	the time      what step() wants done by now
 */
#include "incoming.h"

#include "cmd/exit.h"
#include "delivery.h"
#include "keeper_job.h"
#include "react.h"
#include "script.h"
#include "verdict.h"

#include <signal.h>
#include <unistd.h>

/* ---- signals, and the front ---- */

static enum signal_state
state_now(const struct keeper *k)
{
	if (k->keep.phase < PH_HOLD)
		return SIGNAL_WAITS;
	return k->keep.phase > PH_HOLD ? SIGNAL_OVER : k->run->ward->ops->state(k);
}

/* The signal has come to the front, or to us. */
static void
obey_signal(struct keeper *k, struct signal_case *c)
{
	enum signal_deed deed;

	/* these three the keeper knows better than the front */
	c->state = state_now(k);
	c->for_nobody = !delivery_receiver(k->run);
	c->min_hold = k->params->terms.min_hold > 0;
	deed = signal_decide(c);
	if (deed == DEED_END_WAITING || deed == DEED_SUSPEND_WAITING)
		react(k, EV_INTERRUPTED, c->sig);
	else
		k->run->ward->ops->signal(k, deed, c);
	/* also if the command had it already; one to us counts if it is passed on */
	if ((c->state == SIGNAL_RUNS || c->state == SIGNAL_RESTS) && signal_asks(c) &&
	    (c->getter == BY_FRONT || deed == DEED_PASS_ON))
		react(k, EV_ASKED, c->sig);
}

/* Somebody has sent TERM to the keeper itself. */
static void
obey_term(struct keeper *k, int sig)
{
	struct signal_case c = {
	    .sig = sig, .getter = BY_KEEPER, .ends = signal_is_end(sig)};

	obey_signal(k, &c);
	if (c.state != SIGNAL_WAITS)
		react(k, EV_TERMINATED, sig);
}

static void
hear_front(struct keeper *k)
{
	struct anchors sent;
	struct msg m;
	int got;

	while ((got = link_receive(k->news.link, &m, &sent, NULL)) > 0)
		if (m.kind == MSG_SIGNAL)
			obey_signal(k, &m.got);
	if (got < 0) {
		close(k->news.link);
		k->news.link = -1;
		/* nobody has heard of the grant of a hold: nobody is to be stopped */
		if (k->keep.phase == PH_HOLD)
			k->run->ward->ops->signal(
			    k, DEED_END_HOLD, &(struct signal_case){0});
		react(k, EV_ORPHANED, 0);
	}
}

/* ---- releases, and runs that join ---- */

/* `dlock release` is answered at once if the lock is lost, or if others keep it. */
static void
hear_release(struct keeper *k)
{
	struct verdict v;

	k->socket.asked = false;
	if (!k->run->ward->is_hold || k->keep.phase < PH_HOLD) {
		join_outer_answer(&k->socket, STATUS_NOTHING, "");
		return;
	}
	if (k->keep.phase == PH_HOLD && k->keep.ending.kind == END_NONE)
		script_take_back(k);
	if (k->keep.reported || k->keep.ending.kind == END_LOST) {
		react_answer_release(k);
	} else if (k->keep.phase == PH_HOLD && k->keep.tree.joined > 0) {
		v = verdict_of_kept(
		    k->params, k->keep.tree.joined, keep_wanted_until(&k->keep));
		join_outer_answer(&k->socket, v.status, v.line);
	}
}

/* Whether `dlock release -k KEY` means us. */
static enum join_has
what_we_have(const struct keeper *k)
{
	const struct keep *keep = &k->keep;

	if (!k->run->ward->is_hold)
		return keep->phase == PH_HOLD ? HAS_RUN : HAS_NOTHING;
	if (keep->phase < PH_HOLD || keep->granted_at == 0)
		return HAS_NOTHING;
	if (keep->ending.kind == END_LOST)
		return HAS_LOSS;
	return keep->phase == PH_OVER ? HAS_NOTHING : HAS_HOLD;
}

static void
serve_inner_runs(struct keeper *k, const struct pollfd *set)
{
	const struct outsider *o = k->run->ward->outsider;
	struct offer offer = {
	    .params = k->params,
	    .identity = &k->lock.outer.identity,
	    .ours = k->keep.phase == PH_HOLD && !keep_is_lost(&k->keep),
	    .sent = k->keep.lease.sent,
	    .lease = k->keep.lease.length,
	    .pace = k->keep.lease.pace,
	    .parts = k->lock.outer.parts,
	    .has = what_we_have(k),
	    .pid = o ? o->pid : getppid(),
	    .where = page_where(k->page),
	    /* what a command has started is signalled with it */
	    .stops = k->run->ward->is_hold && k->keep.tree.stopping,
	};
	int64_t keep = 0;
	int grown;

	grown = join_outer_serve(&k->socket, set, &offer, &keep);
	if (keep > 0)
		react_to(k, &(struct event){.kind = EV_KEEP, .lease = keep});
	for (; grown > 0; grown--)
		react(k, EV_JOINED, 0);
	for (; grown < 0; grown++)
		react(k, EV_PARTED, 0);
	if (k->socket.asked)
		hear_release(k);
}

/* ---- all of it ---- */

/* The slots of the poll set, after the loop's own. */
enum {
	SLOT_LINK = LOOP_OWN,
	SLOT_WARD,
	SLOT_BACKEND,
	SLOT_ALERT,
	SLOT_SOCKET, /* the listener's; behind it the peers' */
};

bool
incoming_wait(struct keeper *k, int fd, short events, instant until)
{
	struct pollfd set[SLOT_SOCKET + 1 + k->socket.n];
	struct signalfd_siginfo info;
	nfds_t n = SLOT_SOCKET + join_outer_poll(&k->socket, set + SLOT_SOCKET);

	until = instant_first(until, k->run->ward->ops->await(k, &set[SLOT_WARD]));
	set[SLOT_LINK] = (struct pollfd){.fd = k->news.link, .events = POLLIN};
	set[SLOT_BACKEND] = (struct pollfd){.fd = fd, .events = events};
	set[SLOT_ALERT] = (struct pollfd){
	    .fd = k->host.alert >= 0 && keep_wants_alert(&k->keep, instant_now())
		? k->host.alert
		: -1,
	    .events = POLLIN};
	until = instant_first(until, k->todo.wake);
	/* not longer than the front may doubt that we are alive */
	until = instant_first(until, instant_now() + k->params->terms.ttl / 3);
	/* as when we wake: we may have had no processor for long, and now sleep for all that */
	atomic_store(&k->page->alive_at, instant_now());
	loop_wait(&k->loop, set, n, instant_first(until, k->job.leave_at));
	if (k->job.leave_at != NEVER && instant_now() >= k->job.leave_at)
		keeper_job_leave_session(k);
	if (instant_now() >= k->job.look_at)
		keeper_job_look(k);
	atomic_store(&k->page->alive_at, instant_now());
	k->run->ward->ops->look(k, &set[SLOT_WARD]);
	while (set[LOOP_SIGNAL].revents && loop_signal(&k->loop, &info))
		if (info.ssi_signo == SIGCHLD)
			k->run->ward->ops->reap(k);
		else
			obey_term(k, info.ssi_signo);
	if (set[SLOT_LINK].revents)
		hear_front(k);
	if (set[SLOT_SOCKET].revents || k->socket.n > 0 || k->socket.spares)
		serve_inner_runs(k, set + SLOT_SOCKET);
	if (set[SLOT_ALERT].revents)
		react(k, EV_ALERT, 0);
	if (instant_now() >= k->todo.wake)
		react(k, EV_TICK, 0);
	return set[SLOT_BACKEND].revents != 0;
}
