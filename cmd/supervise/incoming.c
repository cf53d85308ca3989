/* incoming.c - what may come to the keeper while it waits, and what of it step() is told. */
#include "incoming.h"

#include "cmd/exit.h"
#include "keeper_job.h"
#include "react.h"
#include "tree.h"
#include "verdict.h"

#include <errno.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#define TREE_AGAIN (20 * NS_PER_MS)  /* pause between two looks at what a body has left */
#define BODY_AGAIN (100 * NS_PER_MS) /* and at a body of whose end no descriptor tells */
/* for a front of which /proc does not tell whether it is stopped */
#define DELIVERY_PATIENCE (3 * NS_PER_S)
#define DELIVERY_AGAIN (100 * NS_PER_MS) /* between two at a front that is to deliver */

/* ---- the process for which we hold, without a command ---- */

/* The process goes on without the lock, though others that have joined may keep it. */
static void
take_back(struct keeper *k)
{
	if (k->keep.phase == PH_HOLD && k->keep.ending.kind == END_NONE)
		atomic_store(&k->page->end.returned, true);
	react(k, EV_ENDED, 0);
}

/* Does the end of the process for which we hold, or of its time, still change anything? */
static bool
awaits_body(const struct keeper *k)
{
	return !k->keep.tree.gone && k->keep.phase != PH_OVER;
}

/* The process for which we hold is not ours to reap: whether it lives is looked at. */
static void
check_body(struct keeper *k)
{
	struct outsider *o = &k->run->body->outsider;

	if (awaits_body(k) && o->pid && outsider_has_ended(o)) {
		if (k->keep.phase == PH_ASK)
			fault_set(&k->fault, RC_SYSTEM,
			    "process %d, for which the lock was to be held, has ended",
			    (int)o->pid);
		run_settle(k->run, WITHDRAWN);
		react(k, EV_ENDED, 0);
	}
	if (awaits_body(k) && instant_now() >= k->run->body->until)
		take_back(k);
	if (k->keep.phase != PH_HOLD || !k->keep.tree.stopping || k->keep.tree.empty)
		return;
	run_settle(k->run, WITHDRAWN);
	o = run_guarded(k->run);
	tree_look(o);
	if (!o || outsider_is_empty(o))
		react(k, EV_EMPTY, 0);
}

/* A signal ends only a hold that is not delivered yet, or is for nobody. */
static void
end_body(struct keeper *k, int sig)
{
	run_settle(k->run, WITHDRAWN);
	if (!run_guarded(k->run))
		react(k, EV_ENDED, sig); /* as a wait status: it died of the signal */
}

static bool
is_undelivered(const struct keeper *k)
{
	return k->keep.phase == PH_HOLD && !k->keep.tree.gone &&
	    run_delivery(k->run) == UNDELIVERED;
}

/*
 * A front that is stopped gives a grant to nobody: the lock goes back.  When it is continued
 * it finds that as the ending, and asks again.
 */
static void
check_delivery(struct keeper *k)
{
	int64_t since = instant_now() - k->keep.granted_at;
	bool late = instant_now() >= atomic_load(&k->page->begin_by);
	char state;

	if (!is_undelivered(k) || (since < DELIVERY_AGAIN && !late))
		return;
	state = late ? 'T' : process_state(getppid());
	if ((state != 'T' && (state != '\0' || since < DELIVERY_PATIENCE)) ||
	    !run_settle(k->run, WITHDRAWN))
		return;
	react(k, EV_TERMINATED, 0);
	react(k, EV_ENDED, SIGSTOP); /* as a wait status */
}

/*
 * When to look at the body again: no descriptor tells of its descendants' end, nor of its own
 * without pidfd_open(2).
 */
static instant
body_wake(const struct keeper *k)
{
	if (is_undelivered(k))
		return instant_first(instant_now() + DELIVERY_AGAIN, k->run->body->until);
	if (k->keep.phase == PH_HOLD && k->keep.tree.stopping && !k->keep.tree.empty)
		return instant_now() + TREE_AGAIN;
	if (awaits_body(k) && k->run->body->outsider.by_proc)
		return instant_first(k->run->body->until, instant_now() + BODY_AGAIN);
	return awaits_body(k) ? k->run->body->until : NEVER;
}

/* ---- the command ---- */

static void
check_gate(struct keeper *k)
{
	int exec;

	if (k->child.gate < 0 || k->keep.phase == PH_ASK || !child_gate(&k->child, &exec))
		return;
	if (exec == EXEC_CALLED) {
		if (k->params->show.status_fd >= 0)
			news_send(&k->news, MSG_STARTED, k->child.pid, "");
		react(k, EV_STARTED, 0);
		return;
	}
	if (exec == EXEC_NOT_CALLED && k->keep.phase == PH_HOLD)
		fault_set(
		    &k->fault, RC_SYSTEM, "the process for the command could not start");
	react(k, EV_EXEC_FAILED, exec);
}

/*
 * Is the moment of the command's start worth a wake-up?  That it could not be executed is
 * found out when it has ended.
 */
static bool
awaits_start(const struct keeper *k)
{
	const struct params *p = k->params;

	return k->keep.phase != PH_ASK &&
	    (p->show.status_fd >= 0 || p->terms.max_run != NEVER);
}

static void
command_changed(struct keeper *k, int status)
{
	k->child.stopped = WIFSTOPPED(status);
	if (WIFSTOPPED(status) && k->keep.tree.killing_since != NEVER) {
		return; /* by us: nobody is to stop with it */
	} else if (WIFSTOPPED(status)) {
		keeper_job_leave_session(k);
		news_send(&k->news, MSG_STOPPED, WSTOPSIG(status), "");
	} else if (WIFCONTINUED(status)) {
		news_send(&k->news, MSG_RESUMED, 0, "");
		keeper_job_wake_front(k);
	} else {
		check_gate(k); /* "could not be executed" comes before "has ended" */
		if (k->keep.phase == PH_ASK)
			fault_set(&k->fault, RC_SYSTEM,
			    "the process for the command has ended before it started the command");
		atomic_store(&k->page->command, 0);
		react(k, EV_ENDED, status);
	}
}

/*
 * Orphans become our children, but not in another pid namespace.  Who was seen below us before
 * he went there is to end with the rest.
 */
static bool
awaits_rest(const struct keeper *k)
{
	return k->childless && !k->run->body && !k->keep.tree.empty &&
	    k->keep.phase != PH_OVER;
}

static void
check_rest(struct keeper *k)
{
	if (awaits_rest(k) && !(k->keep.tree.stopping && tree_has_known()))
		react(k, EV_EMPTY, 0);
}

/*
 * The page forgets the command before its number is free for others: we could be frozen in
 * between, and the front kill another process.
 */
static void
reap(struct keeper *k)
{
	const int any = WEXITED | WSTOPPED | WCONTINUED | WNOHANG | WNOWAIT;
	siginfo_t found = {0};
	int status;

	for (; waitid(P_ALL, 0, &found, any) == 0; found.si_pid = 0) {
		if (found.si_pid == 0)
			return;
		if (found.si_pid == k->child.pid && process_is_end(&found))
			atomic_store(&k->page->command, 0);
		if (waitpid(found.si_pid, &status, WNOHANG | WUNTRACED | WCONTINUED) ==
		    k->child.pid)
			command_changed(k, status);
	}
	k->childless = errno == ECHILD;
	check_rest(k);
}

/* ---- signals, and the front ---- */

static enum signal_state
keeper_state(const struct keeper *k)
{
	pid_t command;

	if (k->keep.phase < PH_HOLD)
		return SIGNAL_WAITS;
	if (k->keep.phase > PH_HOLD)
		return SIGNAL_OVER;
	if (k->run->body)
		return run_delivery(k->run) == DELIVERED ? SIGNAL_DELIVERED
							 : SIGNAL_UNDELIVERED;
	/* its end may lie in the signalfd, behind the link */
	command = atomic_load(&k->page->command);
	return command && process_state(command) != 'Z' ? SIGNAL_RUNS : SIGNAL_RESTS;
}

/* When the command has ended: to all that --wait-tree waits for, else to those that have joined. */
static void
signal_rest(struct keeper *k, const struct aim *aim)
{
	if (k->params->terms.wait_tree)
		tree_signal(getpid(), aim);
	else
		join_outer_signal(&k->outer, aim);
}

/* One that has come to the front, or to us. */
static void
obey_signal(struct keeper *k, struct signal_case *c)
{
	const struct params *p = k->params;
	enum signal_deed deed;

	/* that we know better than the front */
	c->state = keeper_state(k);
	c->for_nobody = !run_guarded(k->run);
	c->min_hold = p->terms.min_hold > 0;
	deed = signal_decide(c);
	switch (deed) {
	case DEED_END_WAITING:
	case DEED_STOP_WAITING:
		react(k, EV_INTERRUPTED, c->sig);
		break;
	case DEED_END_HOLD:
		end_body(k, c->sig);
		break;
	case DEED_PASS_ON:
	case DEED_PASS_ON_OUTSIDE:
		/* to the command alone, as without us: its own children are its affair */
		if (c->state == SIGNAL_RUNS)
			kill(k->child.pid, c->sig);
		else
			signal_rest(k,
			    &(struct aim){.sig = c->sig,
				.but = deed == DEED_PASS_ON_OUTSIDE ? k->job.group : 0});
		break;
	case DEED_END_REST:
		signal_rest(k, &(struct aim){.sig = p->command.signal, .wake = true});
		break;
	case DEED_NOTHING:
	case DEED_REAP:
	case DEED_STOP:
		break;
	}
	/* also if the command had it already; one to us counts if it is passed on */
	if ((c->state == SIGNAL_RUNS || c->state == SIGNAL_RESTS) && signal_asks(c) &&
	    (c->getter == BY_FRONT || deed == DEED_PASS_ON))
		react(k, EV_ASKED, c->sig);
}

static void
take_signal(struct keeper *k, int sig)
{
	struct signal_case c = {
	    .sig = sig, .getter = BY_KEEPER, .ends = signal_is_end(sig)};

	if (sig == SIGCHLD) {
		reap(k);
		return;
	}
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
		/* nobody has heard of the grant: nobody is to be stopped */
		if (k->run->body && k->keep.phase == PH_HOLD)
			end_body(k, 0);
		react(k, EV_ORPHANED, 0);
	}
}

/* ---- releases, and runs that join ---- */

/* `dlock release` is answered at once if the lock is lost, or if others keep it. */
static void
hear_release(struct keeper *k)
{
	struct verdict v;

	k->outer.asked = false;
	if (!k->run->body || k->keep.phase < PH_HOLD) {
		join_outer_answer(&k->outer, STATUS_NOTHING, "");
		return;
	}
	if (k->keep.phase == PH_HOLD && k->keep.ending.kind == END_NONE)
		take_back(k);
	if (k->keep.reported || k->keep.ending.kind == END_LOST) {
		react_answer_release(k);
	} else if (k->keep.phase == PH_HOLD && k->keep.tree.joined > 0) {
		v = verdict_of_kept(
		    k->params, k->keep.tree.joined, keep_wanted_until(&k->keep));
		join_outer_answer(&k->outer, v.status, v.line);
	}
}

/* Whether `dlock release -k KEY` means us. */
static enum join_has
what_we_have(const struct keeper *k)
{
	const struct keep *keep = &k->keep;

	if (!k->run->body)
		return keep->phase == PH_HOLD ? HAS_RUN : HAS_NOTHING;
	if (keep->phase < PH_HOLD)
		return HAS_NOTHING;
	return keep->ending.kind == END_LOST ? HAS_LOSS : HAS_HOLD;
}

static void
serve_inner_runs(struct keeper *k, const struct pollfd *set)
{
	struct offer offer = {
	    .params = k->params,
	    .identity = &k->lock.outer.identity,
	    .ours = k->keep.phase == PH_HOLD && !keep_is_lost(&k->keep),
	    .sent = k->keep.lease.sent,
	    .lease = k->keep.lease.length,
	    .pace = k->keep.lease.pace,
	    .parts = k->lock.outer.parts,
	    .has = what_we_have(k),
	    .pid = k->run->body && k->run->body->outsider.pid ? k->run->body->outsider.pid
							      : getppid(),
	    .where = page_where(k->page),
	    .stops = k->run->body && k->keep.tree.stopping,
	};
	int64_t keep = 0;
	int grown = join_outer_serve(&k->outer, set, &offer, &keep);

	if (keep > 0)
		react_to(k, &(struct event){.kind = EV_KEEP, .lease = keep});
	for (; grown > 0; grown--)
		react(k, EV_JOINED, 0);
	for (; grown < 0; grown++)
		react(k, EV_PARTED, 0);
	if (k->outer.asked)
		hear_release(k);
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
incoming_wait(struct keeper *k, int fd, short events, instant until)
{
	struct pollfd set[SLOT_OUTER + 1 + k->outer.n];
	struct signalfd_siginfo info;
	nfds_t n = SLOT_OUTER + join_outer_poll(&k->outer, set + SLOT_OUTER);
	bool sends = k->child.nunsent > 0;
	int gate = awaits_start(k) || sends ? k->child.gate : -1;
	bool ready;

	if (k->run->body)
		gate = awaits_body(k) && !k->run->body->outsider.by_proc
		    ? k->run->body->outsider.fd
		    : -1;
	set[SLOT_LINK] = (struct pollfd){.fd = k->news.link, .events = POLLIN};
	set[SLOT_GATE] = (struct pollfd){.fd = gate, .events = sends ? POLLOUT : POLLIN};
	set[SLOT_BACKEND] = (struct pollfd){.fd = fd, .events = events};
	set[SLOT_ALERT] = (struct pollfd){
	    .fd = keep_wants_alert(&k->keep, instant_now()) ? k->host.alert : -1,
	    .events = POLLIN};
	until = instant_first(until, instant_now() + k->params->terms.ttl / 3);
	if (k->run->body)
		until = instant_first(until, body_wake(k));
	if (awaits_rest(k))
		until = instant_first(until, instant_now() + TREE_AGAIN);
	loop_wait(&k->loop, set, n, instant_first(until, k->job.leave_at));
	if (k->job.leave_at != NEVER && instant_now() >= k->job.leave_at)
		keeper_job_leave_session(k);
	keeper_job_look(k);
	atomic_store(&k->page->alive_at, instant_now());
	ready = set[SLOT_BACKEND].revents != 0;
	if (k->run->body) {
		check_delivery(k);
		check_body(k);
	} else if (set[SLOT_GATE].revents == POLLOUT) {
		child_send(&k->child);
	} else if (set[SLOT_GATE].revents) {
		check_gate(k);
	}
	check_rest(k);
	if (set[LOOP_SIGNAL].revents)
		while (loop_signal(&k->loop, &info))
			take_signal(k, info.ssi_signo);
	if (set[SLOT_LINK].revents)
		hear_front(k);
	serve_inner_runs(k, set + SLOT_OUTER);
	if (set[SLOT_ALERT].revents)
		react(k, EV_ALERT, 0);
	return ready;
}
