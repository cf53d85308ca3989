/*
 * react.c - what the keeper does about an event.
 *
 *	react_to()   an event; if the front has begun to stop the tree, that is one before it
 *	step()       decides (step.h)
 *	carry_out()  publishes, starts, stops, kills, reports, in this order; what is a call to the
 *	             backend is left to the main line (struct todo), which may be in one
 */
#include "react.h"

#include "cmd/exit.h"
#include "events.h"
#include "keeper_job.h"
#include "told.h"
#include "tree.h"
#include "verdict.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* for the front to erase its line; it may be stopped */
#define CLEAR_SCREEN (50 * NS_PER_MS)

/*
 * Inner runs need it from the command's start on.  While a server thinks, it takes no time.  Not
 * earlier: where descriptors are few, opening the lock comes first.
 */
void
react_open_socket(struct keeper *k)
{
	const struct run *r = k->run;

	if (!*k->outer.address)
		join_outer_open(&k->outer, k->params, r->socket_id,
		    r->body ? r->body->outsider.pid : getpid());
}

/* False, with errno: nor are the anchors in the front's hands.  `told` is for a hold. */
static bool
tell_grant(struct keeper *k, const struct told *told)
{
	const struct msg m = {.kind = MSG_GRANTED,
	    .token = k->lock.grant.token,
	    .slot = k->lock.grant.slot};

	return news_message(&k->news, &m, &k->lock.anchors, told);
}

/* What was granted goes back at once: see keeper_granted(). */
static void
leave_untold(struct keeper *k)
{
	fault_set(&k->fault, RC_SYSTEM,
	    "one of dlock's processes cannot be told of the grant: %s", strerror(errno));
	k->untold = true;
}

static void
start_command(struct keeper *k)
{
	instant now = instant_now(), patience = now + CLEAR_SCREEN;
	struct pollfd set[LOOP_OWN];
	struct told told = {0};

	process_reserve();
	react_open_socket(k);
	/* in the link it is in the front's hands, though the front may sleep */
	if (!told_write(&told, k->run, k->lock.outer.parts, k->outer.address) ||
	    !tell_grant(k, NULL)) {
		leave_untold(k);
		child_dismiss(&k->child);
		return;
	}
	atomic_store(&k->page->command, k->child.pid);
	atomic_store(&k->page->granted_at, now);
	/* where somebody watches us wait, that line goes before the command writes */
	while (atomic_load(&k->page->front.on_screen) && instant_now() < patience)
		loop_wait(&k->loop, set, LOOP_OWN, instant_now() + NS_PER_MS);
	child_go(&k->child,
	    instant_first(k->keep.lease.term_at, atomic_load(&k->page->begin_by)), &told);
}

/* So that the caller can unmount it. */
static void
leave_directory(struct keeper *k)
{
	if (chdir("/") != 0)
		news_trace(&k->news, "cannot leave the working directory");
}

/* The front delivers it.  From here on the process may do what needs the lock. */
static void
start_body(struct keeper *k)
{
	struct told told = {0};

	process_reserve();
	k->run->body->until = instant_after(instant_now(), k->params->steer.length);
	atomic_store(&k->page->exec, EXEC_CALLED);
	leave_directory(k);
	if (told_write(&told, k->run, k->lock.outer.parts, k->outer.address) &&
	    tell_grant(k, &told))
		atomic_store(&k->page->granted_at, instant_now());
	else
		leave_untold(k);
}

/* What a front that must do without us has to know. */
static void
publish_ending(struct keeper *k)
{
	page_put_ending(k->page, &k->keep.ending);
	atomic_store(&k->page->end.finished, true);
}

/* To kill a tree may take long: a front that does it first says why, as we would have. */
static void
publish_loss(struct keeper *k)
{
	if (k->keep.ending.kind != END_LOST || atomic_load(&k->page->end.lost))
		return;
	k->page->end.loss = k->fault;
	page_put_ending(k->page, &k->keep.ending);
	atomic_store(&k->page->end.lost, true);
}

void
react_report(struct keeper *k)
{
	publish_ending(k);
	k->page->end.why = k->fault;
	atomic_store(&k->page->end.told, true);
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
	    .leads = k->child.group != 0,
	    .outsider = run_guarded(k->run),
	    .by = instant_after(k->keep.lease.kill_at, KILL_FINDS),
	};
}

/*
 * Who is there is looked at before parents end: what they leave in another pid namespace is
 * below us no longer.  Not where the lock is lost: a look takes time, the time is short, and
 * many runs of one machine may lose theirs in one moment.
 */
static void
keeper_stop_tree(struct keeper *k)
{
	const struct aim aim = keeper_aim(k);

	if (!keep_is_lost(&k->keep) && !k->run->body)
		tree_signal(getpid(), &(struct aim){.sig = 0});
	tree_signal(getpid(), &aim);
}

static void
keeper_kill_tree(struct keeper *k)
{
	const struct aim aim = keeper_aim(k);

	/* a front that takes over now must not continue what we stop */
	atomic_store(&k->page->stopping, true);
	atomic_store(&k->page->killing, true);
	tree_kill(getpid(), &aim);
}

/* A stub that has never begun has the caller's descriptors. */
void
react_dismiss(struct keeper *k)
{
	if (!k->run->body && !atomic_load(&k->page->granted_at) && !k->keep.tree.gone &&
	    k->child.gate >= 0)
		child_dismiss(&k->child);
}

/* Nobody waits for us any more: nothing of the caller's must be kept busy. */
static void
go_on_alone(struct keeper *k)
{
	keeper_job_leave_session(k);
	leave_directory(k);
	react_dismiss(k);
}

/*
 * A second release, right after the answer to the first, is to find nobody rather than a
 * keeper that ends.
 */
void
react_answer_release(struct keeper *k)
{
	const struct run *r = k->run;
	struct ending e = k->keep.ending;
	struct verdict v;

	if (!join_outer_is_awaited(&k->outer))
		return;
	e.returned = atomic_load(&r->page->end.returned);
	v = k->keep.phase == PH_LINGER
	    ? verdict_of_kept(r->params, 0, keep_wanted_until(&k->keep))
	    : verdict_of_release(r->params, &e, k->fault.text, page_where(r->page));
	if (k->keep.phase == PH_OVER)
		join_outer_shut(&k->outer);
	join_outer_answer(&k->outer, v.status, v.line);
	k->answered = true;
}

static void
carry_out(struct keeper *k, const struct actions *a)
{
	if (a->set & DO_PUBLISH) {
		atomic_store(&k->page->term_at, k->keep.lease.term_at);
		atomic_store(&k->page->kill_at, k->keep.lease.kill_at);
	}
	if (a->set & DO_GO)
		atomic_store(&k->page->log.token, k->lock.grant.token);
	if (a->set & DO_GO)
		k->job.look_at = instant_now() + k->params->terms.ttl / 4;
	if (a->set & DO_GO && k->run->body)
		start_body(k);
	else if (a->set & DO_GO)
		start_command(k);
	if (k->run->body && (a->set & (DO_TERM | DO_KILL)))
		run_settle(k->run, WITHDRAWN);
	if (a->set & (DO_TERM | DO_KILL)) {
		publish_loss(k);
		loss_tell(k->run, &k->keep.ending, k->fault.text);
	}
	/* unless the front has been faster */
	if ((a->set & DO_TERM) && !atomic_exchange(&k->page->stopping, true)) {
		news_send(&k->news, MSG_STOPPING, k->keep.ending.kind, k->fault.text);
		keeper_stop_tree(k);
	}
	if (a->set & DO_KILL)
		keeper_kill_tree(k);
	if (k->run->body && (a->set & (DO_TERM | DO_KILL)))
		join_outer_call(&k->outer);
	if (k->keep.phase > PH_HOLD && !k->keep.reported)
		publish_ending(k);
	if (k->keep.phase > PH_HOLD && !k->run->body)
		join_outer_close(&k->outer);
	if (a->set & DO_REPORT) {
		if (!(a->set & DO_EXIT))
			go_on_alone(k);
		atomic_store(&k->page->end.lingers, !(a->set & DO_EXIT));
		react_report(k);
		react_answer_release(k);
		keeper_job_drop_guard(k); /* who has stopped the front wants it so */
		keeper_job_wake_front(k);
	}
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
	k->todo.stop = k->todo.stop || (a.set & (DO_STOP_CALL | DO_EXIT));
	k->todo.wake = a.wake;
}

void
react(struct keeper *k, enum event_kind kind, int value)
{
	react_to(k, &(struct event){.kind = kind, .value = value});
}
