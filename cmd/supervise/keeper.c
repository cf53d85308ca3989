/*
 * keeper.c - the process that keeps the lock, from the fork to its end.
 *
 *	begin     the ward is made ready (of a run: a stub of the command is forked); then the
 *	          keeper parts with all that is the user's
 *	ask       it opens the backend and asks for the lock.  A backend waits by keeper_wait(),
 *	          where all that comes meanwhile is heard (incoming.c)
 *	hold      with the grant the ward begins (react.c); the lease is renewed when step()
 *	          says so, until nothing is left that needs it
 *	release   the lock goes back; a server that does not answer is asked again
 *	end       those that still want to know how it ended are told
 */
#include "keeper_state.h"

#include "backends/common/append.h"
#include "backends/common/libc.h"
#include "before.h"
#include "cmd/environment.h"
#include "cmd/parse.h"
#include "cmd/record.h"
#include "delivery.h"
#include "events.h"
#include "incoming.h"
#include "keeper_job.h"
#include "react.h"
#include "tree.h"
#include "verdict.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

/*
 * Not on the stack: zeroed memory that is never touched costs nothing.  So what each run uses
 * stands together in two pages, apart from large buffers: the lock's ends with such a one.
 */
static _Alignas(4096) struct keeper keeper;

/* ---- waiting ---- */

/*
 * Does one of our own ancestors hold what we wait for?  The environment that leads there may be
 * gone (sudo, env -i, the output of `dlock hold` was not evaluated), its record is not.  Another
 * dlock ends only after us, so that is refused; a script may release what is held for it.  Of
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
		k->for_ancestor = k->todo.end_call = true;
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

	react_open_socket(k);
	if (k->keep.phase == PH_ASK && news_wait(&k->news, k->fault.text))
		notice_kin(k);
	news_notice(&k->news);
	while (!k->todo.end_call) {
		if (incoming_wait(k, fd, events, until) && !k->todo.end_call)
			return WOKE_READY;
		if (!k->todo.end_call && instant_now() >= until)
			return WOKE_TIMEOUT;
	}
	return WOKE_STOP;
}

/* ---- begin ---- */

static _Noreturn void
die_early(struct keeper *k, const char *what)
{
	fault_set(&k->fault, RC_SYSTEM, "%s: %s", what, strerror(errno));
	k->keep.ending = (struct ending){.kind = END_REFUSED, .value = RC_SYSTEM};
	react_report(k);
	_exit(0);
}

/* Sets what die_early() needs, before anything can fail. */
static void
keeper_init(struct keeper *k, const struct run *r)
{
	k->host.wait = keeper_wait;
	k->host.alert = -1;
	k->host.verbose = r->params->show.verbose;
	k->host.tell = k->host.verbose ? news_trace : NULL;
	k->host.tell_ctx = &k->news;
	k->run = r;
	k->params = r->params;
	k->page = r->page;
	k->news.params = r->params;
	k->news.host = &k->host;
	k->news.link = r->ends[1];
	k->todo.wake = NEVER;
	k->socket.listener = k->socket.spare = -1;
	k->job.guard[0] = k->job.guard[1] = -1;
	k->job.leave_at = k->job.look_at = NEVER;
	close(r->ends[0]);
}

/* 0 to 2 stay taken, so that no socket lands there. */
static void
leave_the_terminal(struct keeper *k, int kept)
{
	int null = libc_open_nothing();

	keeper_job_leave_group(k);
	for (int fd = 0; fd <= 2; fd++)
		dup2(null, fd);
	libc_close_all_but(3, k->news.link, kept);
	process_forget();
}

/* Begins with the ward, then parts with all that is the user's. */
static void
keeper_prepare(struct keeper *k)
{
	const struct run *r = k->run;
	const char *why;
	sigset_t heard;
	int kept;

	why = r->ward->ops->begin(k, &kept);
	if (why)
		die_early(k, why);
	leave_the_terminal(k, kept);
	sigemptyset(&heard);
	sigaddset(&heard, SIGCHLD);
	sigaddset(&heard, SIGTERM);
	if (loop_open(&k->loop, &heard) != 0)
		die_early(k, "cannot open a signalfd and a timerfd");
	if (r->params->terms.min_hold > 0)
		record_write(k->record, r->params, getpid(), r->socket_id);
	lock_init(&k->lock, r->params, r->where, &k->host, r->owner,
	    r->params->terms.min_hold > 0 ? k->record : r->record);
	if (r->ward->is_hold) {
		react_open_socket(k);
		prctl(PR_SET_NAME, HOLD_NAME);
		/* without a socket nobody could release it */
		if (k->socket.listener < 0 || k->socket.spare < 0)
			die_early(k, "cannot open a socket for dlock release");
	}
	keep_init(&k->keep, &r->params->terms, r->seed);
	k->keep.lock.several = r->params->nkeys > 1;
}

/* ---- ask ---- */

/*
 * Tells what is known as soon as the store is open, and no server was asked: its name; and that
 * the key may be meant for the lock of another program.  The latter is for a person alone: in cron
 * a line is a mail.
 */
static void
tell_of_store(struct keeper *k)
{
	struct store *s = k->lock.store;
	struct fault *notice = &k->host.notice;
	bool person = k->host.verbose || k->run->origin->has_tty;

	append_text(k->page->where, k->page->where + sizeof k->page->where, s->where);
	atomic_store(&k->page->opened, true);
	if (k->lock.nested || !person || *notice->text || !s->backend->admin ||
	    !s->backend->admin->beside)
		return;
	if (s->backend->admin->beside(s, k->params->keys[0], 0, notice) != RC_OK)
		*notice->text = '\0';
}

/* The grant says what an acquire or a renewal has earned. */
static void
react_to_lease(struct keeper *k, enum event_kind kind, enum rc refused)
{
	const struct grant *g = &k->lock.grant;

	react_to(k,
	    &(struct event){.kind = kind,
		.value = refused,
		.sent = g->sent,
		.lease = g->lease,
		.pace = g->pace,
		.soon = g->soon});
}

/*
 * Begins the ward, unless the grant goes back: for one, because the look before "go" has `refused` it,
 * or because the server has given less than was asked for, and too little.
 */
static void
use_grant(struct keeper *k, enum rc refused)
{
	k->keep.lock.tied = k->lock.nested || k->lock.grant.anchor >= 0;
	/* SIGSTOP has suspended the job while it waited: such a job keeps nobody waiting */
	if (k->command.suspended) {
		react(k, EV_INTERRUPTED, SIGSTOP);
		k->todo.end_call = false;
	}
	react_to_lease(k, EV_GRANTED, refused);
	if (k->untold)
		react(k, EV_EXEC_FAILED, EXEC_NOT_CALLED);
	if (refused == RC_OK && k->keep.ending.kind == END_REFUSED &&
	    k->keep.ending.value == RC_CONFIG)
		fault_set(&k->fault, RC_CONFIG,
		    "%s gives a lease of %s instead of %s, which is too short for two renewals and a grace of %s",
		    k->lock.store->where, parse_span(k->lock.grant.lease).text,
		    parse_span(k->params->terms.ttl).text,
		    parse_span(k->keep.terms.grace).text);
}

/* Most runs look at nothing before they begin, and touch none of it. */
static struct before before;

/*
 * Looks whether the command may begin, now that acquire has ended with `acquired`.  Where it may
 * not, the grant goes back: as after a signal, or because of what is returned.
 */
static enum rc
look_before_go(struct keeper *k, enum rc acquired)
{
	enum rc rc;

	if (k->keep.ending.kind != END_NONE ||
	    (acquired == RC_STOP && !before.superseded))
		return RC_OK;
	rc = before_go(&before, &k->fault);
	/* whatever has ended the look: without one nothing begins */
	if (rc == RC_STOP && k->keep.ending.kind == END_NONE)
		rc = RC_BUSY;
	if (before.superseded)
		news_send(&k->news, MSG_SUPERSEDED, 0, before.rival.record);
	if (rc == RC_BUSY)
		react(k, EV_INTERRUPTED, INTERRUPTED_BY_LOOK);
	k->todo.end_call = false;
	return rc == RC_BUSY || rc == RC_STOP ? RC_OK : rc;
}

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

/* Tells the front that the run is skipped; the page says it to one that sleeps. */
static void
tell_skipped(struct keeper *k)
{
	int status = k->host.seen.done_status;

	atomic_store(&k->page->end.done_status, status);
	news_send(&k->news, MSG_SKIPPED, status, k->fault.text);
}

static void
acquire(struct keeper *k)
{
	instant until = k->params->wait.most == 0
	    ? 0
	    : instant_after(k->run->began, k->params->wait.most);
	enum rc rc = lock_open(&k->lock, &k->fault), refused = RC_OK;
	bool looks = rc == RC_OK && before_looks(k->run, &k->lock);
	char holder[300];

	k->keep.lock.nested = k->lock.nested;
	if (rc == RC_OK)
		tell_of_store(k);
	if (looks)
		rc = before_acquire(
		    &before, k->run, &k->lock, &k->host, until, &k->fault);
	else if (rc == RC_OK)
		rc = lock_acquire(&k->lock, until, &k->fault);
	if (rc == RC_STOP && k->for_ancestor && k->keep.phase == PH_ASK) {
		record_describe(k->host.seen.holding.record, holder, sizeof holder);
		rc = fault_set(&k->fault, RC_PROTOCOL,
		    "the outer run, %s, holds it, and this run cannot join: %s; this run would wait for its own parent for ever",
		    holder, why_apart(k->host.seen.holding.record));
	}
	k->todo.end_call = false;
	news_notice(&k->news);
	if (rc == RC_BUSY) {
		k->host.seen.silent = false;
		news_wait(&k->news, k->fault.text);
	}
	if (rc == RC_DONE)
		tell_skipped(k);
	if (looks && (rc == RC_OK || rc == RC_STOP))
		refused = look_before_go(k, rc);
	if (rc == RC_OK && refused == RC_OK)
		k->fault.text[0] = '\0'; /* an attempt before may have failed */
	if (rc == RC_OK)
		use_grant(k, refused);
	else
		react(k, EV_REFUSED, rc);
}

/* ---- hold ---- */

static void
renew(struct keeper *k)
{
	struct fault f = {""};
	enum rc rc = lock_renew(&k->lock, k->todo.until, &f);

	k->todo.end_call = false;
	news_notice(&k->news);
	switch (rc) {
	case RC_OK:
		if (k->news.suspect)
			k->news.suspect = !news_send(&k->news, MSG_TRUSTED, 0, "");
		if (k->keep.ending.kind != END_LOST)
			k->fault.text[0] = '\0';
		react_to_lease(k, EV_RENEWED, RC_OK);
		break;
	case RC_REVOKED:
		k->fault = f;
		react_to_lease(k, EV_REVOKED, RC_OK);
		break;
	case RC_LOST:
		k->fault = f;
		react(k, EV_DISOWNED, 0);
		break;
	case RC_STOP: /* our own doing, no sign of trouble */
		react(k, EV_UNANSWERED, 0);
		break;
	default:
		if (!k->news.suspect) {
			tree_look(delivery_receiver(k->run)); /* before it may be lost */
			k->news.suspect = news_send(&k->news, MSG_SUSPECT,
			    k->keep.lease.term_at - instant_now(), f.text);
		}
		if (k->keep.ending.kind != END_LOST)
			k->fault = f;
		react(k, EV_UNANSWERED, 0);
	}
}

/* ---- release ---- */

static void
release_lock(struct keeper *k)
{
	struct outcome o = verdict_outcome(&k->keep.ending);
	instant keep_until = keep_wanted_until(&k->keep);
	struct fault f = {""};
	enum rc rc = lock_release(&k->lock, o, keep_until, k->todo.until, &f);

	/* memory has run out, say; for a withdrawal there is no later */
	if (rc == RC_SYSTEM && !k->keep.granted_at)
		rc = lock_release(&k->lock, o, keep_until, k->todo.until, &f);
	k->todo.end_call = false;
	news_notice(&k->news);
	if (rc != RC_OK && k->keep.ending.kind != END_REFUSED &&
	    k->keep.ending.kind != END_LOST)
		k->fault = f;
	react(k, EV_RELEASED, rc);
}

/* ---- end ---- */

/* for those that ask for a release at the moment of another's */
#define LAST_PATIENCE (50 * NS_PER_MS)
/* for a release of what was lost, if --for is not longer */
#define QUESTION_PATIENCE (60 * NS_PER_S)

/* After a loss `dlock release` comes late, when the process of the hold was stopped: is it to come? */
static bool
awaits_question(const struct keeper *k)
{
	return k->keep.ending.kind == END_LOST && !k->answered && !k->keep.after.hurry &&
	    delivery_of(k->run) == DELIVERED;
}

/* Waits for that release, up to QUESTION_PATIENCE. */
static void
await_question(struct keeper *k)
{
	instant until = instant_now() + QUESTION_PATIENCE;
	instant term = k->run->ward->until;

	if (term != NEVER && term > until)
		until = term;
	loop_unblock(SIGTERM);
	while (awaits_question(k) && instant_now() < until)
		incoming_wait(k, -1, 0, until);
}

/*
 * A front that lives logs by itself; one that has ended without a signal has done so.  The link
 * tells of its death first: until the kernel has found us another parent it may take a while.
 */
static void
log_for_front(struct keeper *k)
{
	struct ending e = react_ending(k);

	if (k->params->show.log.kind != LOG_NOWHERE &&
	    (k->keep.orphaned || getppid() != k->run->front))
		events_log_orphan(k->run, &e, k->fault.text);
}

/* ---- all of it ---- */

_Noreturn void
keeper_run(const struct run *r)
{
	unsigned calls;
	instant last;
	bool leaves;

	keeper_init(&keeper, r);
	keeper_prepare(&keeper);
	react(&keeper, EV_TICK, 0);
	/* each time one call that step() wants of the main line, or else a look at what comes */
	while (!((calls = keeper.todo.calls) & DO_EXIT)) {
		keeper.todo.calls = 0;
		if (calls & DO_ACQUIRE)
			acquire(&keeper);
		else if (calls & DO_RENEW)
			renew(&keeper);
		else if (calls & DO_RELEASE)
			release_lock(&keeper);
		else
			incoming_wait(&keeper, -1, 0, NEVER);
	}
	r->ward->ops->dismiss(&keeper);
	if (r->ward->is_hold && !awaits_question(&keeper))
		join_outer_drain(&keeper.socket);
	/* those that came just before that have yet to say what they want */
	last = instant_now() + LAST_PATIENCE;
	while (r->ward->is_hold && keeper.socket.listener < 0 && keeper.socket.n > 0 &&
	    instant_now() < last)
		incoming_wait(&keeper, -1, 0, last);
	/* a run that has joined may be suspended: then what it works under is the front's to keep */
	leaves = r->ward->is_hold && keeper.keep.lock.tied &&
	    keeper.keep.ending.kind == END_LOST && keeper.keep.tree.joined > 0;
	if (!keeper.keep.ending.stuck && !leaves)
		lock_close(&keeper.lock);
	join_outer_unwatch(&keeper.socket);
	log_for_front(&keeper);
	if (r->ward->is_hold && !leaves && awaits_question(&keeper))
		await_question(&keeper);
	_exit(0);
}
