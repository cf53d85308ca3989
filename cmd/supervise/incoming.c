/* incoming.c - what may come to the keeper while it waits, and what of it step() is told. */
#include "incoming.h"

#include "cmd/exit.h"
#include "tree.h"
#include "verdict.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#define TREE_AGAIN (20 * NS_PER_MS)  /* pause between two looks at what a body has left */
#define BODY_AGAIN (100 * NS_PER_MS) /* and at a body of whose end no descriptor tells */
#define LEAVE_LATER (50 * NS_PER_MS) /* what ends within that time is never stopped */
/* for a front of which /proc does not tell whether it is stopped */
#define DELIVERY_PATIENCE (3 * NS_PER_S)
#define DELIVERY_AGAIN (100 * NS_PER_MS) /* between two at a front that is to deliver */

static void
react(struct incoming *in, enum event_kind kind, int value)
{
	in->react(&(struct event){.kind = kind, .value = value});
}

/* ---- the process for which we hold, without a command ---- */

/* The process goes on without the lock, though others that have joined may keep it. */
static void
take_back(struct incoming *in)
{
	if (in->keep->phase == PH_HOLD && in->keep->ending.kind == END_NONE)
		atomic_store(&in->run->page->end.returned, true);
	react(in, EV_ENDED, 0);
}

/* Does the end of the process for which we hold, or of its time, still change anything? */
static bool
awaits_body(const struct incoming *in)
{
	return !in->keep->tree.gone && in->keep->phase != PH_OVER;
}

/* The process for which we hold is not ours to reap: whether it lives is looked at. */
static void
check_body(struct incoming *in)
{
	struct outsider *o = &in->run->body->outsider;

	if (awaits_body(in) && o->pid && outsider_has_ended(o)) {
		if (in->keep->phase == PH_ASK)
			fault_set(in->fault, RC_SYSTEM,
			    "process %d, for which the lock was to be held, has ended",
			    (int)o->pid);
		run_settle(in->run, WITHDRAWN);
		react(in, EV_ENDED, 0);
	}
	if (awaits_body(in) && instant_now() >= in->run->body->until)
		take_back(in);
	if (in->keep->phase != PH_HOLD || !in->keep->tree.stopping ||
	    in->keep->tree.empty)
		return;
	run_settle(in->run, WITHDRAWN);
	o = run_guarded(in->run);
	tree_look(o);
	if (!o || outsider_is_empty(o))
		react(in, EV_EMPTY, 0);
}

/* A signal ends only a hold that is not delivered yet, or is for nobody. */
static void
end_body(struct incoming *in, int sig)
{
	run_settle(in->run, WITHDRAWN);
	if (!run_guarded(in->run))
		react(in, EV_ENDED, sig); /* as a wait status: it died of the signal */
}

static bool
is_undelivered(const struct incoming *in)
{
	return in->keep->phase == PH_HOLD && !in->keep->tree.gone &&
	    run_delivery(in->run) == UNDELIVERED;
}

/*
 * A front that is stopped gives a grant to nobody: the lock goes back.  When it is continued
 * it finds that as the ending, and asks again.
 */
static void
check_delivery(struct incoming *in)
{
	int64_t since = instant_now() - in->keep->granted_at;
	bool late = instant_now() >= atomic_load(&in->run->page->begin_by);
	char state;

	if (!is_undelivered(in) || (since < DELIVERY_AGAIN && !late))
		return;
	state = late ? 'T' : process_state(getppid());
	if ((state != 'T' && (state != '\0' || since < DELIVERY_PATIENCE)) ||
	    !run_settle(in->run, WITHDRAWN))
		return;
	react(in, EV_TERMINATED, 0);
	react(in, EV_ENDED, SIGSTOP); /* as a wait status */
}

/*
 * When to look at the body again: no descriptor tells of its descendants' end, nor of its own
 * without pidfd_open(2).
 */
static instant
body_wake(const struct incoming *in)
{
	if (is_undelivered(in))
		return instant_first(
		    instant_now() + DELIVERY_AGAIN, in->run->body->until);
	if (in->keep->phase == PH_HOLD && in->keep->tree.stopping &&
	    !in->keep->tree.empty)
		return instant_now() + TREE_AGAIN;
	if (awaits_body(in) && in->run->body->outsider.by_proc)
		return instant_first(in->run->body->until, instant_now() + BODY_AGAIN);
	return awaits_body(in) ? in->run->body->until : NEVER;
}

/* ---- the command ---- */

static void
check_gate(struct incoming *in)
{
	int exec;

	if (in->child.gate < 0 || in->keep->phase == PH_ASK ||
	    !child_gate(&in->child, &exec))
		return;
	if (exec == EXEC_CALLED) {
		if (in->run->params->show.status_fd >= 0)
			news_send(&in->news, MSG_STARTED, in->child.pid, "");
		react(in, EV_STARTED, 0);
		return;
	}
	if (exec == EXEC_NOT_CALLED && in->keep->phase == PH_HOLD)
		fault_set(
		    in->fault, RC_SYSTEM, "the process for the command could not start");
	react(in, EV_EXEC_FAILED, exec);
}

/*
 * Is the moment of the command's start worth a wake-up?  That it could not be executed is
 * found out when it has ended.
 */
static bool
awaits_start(const struct incoming *in)
{
	const struct params *p = in->run->params;

	return in->keep->phase != PH_ASK &&
	    (p->show.status_fd >= 0 || p->terms.max_run != NEVER);
}

void
incoming_wake_front(const struct incoming *in)
{
	if (in->news.link >= 0 && atomic_load(&in->run->page->front.mirrored))
		kill(getppid(), SIGCONT);
}

void
incoming_drop_guard(struct incoming *in)
{
	if (in->guard[0] < 0)
		return;
	fcntl(in->guard[0], F_SETFL, O_NONBLOCK);
	close(in->guard[0]);
	close(in->guard[1]);
	in->guard[0] = in->guard[1] = -1;
}

/*
 * The kernel continues the front when the other end, which we alone have, is closed.  The end
 * that tells it so waits in the front's socket, as open as if it had been received.
 */
static void
set_guard(struct incoming *in)
{
	struct anchors sent = {.n = 1};

	if (pipe2(in->guard, O_CLOEXEC | O_NONBLOCK) != 0) {
		in->guard[0] = in->guard[1] = -1;
		return;
	}
	sent.fds[0] = in->guard[0];
	fcntl(sent.fds[0], F_SETOWN, getppid());
	fcntl(sent.fds[0], F_SETSIG, SIGCONT);
	fcntl(sent.fds[0], F_SETFL, O_ASYNC | O_NONBLOCK);
	if (!news_message(&in->news, &(struct msg){.kind = MSG_GUARD}, &sent, NULL))
		incoming_drop_guard(in);
}

/*
 * A front that was stopped by SIGSTOP (`kill -STOP %1`), or had no process left for a guard,
 * would sleep on when we are killed.  So it is looked at when we wake, which we do every third
 * of a lease at least, but not more often than needed.  While the link is open the front is
 * our parent.
 */
static void
check_front(struct incoming *in)
{
	bool guarded = in->guard[0] >= 0, sleeps;

	if (instant_now() < in->guard_at)
		return;
	in->guard_at = instant_now() + in->run->params->terms.ttl / 4;
	sleeps = in->keep->phase == PH_HOLD && in->news.link >= 0 &&
	    !atomic_load(&in->run->page->front.guarded) &&
	    process_state(getppid()) == 'T';
	if (guarded && !sleeps)
		incoming_drop_guard(in);
	else if (sleeps && !guarded)
		set_guard(in);
}

void
incoming_leave_group(struct incoming *in)
{
	bool tty = in->run->origin->has_tty, alone;

	in->group = getpgrp();
	/* 0: it is of an outer pid namespace, and there would be no way back to it */
	alone = (in->run->body || (tty && in->group == 0)) && setsid() >= 0;
	in->leave_at = alone || !tty ? NEVER : instant_now() + LEAVE_LATER;
	if (!alone)
		setpgid(0, 0);
}

/* Who leads a group cannot begin a session: for a moment we are in the front's once more. */
void
incoming_leave_session(struct incoming *in)
{
	if (in->leave_at == NEVER)
		return;
	in->leave_at = NEVER;
	setpgid(0, in->group);
	if (setsid() < 0)
		setpgid(0, 0);
}

static void
command_changed(struct incoming *in, int status)
{
	in->child.stopped = WIFSTOPPED(status);
	if (WIFSTOPPED(status) && in->keep->tree.killing_since != NEVER) {
		return; /* by us: nobody is to stop with it */
	} else if (WIFSTOPPED(status)) {
		incoming_leave_session(in);
		news_send(&in->news, MSG_STOPPED, WSTOPSIG(status), "");
	} else if (WIFCONTINUED(status)) {
		news_send(&in->news, MSG_RESUMED, 0, "");
		incoming_wake_front(in);
	} else {
		check_gate(in); /* "could not be executed" comes before "has ended" */
		if (in->keep->phase == PH_ASK)
			fault_set(in->fault, RC_SYSTEM,
			    "the process for the command has ended before it started the command");
		atomic_store(&in->run->page->command, 0);
		react(in, EV_ENDED, status);
	}
}

/*
 * Orphans become our children, but not in another pid namespace.  Who was seen below us before
 * he went there is to end with the rest.
 */
static bool
awaits_rest(const struct incoming *in)
{
	return in->childless && !in->run->body && !in->keep->tree.empty &&
	    in->keep->phase != PH_OVER;
}

static void
check_rest(struct incoming *in)
{
	if (awaits_rest(in) && !(in->keep->tree.stopping && tree_has_known()))
		react(in, EV_EMPTY, 0);
}

/*
 * The page forgets the command before its number is free for others: we could be frozen in
 * between, and the front kill another process.
 */
static void
reap(struct incoming *in)
{
	const int any = WEXITED | WSTOPPED | WCONTINUED | WNOHANG | WNOWAIT;
	siginfo_t found = {0};
	int status;

	for (; waitid(P_ALL, 0, &found, any) == 0; found.si_pid = 0) {
		if (found.si_pid == 0)
			return;
		if (found.si_pid == in->child.pid && process_is_end(&found))
			atomic_store(&in->run->page->command, 0);
		if (waitpid(found.si_pid, &status, WNOHANG | WUNTRACED | WCONTINUED) ==
		    in->child.pid)
			command_changed(in, status);
	}
	in->childless = errno == ECHILD;
	check_rest(in);
}

/* ---- signals, and the front ---- */

static enum signal_state
keeper_state(const struct incoming *in)
{
	pid_t command;

	if (in->keep->phase < PH_HOLD)
		return SIGNAL_WAITS;
	if (in->keep->phase > PH_HOLD)
		return SIGNAL_OVER;
	if (in->run->body)
		return run_delivery(in->run) == DELIVERED ? SIGNAL_DELIVERED
							  : SIGNAL_UNDELIVERED;
	/* its end may lie in the signalfd, behind the link */
	command = atomic_load(&in->run->page->command);
	return command && process_state(command) != 'Z' ? SIGNAL_RUNS : SIGNAL_RESTS;
}

/* When the command has ended: to all that --wait-tree waits for, else to those that have joined. */
static void
signal_rest(struct incoming *in, const struct aim *aim)
{
	if (in->run->params->terms.wait_tree)
		tree_signal(getpid(), aim);
	else
		join_outer_signal(&in->outer, aim);
}

/* One that has come to the front, or to us. */
static void
obey_signal(struct incoming *in, struct signal_case *c)
{
	const struct params *p = in->run->params;
	enum signal_deed deed;

	/* that we know better than the front */
	c->state = keeper_state(in);
	c->for_nobody = !run_guarded(in->run);
	c->min_hold = p->terms.min_hold > 0;
	deed = signal_decide(c);
	switch (deed) {
	case DEED_END_WAITING:
	case DEED_STOP_WAITING:
		react(in, EV_INTERRUPTED, c->sig);
		break;
	case DEED_END_HOLD:
		end_body(in, c->sig);
		break;
	case DEED_PASS_ON:
	case DEED_PASS_ON_OUTSIDE:
		/* to the command alone, as without us: its own children are its affair */
		if (c->state == SIGNAL_RUNS)
			kill(in->child.pid, c->sig);
		else
			signal_rest(in,
			    &(struct aim){.sig = c->sig,
				.but = deed == DEED_PASS_ON_OUTSIDE ? in->group : 0});
		break;
	case DEED_END_REST:
		signal_rest(in, &(struct aim){.sig = p->command.signal, .wake = true});
		break;
	case DEED_NOTHING:
	case DEED_REAP:
	case DEED_STOP:
		break;
	}
}

static void
take_signal(struct incoming *in, int sig)
{
	struct signal_case c = {.sig = sig, .getter = BY_KEEPER};

	if (sig == SIGCHLD) {
		reap(in);
		return;
	}
	obey_signal(in, &c);
	if (c.state != SIGNAL_WAITS)
		react(in, EV_TERMINATED, sig);
}

static void
hear_front(struct incoming *in)
{
	struct anchors sent;
	struct msg m;
	int got;

	while ((got = link_receive(in->news.link, &m, &sent, NULL)) > 0)
		if (m.kind == MSG_SIGNAL)
			obey_signal(in, &m.got);
	if (got < 0) {
		close(in->news.link);
		in->news.link = -1;
		/* nobody has heard of the grant: nobody is to be stopped */
		if (in->run->body && in->keep->phase == PH_HOLD)
			end_body(in, 0);
		react(in, EV_ORPHANED, 0);
	}
}

/* ---- releases, and runs that join ---- */

/*
 * A second release, right after the answer to the first, is to find nobody rather than a
 * keeper that ends.
 */
void
incoming_answer_release(struct incoming *in)
{
	const struct run *r = in->run;
	struct ending e = in->keep->ending;
	struct verdict v;

	if (!join_outer_is_awaited(&in->outer))
		return;
	e.returned = atomic_load(&r->page->end.returned);
	v = in->keep->phase == PH_LINGER
	    ? verdict_of_kept(r->params, 0, keep_wanted_until(in->keep))
	    : verdict_of_release(r->params, &e, in->fault->text, page_where(r->page));
	if (in->keep->phase == PH_OVER)
		join_outer_shut(&in->outer);
	join_outer_answer(&in->outer, v.status, v.line);
	in->answered = true;
}

/* `dlock release` is answered at once if the lock is lost, or if others keep it. */
static void
hear_release(struct incoming *in)
{
	struct verdict v;

	in->outer.asked = false;
	if (!in->run->body || in->keep->phase < PH_HOLD) {
		join_outer_answer(&in->outer, STATUS_NOTHING, "");
		return;
	}
	if (in->keep->phase == PH_HOLD && in->keep->ending.kind == END_NONE)
		take_back(in);
	if (in->keep->reported || in->keep->ending.kind == END_LOST) {
		incoming_answer_release(in);
	} else if (in->keep->phase == PH_HOLD && in->keep->tree.joined > 0) {
		v = verdict_of_kept(
		    in->run->params, in->keep->tree.joined, keep_wanted_until(in->keep));
		join_outer_answer(&in->outer, v.status, v.line);
	}
}

/* Whether `dlock release -k KEY` means us. */
static enum join_has
what_we_have(const struct incoming *in)
{
	const struct keep *k = in->keep;

	if (!in->run->body)
		return k->phase == PH_HOLD ? HAS_RUN : HAS_NOTHING;
	if (k->phase < PH_HOLD)
		return HAS_NOTHING;
	return k->ending.kind == END_LOST ? HAS_LOSS : HAS_HOLD;
}

static void
serve_inner_runs(struct incoming *in, const struct pollfd *set)
{
	struct offer offer = {
	    .params = in->run->params,
	    .identity = &in->lock->outer.identity,
	    .ours = in->keep->phase == PH_HOLD && !keep_is_lost(in->keep),
	    .sent = in->keep->lease.sent,
	    .lease = in->keep->lease.length,
	    .pace = in->keep->lease.pace,
	    .parts = in->lock->outer.parts,
	    .has = what_we_have(in),
	    .pid = in->run->body && in->run->body->outsider.pid
		? in->run->body->outsider.pid
		: getppid(),
	    .where = page_where(in->run->page),
	    .stops = in->run->body && in->keep->tree.stopping,
	};
	int64_t keep = 0;
	int grown = join_outer_serve(&in->outer, set, &offer, &keep);

	if (keep > 0)
		in->react(&(struct event){.kind = EV_KEEP, .lease = keep});
	for (; grown > 0; grown--)
		react(in, EV_JOINED, 0);
	for (; grown < 0; grown++)
		react(in, EV_PARTED, 0);
	if (in->outer.asked)
		hear_release(in);
}

/* ---- all of it ---- */

/* The slots of the poll set, after the loop's own. */
enum {
	SLOT_LINK = LOOP_OWN,
	SLOT_GATE, /* or with a body the process for which we hold */
	SLOT_BACKEND,
	SLOT_ALERT,
	SLOT_OUTER, /* the listener's; behind it the peers' */
};

/* Not longer than the front may doubt that we are alive. */
bool
incoming_wait(struct incoming *in, int fd, short events, instant until)
{
	struct pollfd set[SLOT_OUTER + 1 + in->outer.n];
	struct signalfd_siginfo info;
	nfds_t n = SLOT_OUTER + join_outer_poll(&in->outer, set + SLOT_OUTER);
	bool sends = in->child.nunsent > 0;
	int gate = awaits_start(in) || sends ? in->child.gate : -1;
	bool ready;

	if (in->run->body)
		gate = awaits_body(in) && !in->run->body->outsider.by_proc
		    ? in->run->body->outsider.fd
		    : -1;
	set[SLOT_LINK] = (struct pollfd){.fd = in->news.link, .events = POLLIN};
	set[SLOT_GATE] = (struct pollfd){.fd = gate, .events = sends ? POLLOUT : POLLIN};
	set[SLOT_BACKEND] = (struct pollfd){.fd = fd, .events = events};
	set[SLOT_ALERT] = (struct pollfd){
	    .fd = keep_wants_alert(in->keep, instant_now()) ? in->news.host->alert : -1,
	    .events = POLLIN};
	until = instant_first(until, instant_now() + in->run->params->terms.ttl / 3);
	if (in->run->body)
		until = instant_first(until, body_wake(in));
	if (awaits_rest(in))
		until = instant_first(until, instant_now() + TREE_AGAIN);
	loop_wait(&in->loop, set, n, instant_first(until, in->leave_at));
	if (in->leave_at != NEVER && instant_now() >= in->leave_at)
		incoming_leave_session(in);
	check_front(in);
	atomic_store(&in->run->page->alive_at, instant_now());
	ready = set[SLOT_BACKEND].revents != 0;
	if (in->run->body) {
		check_delivery(in);
		check_body(in);
	} else if (set[SLOT_GATE].revents == POLLOUT) {
		child_send(&in->child);
	} else if (set[SLOT_GATE].revents) {
		check_gate(in);
	}
	check_rest(in);
	if (set[LOOP_SIGNAL].revents)
		while (loop_signal(&in->loop, &info))
			take_signal(in, info.ssi_signo);
	if (set[SLOT_LINK].revents)
		hear_front(in);
	serve_inner_runs(in, set + SLOT_OUTER);
	if (set[SLOT_ALERT].revents)
		react(in, EV_ALERT, 0);
	return ready;
}
