/*
 * react.c - what the keeper does about an event.
 *
 *	react_to()   an event; if the front has begun to stop the tree, that is one before it
 *	step()       decides (step.h)
 *	carry_out()  publishes the deadlines, starts the ward, stops or kills it, reports the end;
 *	             a call to the backend is left to the main line (struct todo), which may be
 *	             in one
 */
#include "react.h"

#include "cmd/exit.h"
#include "delivery.h"
#include "keeper_job.h"
#include "loss.h"
#include "told.h"
#include "tree.h"
#include "verdict.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/*
 * Inner runs need the socket from the command's start on.  Opened while a server thinks, it costs
 * no time.  Not earlier: where descriptors are few, opening the lock comes first.
 */
void
react_open_socket(struct keeper *k)
{
	if (!*k->socket.address)
		join_outer_open(&k->socket, k->params, k->run->socket_id, k->root);
}

/* A grant of which nobody can be told goes back at once: see use_grant(). */
static void
start_ward(struct keeper *k)
{
	const struct ward_ops *ward = k->run->ward->ops;
	struct told told = {0};

	process_reserve();
	react_open_socket(k);
	if (told_write(&told, k->run, k->lock.outer.parts, k->socket.address) &&
	    ward->start(k, &told))
		return;
	fault_set(&k->fault, RC_SYSTEM,
	    "one of dlock's processes cannot be told of the grant: %s", strerror(errno));
	k->untold = true;
	ward->dismiss(k);
}

struct ending
react_ending(const struct keeper *k)
{
	struct ending e = k->keep.ending;

	e.returned = atomic_load(&k->page->end.returned);
	return e;
}

static void
publish_ending(struct keeper *k)
{
	struct ending e = react_ending(k);

	page_put_ending(k->page, &e);
}

/* Nothing is left that needs the lock: a front that must do without us has to know this. */
static void
publish_finished(struct keeper *k)
{
	publish_ending(k);
	atomic_store(&k->page->end.finished, true);
}

/* To kill a tree may take long: a front that does it first says why, as we would have. */
static void
publish_loss(struct keeper *k)
{
	if (k->keep.ending.kind != END_LOST || atomic_load(&k->page->end.lost))
		return;
	k->page->end.loss = k->fault;
	publish_ending(k);
	atomic_store(&k->page->end.lost, true);
}

void
react_report(struct keeper *k)
{
	publish_finished(k);
	k->page->end.why = k->fault;
	atomic_store(&k->page->end.final, true);
	/* it wakes the front, also one that does not listen yet; nothing else is to be said */
	if (k->news.link >= 0)
		shutdown(k->news.link, SHUT_WR);
}

/* Everything below us, the command first. */
static struct aim
keeper_aim(const struct keeper *k)
{
	return (struct aim){
	    .sig = k->params->command.signal,
	    .wake = true,
	    .command = atomic_load(&k->page->command), /* forgotten once it is reaped */
	    .leads = k->command.group != 0,
	    .outsider = delivery_receiver(k->run),
	    .by = instant_after(k->keep.lease.kill_at, KILL_FINDS),
	};
}

static void
kill_tree(struct keeper *k)
{
	const struct aim aim = keeper_aim(k);

	/* a front that takes over now must not continue what we halt */
	atomic_store(&k->page->stopping, true);
	atomic_store(&k->page->killing, true);
	tree_kill(getpid(), &aim);
}

/* DO_TERM, DO_KILL; to ask all to end is left to the front if that has been faster. */
static void
stop_ward(struct keeper *k, unsigned how)
{
	struct aim aim;

	delivery_settle(k->run, WITHDRAWN);
	publish_loss(k);
	loss_tell(k->run, &k->keep.ending, k->fault.text);
	if ((how & DO_TERM) && !atomic_exchange(&k->page->stopping, true)) {
		news_send(&k->news, MSG_STOPPING, k->keep.ending.kind, k->fault.text);
		aim = keeper_aim(k);
		k->run->ward->ops->stop(k, &aim);
	}
	if (how & DO_KILL)
		kill_tree(k);
	/* runs that have joined need not be descendants of the process of a hold, so they are told */
	if (k->run->ward->is_hold)
		join_outer_call(&k->socket);
}

void
react_answer_release(struct keeper *k)
{
	const struct run *r = k->run;
	struct ending e = react_ending(k);
	struct verdict v;

	if (!join_outer_is_awaited(&k->socket))
		return;
	v = k->keep.phase == PH_LINGER
	    ? verdict_of_kept(r->params, 0, keep_wanted_until(&k->keep))
	    : verdict_of_release(r->params, &e, k->fault.text, page_where(r->page));
	if (k->keep.phase == PH_OVER)
		join_outer_drain(&k->socket);
	join_outer_answer(&k->socket, v.status, v.line);
	k->answered = true;
}

/* Nobody waits for us any more: nothing of the caller's must be kept busy. */
static void
go_on_alone(struct keeper *k)
{
	keeper_job_leave_session(k);
	keeper_job_leave_directory(k);
	k->run->ward->ops->dismiss(k);
}

/* Tells all that have waited for it how all has ended. */
static void
tell_ending(struct keeper *k, bool lingers)
{
	if (lingers)
		go_on_alone(k);
	atomic_store(&k->page->end.lingers, lingers);
	react_report(k);
	if (k->run->ward->is_hold)
		react_answer_release(k);
	if (k->job.guard[0] >= 0)
		keeper_job_drop_guard(k); /* who has suspended the front wants it so */
	if (atomic_load(&k->page->front.mirrored))
		keeper_job_wake_front(k);
}

static void
carry_out(struct keeper *k, const struct actions *a)
{
	if (a->set & DO_PUBLISH) {
		atomic_store(&k->page->term_at, k->keep.lease.term_at);
		atomic_store(&k->page->kill_at, k->keep.lease.kill_at);
	}
	if (a->set & DO_GO) {
		atomic_store(&k->page->log.token, k->lock.grant.token);
		k->job.look_at = instant_now() + k->params->terms.ttl / 4;
		start_ward(k);
	}
	if (a->set & (DO_TERM | DO_KILL))
		stop_ward(k, a->set);
	if (k->keep.phase > PH_HOLD && !k->keep.reported)
		publish_finished(k);
	/* to a hold a release may still come */
	if (k->keep.phase > PH_HOLD && !k->run->ward->is_hold)
		join_outer_close(&k->socket);
	if (a->set & DO_REPORT)
		tell_ending(k, !(a->set & DO_EXIT));
}

void
react_to(struct keeper *k, const struct event *e)
{
	struct actions a;

	if (e->kind != EV_OVERTAKEN && k->keep.phase == PH_HOLD &&
	    !k->keep.tree.stopping && atomic_load(&k->page->stopping))
		/* first: what we are to hear of may be its work */
		react_to(k, &(struct event){.kind = EV_OVERTAKEN});
	a = step(&k->keep, instant_now(), e);
	carry_out(k, &a);
	if (a.set & (DO_ACQUIRE | DO_RENEW | DO_RELEASE | DO_EXIT)) {
		k->todo.calls |= a.set & (DO_ACQUIRE | DO_RENEW | DO_RELEASE | DO_EXIT);
		k->todo.until = a.until;
	}
	k->todo.end_call = k->todo.end_call || (a.set & (DO_END_CALL | DO_EXIT));
	k->todo.wake = a.wake;
}

void
react(struct keeper *k, enum event_kind kind, int value)
{
	react_to(k, &(struct event){.kind = kind, .value = value});
}
