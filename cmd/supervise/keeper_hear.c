/* keeper_hear.c - what may come to the keeper at any time, and what of it step() is told. */
#include "keeper_inside.h"

#include "cmd/status.h"
#include "tree.h"
#include "verdict.h"

#include <errno.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#define LOOK_AGAIN (20 * NS_PER_MS) /* for what is left of a body */

/* ---- whom we hold for, without a command ---- */

/*
 * Whoever it was held for goes on without it, and what becomes of it is no longer his
 * affair, although others who have joined may keep it for longer.
 */
static void
take_back(struct keeper *k)
{
	if (k->keep.phase == PH_HOLD && k->keep.ending.kind == END_NONE)
		atomic_store(&k->shared->end.returned, true);
	keeper_react(k, EV_ENDED, 0);
}

/* Does the end of the process for which we hold, or of its time, still change anything? */
static bool
awaits_body(const struct keeper *k)
{
	return !k->keep.tree.gone && k->keep.phase != PH_OVER;
}

/*
 * The process for which we hold is not ours to reap: whether it and its descendants
 * live has to be looked at.  Until it has been delivered to it, it does not matter to
 * them whether we have the lock.
 */
static void
check_body(struct keeper *k)
{
	struct outside *o = &k->run->body->outside;

	if (awaits_body(k) && o->pid && outside_has_ended(o)) {
		if (k->keep.phase == PH_ASK)
			fault_set(&k->fault, RC_SYSTEM,
			    "process %d, for which it was to be held, has ended",
			    (int)o->pid);
		keeper_react(k, EV_ENDED, 0);
	}
	if (awaits_body(k) && instant_now() >= k->run->body->until)
		take_back(k);
	o = run_guarded(k->run);
	if (k->keep.phase == PH_HOLD && k->keep.tree.stopping && !k->keep.tree.empty &&
	    (!o || tree_signal(0, &(struct aim){.outside = o}) == 0))
		keeper_react(k, EV_EMPTY, 0);
}

/*
 * A signal that reaches us before the lock has been delivered, or while it is held for
 * nobody, ends the holding.  Else only that process, release and the time do.
 */
static void
end_body(struct keeper *k, int sig)
{
	if (!run_guarded(k->run))
		keeper_react(k, EV_ENDED, sig); /* the wait status of who died of it */
}

/* When to look at the body again: no descriptor tells of its descendants' end. */
static instant
body_wake(const struct keeper *k)
{
	if (k->keep.phase == PH_HOLD && k->keep.tree.stopping && !k->keep.tree.empty)
		return instant_now() + LOOK_AGAIN;
	return awaits_body(k) ? k->run->body->until : NEVER;
}

/* ---- the command ---- */

static void
check_gate(struct keeper *k)
{
	int error = 0;

	if (k->child.gate < 0 || k->keep.phase == PH_ASK)
		return;
	switch (child_gate(&k->child, &error)) {
	case GATE_WAITING:
		break;
	case GATE_STARTED:
		if (k->plan->show.status_fd >= 0)
			news_send(&k->news, MSG_STARTED, k->child.pid, "");
		keeper_react(k, EV_STARTED, 0);
		break;
	case GATE_FAILED:
		if (error == 0 && k->keep.phase == PH_HOLD)
			fault_set(&k->fault, RC_SYSTEM,
			    "the process that was to become the command could not begin");
		keeper_react(k, EV_EXEC_FAILED, error);
		break;
	}
}

static void
command_changed(struct keeper *k, int status)
{
	if (WIFSTOPPED(status)) {
		news_send(&k->news, MSG_STOPPED, WSTOPSIG(status), "");
	} else if (WIFCONTINUED(status)) {
		news_send(&k->news, MSG_RESUMED, 0, "");
		keeper_wake_front(k);
	} else {
		check_gate(k); /* "could not be executed" comes before "has ended" */
		if (k->keep.phase == PH_ASK)
			fault_set(&k->fault, RC_SYSTEM,
			    "the process that was to become the command has ended");
		atomic_store(&k->shared->command, 0);
		keeper_react(k, EV_ENDED, status);
	}
}

/*
 * The only code that reaps.  The page forgets the command before its number is
 * free for others: we could be frozen in between, and the front kill another process.
 */
static void
keeper_reap(struct keeper *k)
{
	const int any = WEXITED | WSTOPPED | WCONTINUED | WNOHANG | WNOWAIT;
	siginfo_t found = {0};
	int status;

	for (; waitid(P_ALL, 0, &found, any) == 0; found.si_pid = 0) {
		if (found.si_pid == 0)
			return;
		if (found.si_pid == k->child.pid && found.si_code != CLD_STOPPED &&
		    found.si_code != CLD_CONTINUED)
			atomic_store(&k->shared->command, 0);
		if (waitpid(found.si_pid, &status, WNOHANG | WUNTRACED | WCONTINUED) ==
		    k->child.pid)
			command_changed(k, status);
	}
	if (errno == ECHILD && !k->run->body)
		keeper_react(k, EV_EMPTY, 0);
}

/*
 * To the command alone, as it would be without us: what it does about its own children
 * is its affair.
 */
static void
forward(struct keeper *k, int sig)
{
	char state;

	if (atomic_load(&k->shared->command) == 0)
		return;
	/*
	 * After `fg` the shell has continued the whole job; a second CONT makes editors
	 * draw twice.
	 */
	state = sig == SIGCONT ? tree_state(k->child.pid) : '\0';
	if (sig == SIGCONT && state != 'T' && state != '\0')
		return;
	kill(k->child.pid, sig);
}

/* ---- signals, and the front ---- */

/*
 * To this very process.  With --min-hold others are shown its pid, and mean the command
 * as long as that runs.
 */
static void
keeper_take_signal(struct keeper *k, int sig)
{
	if (sig == SIGCHLD) {
		keeper_reap(k);
	} else if (k->keep.phase == PH_ASK) {
		keeper_react(k, EV_INTERRUPTED, sig);
	} else {
		if (k->keep.phase == PH_HOLD && k->plan->terms.min_hold > 0)
			forward(k, sig);
		if (k->keep.phase == PH_HOLD && k->run->body)
			end_body(k, sig);
		keeper_react(k, EV_TERMINATED, sig);
	}
}

static void
hear_front(struct keeper *k)
{
	struct anchors none;
	struct msg m;
	int got;

	while ((got = link_receive(k->news.link, &m, &none)) > 0) {
		while (none.n > 0)
			close(none.fds[--none.n]);
		if (m.kind == MSG_SIGNAL && k->keep.phase == PH_ASK && m.ends)
			keeper_react(k, EV_INTERRUPTED, m.number);
		else if (m.kind == MSG_SIGNAL && k->run->body && m.ends)
			end_body(k, m.number);
		else if (m.kind == MSG_SIGNAL && !k->run->body &&
		    k->keep.phase != PH_ASK && !m.had)
			forward(k, m.number);
	}
	if (got < 0) {
		close(k->news.link);
		k->news.link = -1;
		/* nobody has heard of the grant: nobody is to be stopped */
		if (k->run->body && k->keep.phase == PH_HOLD)
			end_body(k, 0);
		keeper_react(k, EV_ORPHANED, 0);
	}
}

/* ---- who releases, and who joins ---- */

/*
 * `dlock release`: answered when the lock has been given back, and at once if that has
 * been tried, if it is lost, or if it stays for the sake of others.
 */
static void
hear_release(struct keeper *k)
{
	struct verdict v;

	k->door.asked = false;
	if (!k->run->body || k->keep.phase < PH_HOLD) {
		door_answer(&k->door, STATUS_NOTHING, "");
		return;
	}
	if (k->keep.phase == PH_HOLD && k->keep.ending.kind == END_NONE)
		take_back(k);
	if (k->keep.reported || k->keep.ending.kind == END_LOST) {
		keeper_answer_release(k);
	} else if (k->keep.phase == PH_HOLD && k->keep.tree.joined > 0) {
		v = verdict_of_kept(
		    k->plan, k->keep.tree.joined, keep_wanted_until(&k->keep));
		door_answer(&k->door, v.status, v.line);
	}
}

static void
serve_door(struct keeper *k, const struct pollfd *set)
{
	struct offer offer = {
	    .plan = k->plan,
	    .identity = k->lock.identified ? &k->lock.around.identity : NULL,
	    .ours = k->keep.phase == PH_HOLD && !keep_is_lost(&k->keep),
	    .sent = k->keep.lease.sent,
	    .lease = k->keep.lease.length,
	    .pace = k->keep.lease.pace,
	    .parts = k->lock.around.parts,
	    .stops = k->run->body && k->keep.tree.stopping,
	};
	int64_t keep = 0;
	int grown = door_serve(&k->door, set, &offer, &keep);

	if (keep > 0)
		keeper_react_to(k, &(struct event){.kind = EV_KEEP, .lease = keep});
	for (; grown > 0; grown--)
		keeper_react(k, EV_JOINED, 0);
	for (; grown < 0; grown++)
		keeper_react(k, EV_PARTED, 0);
	if (k->door.asked)
		hear_release(k);
}

/* ---- all of it ---- */

/* The slots of the poll set, after the loop's own. */
enum {
	SLOT_LINK = LOOP_OWN,
	SLOT_GATE, /* or with a body the process for which we hold */
	SLOT_BACKEND,
	SLOT_ALERT,
	SLOT_DOOR,
	SLOTS = SLOT_DOOR + 1 + DOOR_PEERS
};

static int
gate_fd(const struct keeper *k)
{
	if (k->run->body)
		return awaits_body(k) ? k->run->body->outside.fd : -1;
	return k->keep.phase == PH_ASK ? -1 : k->child.gate;
}

/* Not longer than the front may doubt that we are alive. */
bool
keeper_hear(struct keeper *k, int fd, short events, instant until)
{
	struct pollfd set[SLOTS];
	struct signalfd_siginfo info;
	nfds_t n = SLOT_DOOR + door_poll(&k->door, set + SLOT_DOOR);
	bool ready;

	set[SLOT_LINK] = (struct pollfd){.fd = k->news.link, .events = POLLIN};
	set[SLOT_GATE] = (struct pollfd){.fd = gate_fd(k), .events = POLLIN};
	set[SLOT_BACKEND] = (struct pollfd){.fd = fd, .events = events};
	set[SLOT_ALERT] = (struct pollfd){
	    .fd = keep_wants_alert(&k->keep, instant_now()) ? k->host.alert : -1,
	    .events = POLLIN};
	until = instant_first(until, instant_now() + k->plan->terms.ttl / 3);
	if (k->run->body)
		until = instant_first(until, body_wake(k));
	loop_wait(&k->loop, set, n, instant_first(until, k->todo.wake));
	atomic_store(&k->shared->alive_at, instant_now());
	ready = set[SLOT_BACKEND].revents != 0;
	if (k->run->body)
		check_body(k);
	else if (set[SLOT_GATE].revents)
		check_gate(k);
	if (set[LOOP_SIGNAL].revents)
		while (loop_signal(&k->loop, &info))
			keeper_take_signal(k, info.ssi_signo);
	if (set[SLOT_LINK].revents)
		hear_front(k);
	serve_door(k, set + SLOT_DOOR);
	if (set[SLOT_ALERT].revents)
		keeper_react(k, EV_ALERT, 0);
	if (instant_now() >= k->todo.wake)
		keeper_react(k, EV_TICK, 0);
	return ready;
}
