/* keeper.c - the process that keeps the lock: carries out what step() decides. */
#include "run.h"

#include "backends/common/append.h"
#include "backends/common/libc.h"
#include "before.h"
#include "cmd/environment.h"
#include "cmd/parse.h"
#include "cmd/record.h"
#include "events.h"
#include "incoming.h"
#include "tree.h"
#include "verdict.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

/* What step() wants of the main line, and of the call that it is in. */
struct todo {
	unsigned calls; /* DO_ACQUIRE, DO_RENEW, DO_RELEASE, DO_EXIT */
	instant until;  /* of the call to be made */
	instant wake;   /* for the next EV_TICK */
	bool stop;      /* the call in flight is to return */
};

/*
 * Not on the stack: zeroed memory that is never touched costs nothing.  So what each run uses
 * stands together in two pages, apart from large buffers: the lock's ends with such a one.
 */
static _Alignas(4096) struct keeper {
	struct host host; /* first: the backend's way back to us */
	const struct run *run;
	const struct params *params;
	struct page *page;
	struct keep keep;
	struct todo todo;
	bool for_ancestor; /* what we would wait for ends only after us */
	bool for_script;   /* the user was told that our own script has it */
	bool untold;       /* the front cannot be given the grant: nothing may begin */
	struct lock lock;
	char record[RECORD_BYTES]; /* with --min-hold: ours, not the front's */
	struct fault fault;        /* of the call that decided the ending */
	struct incoming in;
} keeper;

/* ---- carrying out what step() decides ---- */

/* for the front to erase its line; it may be stopped */
#define CLEAR_SCREEN (50 * NS_PER_MS)

/* False, with errno: nor are the anchors in the front's hands.  `told` is for a hold. */
static bool
tell_grant(struct keeper *k, const struct told *told)
{
	const struct msg m = {.kind = MSG_GRANTED,
	    .token = k->lock.grant.token,
	    .slot = k->lock.grant.slot};

	return news_message(&k->in.news, &m, &k->lock.anchors, told);
}

/*
 * Inner runs need it from the command's start on.  While a server thinks, it takes no time.  Not
 * earlier: where descriptors are few, opening the lock comes first.
 */
static void
open_socket(struct keeper *k)
{
	const struct run *r = k->run;

	if (!*k->in.outer.address)
		join_outer_open(&k->in.outer, k->params, r->socket_id,
		    r->body ? r->body->outsider.pid : getpid());
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
	open_socket(k);
	/* in the link it is in the front's hands, though the front may sleep */
	if (!told_write(&told, k->run, k->lock.outer.parts, k->in.outer.address) ||
	    !tell_grant(k, NULL)) {
		leave_untold(k);
		child_dismiss(&k->in.child);
		return;
	}
	atomic_store(&k->page->command, k->in.child.pid);
	atomic_store(&k->page->granted_at, now);
	/* where somebody watches us wait, that line goes before the command writes */
	while (atomic_load(&k->page->front.on_screen) && instant_now() < patience)
		loop_wait(&k->in.loop, set, LOOP_OWN, instant_now() + NS_PER_MS);
	child_go(&k->in.child,
	    instant_first(k->keep.lease.term_at, atomic_load(&k->page->begin_by)), &told);
}

/* So that the caller can unmount it. */
static void
leave_directory(struct keeper *k)
{
	if (chdir("/") != 0)
		news_trace(&k->in.news, "cannot leave the working directory");
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
	if (told_write(&told, k->run, k->lock.outer.parts, k->in.outer.address) &&
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

static void
report_ending(struct keeper *k)
{
	publish_ending(k);
	k->page->end.why = k->fault;
	atomic_store(&k->page->end.told, true);
	/* it wakes the front, also one that does not listen yet; nothing else is to be said */
	if (k->in.news.link >= 0)
		shutdown(k->in.news.link, SHUT_WR);
}

/* Everything below us, the command first. */
static struct aim
keeper_aim(const struct keeper *k)
{
	return (struct aim){
	    .sig = k->params->command.signal,
	    .wake = true,
	    .command = atomic_load(&k->page->command), /* forgotten once it is reaped */
	    .leads = k->in.child.group != 0,
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
static void
dismiss_stub(struct keeper *k)
{
	if (!k->run->body && !atomic_load(&k->page->granted_at) && !k->keep.tree.gone &&
	    k->in.child.gate >= 0)
		child_dismiss(&k->in.child);
}

/* Nobody waits for us any more: nothing of the caller's must be kept busy. */
static void
go_on_alone(struct keeper *k)
{
	incoming_leave_session(&k->in);
	leave_directory(k);
	dismiss_stub(k);
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
		k->in.guard_at = instant_now() + k->params->terms.ttl / 4;
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
		news_send(&k->in.news, MSG_STOPPING, k->keep.ending.kind, k->fault.text);
		keeper_stop_tree(k);
	}
	if (a->set & DO_KILL)
		keeper_kill_tree(k);
	if (k->run->body && (a->set & (DO_TERM | DO_KILL)))
		join_outer_call(&k->in.outer);
	if (k->keep.phase > PH_HOLD && !k->keep.reported)
		publish_ending(k);
	if (k->keep.phase > PH_HOLD && !k->run->body)
		join_outer_close(&k->in.outer);
	if (a->set & DO_REPORT) {
		if (!(a->set & DO_EXIT))
			go_on_alone(k);
		atomic_store(&k->page->end.lingers, !(a->set & DO_EXIT));
		report_ending(k);
		incoming_answer_release(&k->in);
		incoming_drop_guard(&k->in); /* who has stopped the front wants it so */
		incoming_wake_front(&k->in);
	}
}

static void
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

static void
react_to_incoming(const struct event *e)
{
	react_to(&keeper, e);
}

/* What an acquire or a renewal has earned. */
static void
react_to_lease(struct keeper *k, enum event_kind kind)
{
	const struct grant *g = &k->lock.grant;

	react_to(k,
	    &(struct event){.kind = kind,
		.sent = g->sent,
		.lease = g->lease,
		.pace = g->pace,
		.soon = g->soon});
}

static void
react(struct keeper *k, enum event_kind kind, int value)
{
	react_to(k, &(struct event){.kind = kind, .value = value});
}

/* All waiting: sleeps once, and sees what is due.  Was it `fd`? */
static bool
hear(struct keeper *k, int fd, short events, instant until)
{
	bool ready = incoming_wait(
	    &k->in, fd, events, instant_first(until, k->todo.wake));

	if (instant_now() >= k->todo.wake)
		react(k, EV_TICK, 0);
	return ready;
}

/* ---- the calls to the backend ---- */

/* Why a run below the holder cannot join it. */
static const char *
why_apart(const char *holder)
{
	const char *keepers = environment_get("DLOCK_KEEPER");

	if (!keepers)
		return "DLOCK_KEEPER is missing (sudo and env -i remove it)";
	if (!record_is_among(holder, keepers))
		return "DLOCK_KEEPER is of another run";
	return "it names the server or its settings in another way than the outer run: name them alike";
}

/*
 * Do we wait for what is around us?  The environment that leads there may be gone (sudo,
 * env -i, the output of `dlock hold` was not evaluated), its record is not.  Another dlock
 * ends only after us, so that is refused; a script may release what is held for it.  Of
 * several slots another one may become free.
 */
static void
notice_kin(struct keeper *k)
{
	const char *holder = k->host.seen.holding.record;
	enum record_kin kin = KIN_NONE;

	if (k->params->wait.most != 0 && !k->host.seen.silent && *holder &&
	    !k->host.seen.holding.frozen &&
	    (k->host.seen.holding.kind != KIND_LIMIT || k->host.seen.holding.limit == 1))
		kin = record_kin(holder, k->run->socket_id);
	if (kin == KIN_RUN)
		k->for_ancestor = k->todo.stop = true;
	if (kin == KIN_SCRIPT && !k->for_script && !*k->host.notice.text) {
		k->for_script = true;
		snprintf(k->host.notice.text, sizeof k->host.notice.text,
		    "dlock hold keeps it for the script around this run, and this run cannot join the hold without DLOCK_KEEPER: did the script eval what dlock hold printed?");
	}
}

/* host->wait */
static enum woke
keeper_wait(struct host *h, int fd, short events, instant until)
{
	struct keeper *k = (struct keeper *)h;

	open_socket(k);
	if (k->keep.phase == PH_ASK && news_wait(&k->in.news, k->fault.text))
		notice_kin(k);
	news_notice(&k->in.news);
	while (!k->todo.stop) {
		if (hear(k, fd, events, until) && !k->todo.stop)
			return WOKE_READY;
		if (!k->todo.stop && instant_now() >= until)
			return WOKE_TIMEOUT;
	}
	return WOKE_STOP;
}

static enum rc
open_lock(struct keeper *k)
{
	enum rc rc = lock_open(&k->lock, &k->fault);

	k->keep.terms.nested = k->lock.nested;
	if (rc != RC_OK)
		return rc;
	append_text(
	    k->page->where, k->page->where + sizeof k->page->where, k->lock.store->where);
	atomic_store(&k->page->opened, true);
	return RC_OK;
}

/* The server may give less than was asked for, and too little. */
static void
keeper_granted(struct keeper *k)
{
	k->keep.terms.tied = k->lock.nested || k->lock.grant.anchor >= 0;
	/* the job was stopped while it waited, by SIGSTOP: it is to keep nobody waiting */
	if (k->in.child.stopped) {
		react(k, EV_INTERRUPTED, SIGSTOP);
		k->todo.stop = false;
	}
	react_to_lease(k, EV_GRANTED);
	if (k->untold)
		react(k, EV_EXEC_FAILED, EXEC_NOT_CALLED);
	if (k->keep.ending.kind == END_REFUSED && k->keep.ending.value == RC_CONFIG)
		fault_set(&k->fault, RC_CONFIG,
		    "%s gives a lease of %s instead of %s, which is too short for two renewals and a grace of %s",
		    k->lock.store->where, parse_span(k->lock.grant.lease).text,
		    parse_span(k->params->terms.ttl).text,
		    parse_span(k->keep.terms.grace).text);
}

/* Most runs look at nothing before they begin, and touch none of it. */
static struct before before;

/* The lock was granted: may the command begin?  Else it goes back; as by a signal, or refused. */
static enum rc
look_before_go(struct keeper *k)
{
	enum rc rc;

	if (!before_looks(k->run) || k->lock.nested || k->keep.ending.kind != END_NONE)
		return RC_OK;
	rc = before_go(&before, &k->fault);
	if (rc == RC_BUSY)
		react(k, EV_INTERRUPTED, INTERRUPTED_BY_LOOK);
	k->todo.stop = false;
	return rc == RC_BUSY || rc == RC_STOP ? RC_OK : rc;
}

static void
acquire(struct keeper *k)
{
	instant until = k->params->wait.most == 0
	    ? 0
	    : instant_after(k->run->began, k->params->wait.most);
	enum rc rc = open_lock(k);
	char holder[300];

	if (rc == RC_OK && before_looks(k->run) && !k->lock.nested)
		rc = before_ask(&before, k->run, &k->lock, &k->host, until, &k->fault);
	if (rc == RC_OK)
		rc = lock_acquire(&k->lock, until, &k->fault);
	if (rc == RC_STOP && k->for_ancestor && k->keep.phase == PH_ASK) {
		record_describe(k->host.seen.holding.record, holder, sizeof holder);
		rc = fault_set(&k->fault, RC_PROTOCOL,
		    "the outer run, %s, holds it, and this run cannot join: %s; this run would wait for its own parent for ever",
		    holder, why_apart(k->host.seen.holding.record));
	}
	k->todo.stop = false;
	news_notice(&k->in.news);
	if (rc == RC_BUSY) {
		k->host.seen.silent = false;
		news_wait(&k->in.news, k->fault.text);
	}
	if (rc == RC_DONE)
		news_send(&k->in.news, MSG_SKIPPED, 0, k->fault.text);
	if (rc == RC_OK)
		rc = look_before_go(k);
	if (rc == RC_OK)
		keeper_granted(k);
	else
		react(k, EV_REFUSED, rc);
}

static void
renew(struct keeper *k)
{
	struct fault f = {""};
	enum rc rc = lock_renew(&k->lock, k->todo.until, &f);

	k->todo.stop = false;
	news_notice(&k->in.news);
	switch (rc) {
	case RC_OK:
		if (k->in.news.suspect)
			k->in.news.suspect = !news_send(&k->in.news, MSG_TRUSTED, 0, "");
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
		if (!k->in.news.suspect) {
			tree_look(run_guarded(k->run)); /* before it may be lost */
			k->in.news.suspect = news_send(&k->in.news, MSG_SUSPECT,
			    k->keep.lease.term_at - instant_now(), f.text);
		}
		if (k->keep.ending.kind != END_LOST)
			k->fault = f;
		react(k, EV_UNANSWERED, 0);
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
	news_notice(&k->in.news);
	if (rc != RC_OK && k->keep.ending.kind != END_REFUSED &&
	    k->keep.ending.kind != END_LOST)
		k->fault = f;
	react(k, EV_RELEASED, rc);
}

/* ---- when all has been given back ---- */

/* for those that ask for a release at the moment of another's */
#define LAST_PATIENCE (50 * NS_PER_MS)
/* for a release of what was lost, if --for is not longer */
#define QUESTION_PATIENCE (60 * NS_PER_S)

/* After a loss `dlock release` comes late: when the process of the hold was stopped. */
static void
await_question(struct keeper *k)
{
	instant until = instant_now() + QUESTION_PATIENCE;
	instant term = k->run->body ? k->run->body->until : NEVER;

	if (!k->run->body || k->keep.ending.kind != END_LOST || k->in.answered ||
	    k->keep.after.hurry || run_delivery(k->run) != DELIVERED)
		return;
	if (term != NEVER && term > until)
		until = term;
	loop_unblock(SIGTERM);
	while (!k->in.answered && instant_now() < until)
		hear(k, -1, 0, until);
}

/* A front that lives logs by itself; one that has ended without a signal has done so. */
static void
log_for_front(struct keeper *k)
{
	if (k->params->show.log.kind != LOG_NOWHERE && getppid() != k->run->front)
		events_log_orphan(k->run, &k->keep.ending, k->fault.text);
}

/* ---- the process ---- */

/* 0 to 2 stay taken, so that no socket lands there. */
static void
leave_the_terminal(struct keeper *k)
{
	int null = libc_open_nothing();
	int other = k->run->body ? k->run->body->outsider.fd : k->in.child.gate;

	incoming_leave_group(&k->in);
	for (int fd = 0; fd <= 2; fd++)
		dup2(null, fd);
	libc_close_all_but(3, k->in.news.link, other);
	process_forget();
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
	k->host.verbose = r->params->show.verbose;
	k->host.tell = k->host.verbose ? news_trace : NULL;
	k->host.tell_ctx = &k->in.news;
	k->run = r;
	k->params = r->params;
	k->page = r->page;
	k->in.run = r;
	k->in.keep = &k->keep;
	k->in.fault = &k->fault;
	k->in.lock = &k->lock;
	k->in.react = react_to_incoming;
	k->in.news.params = r->params;
	k->in.news.host = &k->host;
	k->in.news.link = r->ends[1];
	k->todo.wake = NEVER;
	k->in.child.gate = k->in.outer.listener = k->in.outer.spare = -1;
	k->in.guard[0] = k->in.guard[1] = -1;
	k->in.leave_at = k->in.guard_at = NEVER;
	close(r->ends[0]);
}

/* Forks the stub, then parts with all that is the user's. */
static void
keeper_prepare(struct keeper *k)
{
	const struct run *r = k->run;
	sigset_t heard;

	if (!k->run->body && prctl(PR_SET_CHILD_SUBREAPER, 1) != 0)
		die_early(k, "cannot adopt orphans");
	if (!k->run->body && child_fork(&k->in.child, r) != 0)
		die_early(k, "cannot start a process");
	leave_the_terminal(k);
	sigemptyset(&heard);
	sigaddset(&heard, SIGCHLD);
	sigaddset(&heard, SIGTERM);
	if (loop_open(&k->in.loop, &heard) != 0)
		die_early(k, "cannot open a signalfd and a timerfd");
	if (r->params->terms.min_hold > 0)
		record_write(k->record, r->params, getpid(), r->socket_id);
	lock_init(&k->lock, r->params, r->where, &k->host, r->owner,
	    r->params->terms.min_hold > 0 ? k->record : r->record);
	if (k->run->body) {
		open_socket(k);
		prctl(PR_SET_NAME, HOLD_NAME);
		/* without a socket nobody could release it */
		if (k->in.outer.listener < 0 || k->in.outer.spare < 0)
			die_early(k, "cannot open a socket for dlock release");
	}
	keep_init(&k->keep, &r->params->terms);
	k->keep.terms.several = r->params->nkeys > 1;
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
		hear(k, -1, 0, NEVER);
}

_Noreturn void
keeper_run(const struct run *r)
{
	instant last;

	keeper_init(&keeper, r);
	keeper_prepare(&keeper);
	react(&keeper, EV_TICK, 0);
	while (!(keeper.todo.calls & DO_EXIT))
		keeper_call(&keeper);
	dismiss_stub(&keeper);
	/* those that came just before join_outer_shut() have yet to say what they want */
	last = instant_now() + LAST_PATIENCE;
	while (r->body && keeper.in.outer.listener < 0 && keeper.in.outer.n > 0 &&
	    instant_now() < last)
		hear(&keeper, -1, 0, last);
	if (!keeper.keep.ending.stuck)
		lock_close(&keeper.lock);
	log_for_front(&keeper);
	await_question(&keeper);
	_exit(0);
}
