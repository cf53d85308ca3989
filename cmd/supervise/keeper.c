/* keeper.c - the process that keeps the lock: carries out what step() decides. */
#include "keeper.h"

#include "child.h"
#include "join_server.h"
#include "lock.h"
#include "loop.h"
#include "news.h"
#include "cmd/parse.h"
#include "cmd/record.h"
#include "cmd/status.h"
#include "tree.h"
#include "verdict.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

/* The slots of the poll set, after the loop's own. */
enum {
	SLOT_LINK = LOOP_OWN,
	SLOT_GATE, /* or with a body the process for which we hold */
	SLOT_BACKEND,
	SLOT_ALERT,
	SLOT_JOIN,
	SLOTS = SLOT_JOIN + 1 + JOINS_MAX
};

/* What step() wants of the main line, and of the call that it is in. */
struct keeper_todo {
	unsigned calls; /* DO_ACQUIRE, DO_RENEW, DO_RELEASE, DO_EXIT */
	instant until;  /* of the call to be made */
	instant wake;   /* for the next EV_TICK */
	bool stop;      /* the call in flight is to return */
};

struct keeper {
	struct host host; /* first: the backend's way back to us */
	const struct run *run;
	const struct plan *plan;
	struct shared *shared;
	struct news news; /* to the front */
	struct loop loop;
	struct child child;
	struct join_server joins;
	struct lock lock;
	char record[RECORD_BYTES]; /* with --min-hold: ours, not the front's */
	struct fault fault;        /* of the call that decided the ending */
	struct keep keep;
	struct keeper_todo todo;
	bool answered; /* somebody wanted the lock released, and knows how that ended */
};

/*
 * The one keeper of this process: too large for a stack.  The kernel has zeroed
 * it; what of it is not used costs nothing, and the command is waiting.
 */
static struct keeper keeper;

/* ---- carrying out what step() decides ---- */

/* for those who ask for a release at the moment of another's */
#define LAST_PATIENCE (50 * NS_PER_MS)
/* for a release of what was lost */
#define QUESTION_PATIENCE (60 * NS_PER_S)
/* for the front to erase its line; it may be stopped */
#define CLEAR_SCREEN (50 * NS_PER_MS)
#define LOOK_AGAIN (20 * NS_PER_MS) /* for what is left of a body */

static void react(struct keeper *, enum event_kind, int value);

/* Where somebody watches us wait, that line must be gone before the command writes. */
static void
await_clear_screen(struct keeper *k)
{
	instant patience = instant_now() + CLEAR_SCREEN;
	struct pollfd set[LOOP_OWN];

	while (atomic_load(&k->shared->front.on_screen) && instant_now() < patience)
		loop_wait(&k->loop, set, LOOP_OWN, instant_now() + NS_PER_MS);
}

static void
tell_grant(struct keeper *k)
{
	const struct anchors anchors = lock_anchors(&k->lock);

	news_grant(&k->news, &k->lock.grant, &anchors);
}

/* What a command is told. */
static struct go
make_go(const struct keeper *k)
{
	struct go go = {.latest = k->keep.lease.term_at};

	snprintf(go.token, sizeof go.token, "%" PRIu64, k->lock.grant.token);
	snprintf(go.slot, sizeof go.slot, "%u", k->lock.grant.slot);
	for (size_t i = 0; k->plan->nkeys > 1 && i < k->plan->nkeys; i++)
		go.tokens[i] = k->lock.parts[i].token;
	snprintf(go.keeper, sizeof go.keeper, "%s", k->joins.address);
	return go;
}

static void
start_command(struct keeper *k)
{
	const struct go go = make_go(k);
	bool awaited = (k->news.waited && !k->plan->show.quiet) ||
	    k->plan->show.status_fd >= 0;
	enum telling telling = link_tells(
	    k->shared, &k->lock.grant, k->plan->terms.ttl, instant_now(), awaited);

	atomic_store(&k->shared->command, k->child.pid);
	atomic_store(&k->shared->granted, true);
	if (telling == TELL_BEFORE) {
		tell_grant(k);
		await_clear_screen(k);
	}
	child_go(&k->child, &go);
	/* not earlier: opening the lock comes first where descriptors are few */
	tree_prepare();
	if (telling == TELL_AFTER)
		tell_grant(k);
}

/* The front delivers it.  From here on the process may do what needs the lock. */
static void
start_body(struct keeper *k)
{
	tree_prepare();
	k->run->body->until = instant_after(instant_now(), k->plan->steer.length);
	k->shared->go = make_go(k);
	atomic_store(&k->shared->exec, EXEC_CALLED);
	atomic_store(&k->shared->granted, true);
	tell_grant(k);
}

static void
let_go(struct keeper *k)
{
	if (k->run->body)
		start_body(k);
	else
		start_command(k);
}

/* What a front that must do without us has to know. */
static void
publish_ending(struct keeper *k)
{
	k->shared->end.ending = k->keep.ending;
	atomic_store(&k->shared->end.finished, true);
}

/*
 * The message may be dropped; a front that finds none, but this in the page, has missed
 * it.
 */
static void
report_ending(struct keeper *k)
{
	publish_ending(k);
	news_send(&k->news, MSG_ENDED, 0, k->fault.text);
	atomic_store(&k->shared->end.told, true);
}

/*
 * A front that stopped because the command did has to see that the command goes on, or
 * is gone.
 */
static void
wake_front(struct keeper *k)
{
	if (k->news.link >= 0 && atomic_load(&k->shared->front.mirrored))
		kill(getppid(), SIGCONT);
}

/* Everything below us, the command first. */
static void
keeper_signal_tree(struct keeper *k, int sig, bool wake)
{
	const struct aim aim = {
	    .sig = sig,
	    .wake = wake,
	    .command = k->keep.tree.gone ? 0 : k->child.pid,
	    .leads = k->child.group != 0,
	    .outside = run_guarded(k->run),
	};

	tree_signal(getpid(), &aim);
}

/* Unless the front has been faster. */
static void
keeper_stop_tree(struct keeper *k)
{
	if (atomic_exchange(&k->shared->stopping, true))
		return;
	news_send(&k->news, MSG_STOPPING, k->keep.ending.kind, k->fault.text);
	keeper_signal_tree(k, k->plan->command.signal, true);
}

/*
 * A stub that was never let go has the caller's descriptors, and would be left
 * to the front, who does not wait for it.
 */
static void
dismiss_stub(struct keeper *k)
{
	if (!k->run->body && !atomic_load(&k->shared->granted) && !k->keep.tree.gone &&
	    k->child.gate >= 0)
		child_dismiss(&k->child);
}

/*
 * From here on nobody waits for us: nothing of the caller's must be kept busy,
 * and whoever wants us to end may say so.
 */
static void
go_on_alone(struct keeper *k)
{
	int tty = open("/dev/tty", O_RDWR | O_NOCTTY | O_CLOEXEC);

	if (tty >= 0) {
		ioctl(tty, TIOCNOTTY);
		close(tty);
	}
	if (chdir("/") != 0)
		news_trace(&k->news, "cannot leave the working directory");
	dismiss_stub(k);
}

/*
 * To those who have asked for it, and wait.  A second release, right after the answer to
 * the first, is to find nobody rather than a keeper that ends.
 */
static void
answer_release(struct keeper *k)
{
	struct ending e = k->keep.ending;
	struct verdict v;

	e.returned = atomic_load(&k->shared->end.returned);
	v = verdict_of_release(k->plan, &e, k->fault.text, shared_where(k->shared));
	if (k->keep.phase == PH_OVER && join_server_is_asked(&k->joins))
		join_server_refuse(&k->joins);
	if (join_server_answer(&k->joins, v.status, v.line))
		k->answered = true;
}

static void
carry_out(struct keeper *k, const struct actions *a)
{
	if (a->set & DO_PUBLISH) {
		atomic_store(&k->shared->term_at, k->keep.lease.term_at);
		atomic_store(&k->shared->kill_at, k->keep.lease.kill_at);
	}
	if (a->set & DO_GO)
		let_go(k);
	if (a->set & DO_TERM)
		keeper_stop_tree(k);
	if (a->set & DO_KILL)
		keeper_signal_tree(k, SIGKILL, false);
	if (k->run->body && (a->set & (DO_TERM | DO_KILL)))
		join_server_call(&k->joins);
	if (k->keep.phase > PH_HOLD && !k->keep.reported)
		publish_ending(k);
	if (a->set & DO_REPORT) {
		if (!(a->set & DO_EXIT))
			go_on_alone(k);
		atomic_store(&k->shared->end.lingers, !(a->set & DO_EXIT));
		report_ending(k);
		answer_release(k);
		wake_front(k);
	}
}

static void
react_to(struct keeper *k, const struct event *e)
{
	struct actions a;

	if (e->kind != EV_OVERTAKEN && k->keep.phase == PH_HOLD &&
	    !k->keep.tree.stopping && atomic_load(&k->shared->stopping))
		/* first: what we are to hear of may be its work */
		react(k, EV_OVERTAKEN, 0);
	a = step(&k->keep, instant_now(), e);
	carry_out(k, &a);
	if (a.set & (DO_ACQUIRE | DO_RENEW | DO_RELEASE | DO_EXIT)) {
		k->todo.calls |= a.set & (DO_ACQUIRE | DO_RENEW | DO_RELEASE | DO_EXIT);
		k->todo.until = a.until;
	}
	k->todo.stop = k->todo.stop || (a.set & (DO_STOP_CALL | DO_EXIT));
	k->todo.wake = a.wake;
}

/* What an acquire or a renewal has earned. */
static void
react_to_lease(struct keeper *k, enum event_kind kind)
{
	const struct grant *g = &k->lock.grant;

	react_to(k,
	    &(struct event){
		.kind = kind, .sent = g->sent, .lease = g->lease, .pace = g->pace});
}

static void
react(struct keeper *k, enum event_kind kind, int value)
{
	react_to(k, &(struct event){.kind = kind, .value = value});
}

/* ---- what may come at any time ---- */

/*
 * Whoever it was held for goes on without it, and what becomes of it is no longer his
 * affair, although others who have joined may keep it for longer.
 */
static void
take_back(struct keeper *k)
{
	if (k->keep.phase == PH_HOLD && k->keep.ending.kind == END_NONE)
		atomic_store(&k->shared->end.returned, true);
	react(k, EV_ENDED, 0);
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
		react(k, EV_ENDED, 0);
	}
	if (awaits_body(k) && instant_now() >= k->run->body->until)
		take_back(k);
	o = run_guarded(k->run);
	if (k->keep.phase == PH_HOLD && k->keep.tree.stopping && !k->keep.tree.empty &&
	    (!o || outside_signal(o, 0, false) == 0))
		react(k, EV_EMPTY, 0);
}

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
		react(k, EV_STARTED, 0);
		break;
	case GATE_FAILED:
		if (error == 0 && k->keep.phase == PH_HOLD)
			fault_set(&k->fault, RC_SYSTEM,
			    "the process that was to become the command could not begin");
		react(k, EV_EXEC_FAILED, error);
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
		wake_front(k);
	} else {
		check_gate(k); /* "could not be executed" comes before "has ended" */
		if (k->keep.phase == PH_ASK)
			fault_set(&k->fault, RC_SYSTEM,
			    "the process that was to become the command has ended");
		atomic_store(&k->shared->command, 0);
		react(k, EV_ENDED, status);
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
		react(k, EV_EMPTY, 0);
}

/*
 * A signal that reaches us before the lock has been delivered, or while it is held for
 * nobody, ends the holding.  Else only that process, release and the time do.
 */
static void
end_body(struct keeper *k, int sig)
{
	if (!run_guarded(k->run))
		react(k, EV_ENDED, sig); /* the wait status of who died of it */
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
		react(k, EV_INTERRUPTED, sig);
	} else {
		if (k->keep.phase == PH_HOLD && k->plan->terms.min_hold > 0)
			forward(k, sig);
		if (k->keep.phase == PH_HOLD && k->run->body)
			end_body(k, sig);
		react(k, EV_TERMINATED, sig);
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
			react(k, EV_INTERRUPTED, m.number);
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
		react(k, EV_ORPHANED, 0);
	}
}

/*
 * `dlock release`: answered when the lock has been given back, and at once if that has
 * been tried, if it is lost, or if it stays for the sake of others.
 */
static void
hear_release(struct keeper *k)
{
	struct verdict v;

	k->joins.asked = false;
	if (!k->run->body || k->keep.phase < PH_HOLD) {
		join_server_answer(&k->joins, STATUS_NOTHING, "");
		return;
	}
	if (k->keep.phase == PH_HOLD && k->keep.ending.kind == END_NONE)
		take_back(k);
	if (k->keep.reported || k->keep.ending.kind == END_LOST) {
		answer_release(k);
	} else if (k->keep.phase == PH_HOLD && k->keep.tree.joined > 0) {
		v = verdict_of_joined(k->plan, k->keep.tree.joined);
		join_server_answer(&k->joins, v.status, v.line);
	}
}

static void
serve_joins(struct keeper *k, const struct pollfd *set)
{
	struct join_offer offer = {
	    .plan = k->plan,
	    .site = &k->lock.site,
	    .ours = k->keep.phase == PH_HOLD && !keep_is_lost(&k->keep),
	    .sent = k->keep.lease.sent,
	    .lease = k->keep.lease.length,
	    .pace = k->keep.lease.pace,
	    .parts = k->lock.parts,
	    .stops = k->run->body && k->keep.tree.stopping,
	};
	int64_t keep = 0;
	int grown = join_server_serve(&k->joins, set, &offer, &keep);

	if (keep > 0)
		react_to(k, &(struct event){.kind = EV_KEEP, .lease = keep});
	for (; grown > 0; grown--)
		react(k, EV_JOINED, 0);
	for (; grown < 0; grown++)
		react(k, EV_PARTED, 0);
	if (k->joins.asked)
		hear_release(k);
}

static int
gate_fd(const struct keeper *k)
{
	if (k->run->body)
		return awaits_body(k) ? k->run->body->outside.fd : -1;
	return k->keep.phase == PH_ASK ? -1 : k->child.gate;
}

/* When to look at the body again: no descriptor tells of its descendants' end. */
static instant
body_wake(const struct keeper *k)
{
	if (k->keep.phase == PH_HOLD && k->keep.tree.stopping && !k->keep.tree.empty)
		return instant_now() + LOOK_AGAIN;
	return awaits_body(k) ? k->run->body->until : NEVER;
}

/*
 * Sleeps once, until `fd` is ready, something has happened, or `until`; deals
 * with what came.  Not longer than the front may doubt that we are alive.
 */
static bool
pump(struct keeper *k, int fd, short events, instant until)
{
	struct pollfd set[SLOTS];
	struct signalfd_siginfo info;
	nfds_t n = SLOT_JOIN + join_server_poll(&k->joins, set + SLOT_JOIN);
	bool ready;

	set[SLOT_LINK] = (struct pollfd){.fd = k->news.link, .events = POLLIN};
	set[SLOT_GATE] = (struct pollfd){.fd = gate_fd(k), .events = POLLIN};
	set[SLOT_BACKEND] = (struct pollfd){.fd = fd, .events = events};
	set[SLOT_ALERT] = (struct pollfd){
	    .fd = keep_wants_alert(&k->keep) ? k->host.alert : -1, .events = POLLIN};
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
	serve_joins(k, set + SLOT_JOIN);
	if (set[SLOT_ALERT].revents)
		react(k, EV_ALERT, 0);
	if (instant_now() >= k->todo.wake)
		react(k, EV_TICK, 0);
	return ready;
}

/*
 * host->wait: where every backend waits, and where the keeper does its other duties
 * meanwhile.
 */
static enum woke
keeper_wait(struct host *h, int fd, short events, instant until)
{
	struct keeper *k = (struct keeper *)h;

	if (k->keep.phase == PH_ASK)
		news_wait(&k->news, k->fault.text);
	news_notice(&k->news);
	while (!k->todo.stop) {
		if (pump(k, fd, events, until) && !k->todo.stop)
			return WOKE_READY;
		if (!k->todo.stop && instant_now() >= until)
			return WOKE_TIMEOUT;
	}
	return WOKE_STOP;
}

/* ---- the calls ---- */

static enum rc
open_lock(struct keeper *k)
{
	enum rc rc = lock_open(&k->lock, &k->fault);

	k->keep.terms.nested = k->lock.nested;
	if (rc != RC_OK)
		return rc;
	snprintf(k->shared->where, sizeof k->shared->where, "%s", k->lock.store->where);
	atomic_store(&k->shared->opened, true);
	if (k->plan->show.verbose)
		lock_trace(&k->lock, news_trace, &k->news);
	return RC_OK;
}

/*
 * Where the server gives less than was asked for, it may be too little: then nothing is
 * run, and we say why.
 */
static void
keeper_granted(struct keeper *k)
{
	char lease[32], asked[32], grace[32];

	react_to_lease(k, EV_GRANTED);
	if (k->keep.ending.kind == END_REFUSED && k->keep.ending.value == RC_CONFIG)
		fault_set(&k->fault, RC_CONFIG,
		    "%s gives a lease of %s where %s was asked for, too short for two renewals and a grace of %s",
		    k->lock.store->where,
		    parse_duration_text(k->lock.grant.lease, lease, sizeof lease),
		    parse_duration_text(k->plan->terms.ttl, asked, sizeof asked),
		    parse_duration_text(k->keep.terms.grace, grace, sizeof grace));
}

static void
acquire(struct keeper *k)
{
	instant until = k->plan->wait.most == 0
	    ? 0
	    : instant_after(k->run->began, k->plan->wait.most);
	enum rc rc = open_lock(k);

	if (rc == RC_OK)
		rc = lock_acquire(&k->lock, until, &k->fault);
	k->todo.stop = false;
	news_notice(&k->news);
	if (rc == RC_BUSY) {
		k->host.seen.silent = false;
		news_wait(&k->news, k->fault.text);
	}
	if (rc == RC_DONE)
		news_send(&k->news, MSG_SKIPPED, 0, k->fault.text);
	if (rc == RC_OK)
		keeper_granted(k);
	else
		react(k, EV_REFUSED, rc);
}

static void
unanswered(struct keeper *k, const struct fault *f)
{
	news_suspect(&k->news, k->keep.lease.term_at - instant_now(), f->text);
	if (k->keep.ending.kind != END_LOST)
		k->fault = *f;
	react(k, EV_UNANSWERED, 0);
}

static void
renew(struct keeper *k)
{
	struct fault f = {""};
	enum rc rc = lock_renew(&k->lock, k->todo.until, &f);

	k->todo.stop = false;
	news_notice(&k->news);
	switch (rc) {
	case RC_OK:
		news_trust(&k->news);
		if (run_guarded(k->run))
			outside_signal(run_guarded(k->run), 0, false); /* to know them */
		if (k->keep.ending.kind != END_LOST)
			k->fault.text[0] = '\0';
		react_to_lease(k, EV_RENEWED);
		break;
	case RC_REVOKED:
		k->fault = f;
		react_to_lease(k, EV_REVOKED);
		break;
	case RC_LOST:
		k->fault = f;
		react(k, EV_DISOWNED, 0);
		break;
	case RC_STOP: /* our own doing, no sign of trouble */
		react(k, EV_UNANSWERED, 0);
		break;
	default:
		unanswered(k, &f);
	}
}

static void
release_lock(struct keeper *k)
{
	int status = verdict_status(&k->keep.ending);
	instant keep_until = keep_wanted_until(&k->keep);
	struct fault f = {""};
	enum rc rc = lock_release(&k->lock, status, keep_until, k->todo.until, &f);

	/* memory has run out, say; for a withdrawal there is no later */
	if (rc == RC_SYSTEM && !k->keep.granted_at)
		rc = lock_release(&k->lock, status, keep_until, k->todo.until, &f);
	k->todo.stop = false;
	news_notice(&k->news);
	if (rc != RC_OK && k->keep.ending.kind != END_REFUSED &&
	    k->keep.ending.kind != END_LOST)
		k->fault = f;
	react(k, EV_RELEASED, rc);
}

/* Those who came just before join_server_refuse() have yet to say what they want. */
static void
serve_last(struct keeper *k)
{
	instant until = instant_now() + LAST_PATIENCE;

	while (k->run->body && k->joins.listener < 0 && k->joins.present > 0 &&
	    instant_now() < until)
		pump(k, -1, 0, until);
}

/*
 * Whoever comes to release what was lost is to hear of it, and he comes late: when the
 * process for which it was held has ended.  Nothing is kept but the socket.
 */
static void
await_question(struct keeper *k)
{
	instant until = instant_now() + QUESTION_PATIENCE;
	sigset_t term;

	if (!k->run->body || k->keep.ending.kind != END_LOST || k->answered ||
	    k->keep.after.hurry || !atomic_load(&k->shared->front.delivered))
		return;
	sigemptyset(&term);
	sigaddset(&term, SIGTERM);
	sigprocmask(SIG_UNBLOCK, &term, NULL);
	if (chdir("/") != 0)
		return;
	while (!k->answered && instant_now() < until)
		pump(k, -1, 0, until);
}

/* ---- the process ---- */

/*
 * Lets go of everything that is the user's; 0 to 2 stay taken, so that no socket lands
 * there.
 */
static void
leave_the_terminal(struct keeper *k)
{
	int null = open("/dev/null", O_RDWR | O_CLOEXEC), low, high;
	int other = k->run->body ? k->run->body->outside.fd : k->child.gate;

	/* nothing of a body's terminal may be kept when it has gone home */
	if (!k->run->body || setsid() < 0)
		setpgid(0, 0);
	for (int fd = 0; fd <= 2; fd++)
		dup2(null, fd);
	low = k->news.link < other || other < 0 ? k->news.link : other;
	high = k->news.link < other ? other : k->news.link;
	if (low > 3)
		close_range(3, low - 1, 0);
	if (high > low + 1)
		close_range(low + 1, high - 1, 0);
	close_range(high + 1, ~0U, 0);
}

static _Noreturn void
die_early(struct keeper *k, const char *what)
{
	fault_set(&k->fault, RC_SYSTEM, "%s: %s", what, strerror(errno));
	k->keep.ending = (struct ending){.kind = END_REFUSED, .value = RC_SYSTEM};
	report_ending(k);
	_exit(0);
}

/* Before anything can fail: what die_early() needs. */
static void
keeper_init(struct keeper *k, const struct run *r)
{
	k->host.wait = keeper_wait;
	k->host.alert = -1;
	k->host.verbose = r->plan->show.verbose;
	k->run = r;
	k->plan = r->plan;
	k->shared = r->shared;
	news_init(&k->news, r->plan, &k->host, r->ends[1]);
	k->todo.wake = NEVER;
	k->child.gate = -1;
	close(r->ends[0]);
}

/* Without a socket nobody could release it. */
static void
prepare_body(struct keeper *k)
{
	prctl(PR_SET_NAME, HOLD_NAME);
	if (k->joins.listener < 0 || k->joins.spare < 0)
		die_early(k, "cannot open a socket for dlock release");
}

/* Forks the stub, then parts with all that is the user's. */
static void
keeper_prepare(struct keeper *k)
{
	const struct run *r = k->run;
	sigset_t heard;

	prctl(PR_SET_CHILD_SUBREAPER, 1);
	if (!k->run->body &&
	    child_fork(&k->child, r->plan, r->origin, r->owner, r->path, r->ends[0],
		r->ends[1], &r->shared->exec) != 0)
		die_early(k, "cannot start a process");
	leave_the_terminal(k);
	sigemptyset(&heard);
	sigaddset(&heard, SIGCHLD);
	sigaddset(&heard, SIGTERM);
	if (loop_open(&k->loop, &heard) != 0)
		die_early(k, "cannot open a signalfd and a timerfd");
	if (r->plan->terms.min_hold > 0)
		record_write(k->record, r->plan, getpid());
	lock_init(
	    &k->lock, r->plan, &k->host, r->owner, *k->record ? k->record : r->record);
	join_server_open(
	    &k->joins, r->plan, k->run->body ? k->run->body->outside.pid : getpid());
	if (k->run->body)
		prepare_body(k);
	keep_init(&k->keep, &r->plan->terms);
	k->keep.terms.several = r->plan->nkeys > 1;
}

/* One thing that step() wants of the main line, or else a look at what has happened. */
static void
keeper_call(struct keeper *k)
{
	unsigned calls = k->todo.calls;

	k->todo.calls = 0;
	if (calls & DO_ACQUIRE)
		acquire(k);
	else if (calls & DO_RENEW)
		renew(k);
	else if (calls & DO_RELEASE)
		release_lock(k);
	else
		pump(k, -1, 0, NEVER);
}

_Noreturn void
keeper_run(const struct run *r)
{
	keeper_init(&keeper, r);
	keeper_prepare(&keeper);
	react(&keeper, EV_TICK, 0);
	while (!(keeper.todo.calls & DO_EXIT))
		keeper_call(&keeper);
	dismiss_stub(&keeper);
	serve_last(&keeper);
	if (!keeper.keep.ending.stuck)
		lock_close(&keeper.lock);
	await_question(&keeper);
	_exit(0);
}
