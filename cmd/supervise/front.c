/*
 * front.c - the process that the user sees: speaks, watches the keeper, ends as the command did.
 *
 *	watch       is the keeper late, or dead?  Then the tree is killed from here
 *	show        a person sees that the lock is waited for
 *	sleep       until the keeper, a signal or the time has something
 *	hear        the keeper: a grant, that the command is suspended, a threat of loss, the end
 *	signals     are passed on; the front is suspended with the command (front_signals.c)
 *	deliver     a hold is given to the process that has asked for it
 *	conclude    the ending becomes a status and a sentence
 */
#include "front_signals.h"

#include "backends/common/libc.h"
#include "cmd/say.h"
#include "cmd/text.h"
#include "command.h"
#include "delivery.h"
#include "loss.h"
#include "script.h"
#include "tree.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define ELDERS_AGAIN (2 * NS_PER_S) /* pause between two looks at children from before */

/* pause between two looks at the lease of a hold that was printed too late, as it seems */
#define PRINTED_AGAIN (100 * NS_PER_MS)

enum { SLOT_LINK = LOOP_OWN, SLOT_PARENT, SLOT_ANCHOR, SLOTS = SLOT_ANCHOR + KEYS_MAX };

/* Not on the stack, and what each run uses in one page: see the keeper's, in keeper.c. */
static _Alignas(4096) struct front front;

_Static_assert(SLACK < KILL_FINDS, "the front begins to kill so much later");
_Static_assert(LISTEN_LATER < SLACK,
    "a front that does not listen looks at a grant's deadlines later by so much");

/* ---- ending without the keeper ---- */

/*
 * Without a child we have no descendant, since orphans become our children.  A process that has
 * escaped to another pid namespace is one, too, if a look has seen it before.
 */
static bool
is_alone(struct front *f)
{
	front_signals_reap(f); /* nothing else may: it forgets the command's number */
	return f->keeper.pid == 0 && !process_has_children() && !tree_has_known();
}

/*
 * Looks which children we had before, to spare them: when the keeper is dead, the command's tree
 * becomes ours as well.
 */
static void
look_for_elders(struct front *f)
{
	f->elders.look_at = NEVER;
	if (!f->run->has_elders || !f->keeper.pid)
		return;
	if (!tree_spare(&f->elders.spared, f->keeper.pid) || f->elders.spared.n > 0)
		f->elders.look_at = instant_now() + ELDERS_AGAIN;
}

/* Aims at the command's tree.  Below us there is more: the keeper, above all. */
static struct aim
front_aim(const struct front *f)
{
	return (struct aim){
	    .sig = f->params->command.signal,
	    .wake = true,
	    .command = atomic_load(&f->page->command),
	    .leads = !f->run->origin->has_tty,
	    .spared = &f->elders.spared,
	    .outsider = delivery_receiver(f->run),
	    .by = instant_after(atomic_load(&f->page->kill_at), KILL_FINDS),
	};
}

/*
 * Sleeps until then, or until a child has ended.  All other signals stay pending: they are for whatever comes after
 * us, the next keeper's front above all.
 */
static void
pause_until(struct front *f, instant until)
{
	struct signalfd_siginfo info;
	struct pollfd set[LOOP_OWN];

	loop_hear_children(&f->loop);
	loop_wait(&f->loop, set, LOOP_OWN, until);
	while (loop_signal(&f->loop, &info))
		continue;
}

/*
 * Kills everything of ours but the spared: the command first, then the keeper, so
 * that the rest becomes our own children, until we are alone.  Beside children that
 * are not the command's, and for processes that are none of ours, that is when two
 * looks in a row find nobody: a single one may miss a process that is just being handed
 * from a dying parent to another.  False: something will not die, or cannot be seen.
 */
static bool
kill_everything(struct front *f)
{
	instant patience = instant_now() + KILL_PATIENCE;
	bool outside = delivery_receiver(f->run),
	     strangers = f->run->has_elders || outside;
	/* read once: the keeper may forget it meanwhile, and kill(0) would mean our own group */
	pid_t command;
	struct aim aim;
	int quiet = 0;

	witness_end(&f->witness); /* or we would never be alone */
	/* a keeper that goes on now must not take this for the command's own end */
	atomic_store(&f->page->stopping, true);
	command = atomic_load(&f->page->command);
	if (command)
		kill(command, SIGKILL);
	if (f->keeper.pid) {
		look_for_elders(f);
		kill(f->keeper.pid, SIGKILL);
	}
	/* is_alone() first: it reaps, without which the keeper would never be gone */
	while (!is_alone(f) || outside) {
		aim = front_aim(f);
		quiet = tree_kill(getpid(), &aim) > 0 ? 0 : quiet + 1;
		if (quiet >= 2 && strangers && f->keeper.pid == 0)
			return true;
		if (quiet != 1 && instant_now() >= patience)
			return !outside && is_alone(f);
		pause_until(f, instant_now() + KILL_AGAIN);
	}
	return true;
}

/*
 * Did it end while it waited?  So did a hold that was given back before it was delivered, unless a
 * signal has ended that.
 */
static bool
was_waiting(const struct front *f, const struct ending *e)
{
	bool signalled = WIFSIGNALED(e->value) && !signal_suspends(WTERMSIG(e->value));

	return e->kind == END_INTERRUPTED ||
	    (e->kind == END_COMMAND && delivery_of(f->run) == WITHDRAWN && !signalled);
}

/*
 * Notes that the run has ended, and how.  A hold that ends undelivered is not delivered any more;
 * if it was lost, it was never held: nobody has worked under it, and nobody is stopped.
 */
static void
front_finish(struct front *f, struct ending e, const char *words)
{
	if (e.kind != END_COMMAND)
		delivery_settle(f->run, WITHDRAWN);
	/* Ctrl-Z, then Ctrl-C: the first has ended the waiting */
	if (f->interrupt && was_waiting(f, &e)) {
		e.kind = END_INTERRUPTED;
		e.value = f->interrupt;
	}
	if (e.kind == END_LOST && delivery_of(f->run) == WITHDRAWN)
		e = (struct ending){.kind = END_REFUSED,
		    .value = RC_LOST,
		    .too_late = e.loss == LOSS_SILENCE || !*words};
	f->end.ending = e;
	/* mostly there are none, and then this run needs no stdio */
	*f->end.words = '\0';
	if (*words)
		snprintf(f->end.words, sizeof f->end.words, "%s", words);
	f->end.over = true;
}

static const struct ending silence = {.kind = END_LOST, .loss = LOSS_SILENCE},
			   failed = {.kind = END_REFUSED, .value = RC_SYSTEM},
			   came_too_late = {
			       .kind = END_REFUSED, .value = RC_AGAIN, .too_late = true};

/*
 * Kills all.  If the command, or the process of a hold, may have begun, that is a loss; else the
 * ending is `otherwise`.
 */
static void
kill_and_finish(struct front *f, struct ending otherwise, const char *why)
{
	struct ending lost = silence;
	bool begun;

	if (atomic_load(&f->page->end.lost)) { /* the keeper was about to do this */
		lost = page_ending(f->page);
		why = f->page->end.loss.text;
		/* before the command has begun: as the keeper would have said */
		if (otherwise.kind == END_REFUSED)
			otherwise = came_too_late;
	}
	lost.returned = atomic_load(&f->page->end.returned);
	loss_tell(f->run, &lost, why);
	lost.stuck = !kill_everything(f);
	/* not earlier: it may begin until it is dead */
	begun = atomic_load(&f->page->exec) == EXEC_CALLED && delivery_known(f->run);
	front_finish(
	    f, begun || (lost.stuck && !f->run->ward->is_hold) ? lost : otherwise, why);
}

/* The keeper is dead, or late. */
static void
take_over(struct front *f, const char *why)
{
	/* nothing runs: only the release is in doubt */
	if (atomic_load(&f->page->end.finished)) {
		/* read first: if it is set, the ending and end.lingers are final */
		bool final = atomic_load(&f->page->end.final);
		struct ending e = page_ending(f->page);

		if (f->keeper.pid && (!final || !atomic_load(&f->page->end.lingers)))
			kill(f->keeper.pid, SIGKILL);
		e.unconfirmed = e.unconfirmed || !final;
		if (final)
			why = f->page->end.why.text;
		else if (atomic_load(&f->page->end.lost))
			why = f->page->end.loss.text;
		front_finish(f, e, why);
		return;
	}
	kill_and_finish(f, failed, why);
}

/* Says what is wrong with a keeper that is late.  Only /proc knows whether it is suspended. */
static const char *
describe_keeper(const struct front *f)
{
	char state = f->keeper.pid ? process_state(f->keeper.pid) : '\0';

	return state == 'T' || state == 't'
	    ? "dlock's keeper process was stopped"
	    : "dlock's keeper process did not react in time (this machine is overloaded, or the process is frozen)";
}

/* The lock's connection has ended, or that of one of several keys. */
static void
take_over_adrift(struct front *f)
{
	bool several = f->keeper.anchors.n > 1;
	char why[RECORD_BYTES];

	snprintf(why, sizeof why, "%s%sthe lock's connection has ended, and %s",
	    several ? f->params->keys[f->keeper.broken] : "", several ? ": " : "",
	    describe_keeper(f));
	take_over(f, why);
}

static void
take_over_late(struct front *f)
{
	char why[200];

	snprintf(why, sizeof why, "%s and could not renew it", describe_keeper(f));
	take_over(f, why);
}

/* ---- watching the keeper ---- */

/*
 * Stops the command in place of a late keeper.  The page says so before the signal is sent: a
 * keeper that sees the command die of TERM must not think that the command ended by itself.
 */
static void
stop_command(struct front *f)
{
	struct aim aim;

	delivery_settle(f->run, WITHDRAWN);
	if (atomic_exchange(&f->page->stopping, true))
		return;
	loss_tell(f->run, &silence, "");
	aim = front_aim(f);
	tree_signal(f->keeper.pid, &aim);
	if (f->params->show.status_fd >= 0)
		events_message(
		    f->params, &(struct msg){.kind = MSG_STOPPING, .number = END_LOST});
}

/* Does what is due by now; returns when to look again. */
static instant
watch_keeper(struct front *f)
{
	struct watch_due due;

	if (instant_now() >= f->elders.look_at)
		look_for_elders(f);
	due = page_watch(f->page, &f->watch, front_has_grant(f), f->keeper.pid);
	switch (due.duty) {
	case DUTY_NONE:
		break;
	case DUTY_TERM:
		stop_command(f);
		break;
	case DUTY_INTERRUPT:
		kill_and_finish(f,
		    (struct ending){.kind = END_INTERRUPTED, .value = f->interrupt}, "");
		break;
	case DUTY_KILL:
		take_over_late(f);
		break;
	case DUTY_ADRIFT:
		take_over_adrift(f);
		break;
	case DUTY_GIVE_UP:
		take_over(f, describe_keeper(f));
		break;
	}
	f->duty_at = due.wake;
	return instant_first(due.wake, f->elders.look_at);
}

/* ---- waiting, and listening ---- */

/*
 * Fills in what is waited for beside the loop's own descriptors; returns how many slots are used.
 * An anchor that is a connection tells when it ends.  The descriptor of a kernel lock never tells
 * anything.
 */
static nfds_t
poll_keeper(struct front *f, struct pollfd *set)
{
	/* one of them has ended already, or none is needed any more */
	bool unasked = f->watch.adrift_by != NEVER || atomic_load(&f->page->end.finished);
	size_t n = unasked ? 0 : f->keeper.anchors.n;

	if (instant_now() >= f->keeper.listen_from)
		f->keeper.listen_from = NEVER;
	set[SLOT_LINK] = (struct pollfd){.fd = f->keeper.link,
	    .events = f->keeper.listen_from == NEVER ? POLLIN : POLLRDHUP};
	set[SLOT_PARENT] = (struct pollfd){.fd = f->with_parent.fd, .events = POLLIN};
	for (size_t i = 0; i < n; i++)
		set[SLOT_ANCHOR + i] = (struct pollfd){
		    .fd = f->keeper.anchors.fds[i], .events = POLLRDHUP};
	return SLOT_ANCHOR + n;
}

/*
 * The page says that a line is drawn before it is, and before we look whether the lock is granted:
 * a keeper that sees none lets the command write at once.
 */
static void
show_waiting(struct front *f)
{
	instant now = instant_now();

	if (f->waiting.line.live && now >= f->waiting.line.next)
		atomic_store(&f->page->front.on_screen, true);
	if (front_has_grant(f))
		waiting_end(&f->waiting, 0);
	else
		waiting_tick(&f->waiting, now);
	atomic_store(&f->page->front.on_screen, f->waiting.line.drawn);
}

/* ---- messages ---- */

/* Logs the grant; that of a hold once it is delivered. */
static void
log_grant(const struct front *f)
{
	if (f->params->show.log.kind != LOG_NOWHERE && front_has_grant(f) &&
	    delivery_known(f->run))
		events_log_grant(f->run);
}

static void
take_message(struct front *f, const struct msg *m, const struct anchors *a)
{
	char words[1000];

	if (f->params->show.status_fd >= 0)
		events_message(f->params, m);
	switch (m->kind) {
	case MSG_WAITING:
	case MSG_RETRYING:
		waiting_heard(&f->waiting, m);
		break;
	case MSG_GRANTED:
		f->keeper.granted = true;
		f->keeper.anchors = *a;
		if (f->run->ward->is_hold && a->n > 0)
			f->keeper.joined = a->fds[--f->keeper.anchors.n];
		if (m->number && f->keeper.anchors.n > 0)
			f->keeper.watched = a->fds[--f->keeper.anchors.n];
		waiting_end(&f->waiting, m->token);
		atomic_store(&f->page->front.on_screen, false);
		log_grant(f);
		break;
	case MSG_SUSPENDED:
		front_signals_suspended(f, m->number);
		break;
	case MSG_SUSPECT:
		tree_look(delivery_receiver(f->run));
		loss_suspect(f->run, &f->threat, m);
		break;
	case MSG_TRUSTED:
		loss_trust(f->run, &f->threat);
		break;
	case MSG_NOTICE:
		if (f->params->show.quiet)
			break;
		waiting_heard(&f->waiting, m);
		/* fall through */
	case MSG_TRACE:
		say("%s", text_clean(words, sizeof words, m->text, strlen(m->text)));
		break;
	case MSG_GUARD:
		for (size_t i = 0; i < a->n; i++)
			guard_refuse(a->fds[i]); /* we are awake */
		break;
	case MSG_SKIPPED:
	case MSG_SUPERSEDED:
	case MSG_STARTED:
	case MSG_RESUMED:
	case MSG_SIGNAL:
		break;
	case MSG_STOPPING:
		tree_look(delivery_receiver(f->run));
		break;
	}
}

static void
hear_keeper(struct front *f)
{
	/* looked at first: if it is set, all earlier messages lie in the link already */
	bool final = atomic_load(&f->page->end.final);
	struct anchors anchors;
	struct msg m;
	int got;

	while ((got = link_receive(f->keeper.link, &m, &anchors, &f->run->told)) > 0)
		take_message(f, &m, &anchors);
	if (got < 0) {
		close(f->keeper.link);
		f->keeper.link = -1;
		final = atomic_load(&f->page->end.final);
	}
	if (final)
		front_finish(f, page_ending(f->page), f->page->end.why.text);
	else if (got < 0)
		take_over(f, "dlock's keeper process was killed");
	else if (f->keeper.anchors.cut)
		take_over(f, "dlock has too few descriptors left to keep it");
}

/* ---- giving a hold to the process that has asked for it ---- */

/* A signal has come that would end the asker: which one; 0: none. */
static int
take_interrupt(struct front *f)
{
	struct signalfd_siginfo info;
	int sig = 0;

	while (loop_signal(&f->loop, &info))
		if (info.ssi_signo == SIGCHLD)
			front_signals_reap(f);
		else if (!sig && info.ssi_pid != (uint32_t)getpid() &&
		    front_signals_ends(f,
			&(struct received){
			    .sig = info.ssi_signo, .sender = info.ssi_pid}))
			sig = info.ssi_signo;
	return sig;
}

/* Does the page say so, or the ending of a hold that had nothing to be stopped any more? */
static bool
is_lost(const struct front *f, bool over)
{
	return atomic_load(&f->page->end.lost) ||
	    (over && page_ending(f->page).kind == END_LOST);
}

/*
 * Is it too late for a hold that may be delivered until `by`, and until its process is to end?  Not
 * for one that is over without a loss: it was held.
 */
static bool
is_too_late(const struct front *f, instant by)
{
	bool over = atomic_load(&f->page->end.finished), lost = is_lost(f, over);
	instant until = instant_first(by, atomic_load(&f->page->term_at));

	return lost || (!over && instant_now() >= until);
}

/* Gives a hold back that was not delivered: a signal ends its asker, or nobody has it (0). */
static void
withdraw_hold(struct front *f, int sig)
{
	const struct msg back = {.kind = MSG_SIGNAL, .got = {.sig = sig, .ends = true}};

	atomic_store(f->run->ward->delivery, WITHDRAWN);
	if (sig)
		f->interrupt = sig;
	if (f->end.over && sig) /* the keeper has ended it before */
		f->end.ending = (struct ending){.kind = END_INTERRUPTED, .value = sig};
	link_send(f->keeper.link, &back, NULL, NULL);
}

/*
 * Prints the hold for its asker, also where we have slept through --for: the lock was held all the
 * same.  A signal that ends the asker meanwhile has it given back.
 */
static void
print_hold(struct front *f)
{
	int sig;

	/* too late to begin: the keeper takes it back, or the watch finds that it is late */
	if (is_too_late(f, atomic_load(&f->page->begin_by)) ||
	    !delivery_settle(f->run, DELIVERED))
		return;
	waiting_end(&f->waiting, 0);
	atomic_store(&f->page->front.on_screen, false);
	f->printed = script_of(f->run)->print(f->run);
	sig = take_interrupt(f);
	f->printed = f->printed && !sig;
	if (!f->printed)
		withdraw_hold(f, sig);
}

/*
 * Gives the hold to its asker, which then ends with 0.  Its reader may have been slow, and we have
 * watched nothing meanwhile.  If its process is to be stopped by now, the asker ends with the loss:
 * at once where the process is told of that, since it may wait for the asker.
 */
static void
deliver(struct front *f)
{
	bool told;

	if (!f->printed)
		print_hold(f);
	told = atomic_load(&f->page->end.lost) && delivery_receiver(f->run);
	if (!f->printed || (!told && is_too_late(f, NEVER)))
		return;
	f->printed = false;
	if (!script_of(f->run)->leave(f->run, told ? STATUS_LOST : 0) && !told)
		withdraw_hold(f, 0);
}

/* ---- the process ---- */

/* Turns the ending into a status and a sentence, and waits a moment for the keeper to go. */
static struct verdict
conclude(struct front *f)
{
	const struct run *r = f->run;
	instant now = instant_now(), patience = now + NS_PER_S;
	instant granted = atomic_load(&f->page->granted_at);
	char state[HELD_BYTES], missing[400];
	struct heard heard = {
	    .words = f->end.words,
	    .where = page_where(r->page),
	    .key = f->waiting.seen.key,
	    .state = state,
	    .waited = now - r->began,
	};
	struct verdict v;

	if (f->witness.pid)
		witness_end(&f->witness);
	waiting_end(&f->waiting, 0);
	*state = '\0';
	if (f->end.ending.kind == END_REFUSED)
		waiting_state(&f->waiting, r->params->wait.most != 0, state);
	if (f->end.ending.kind == END_EXEC && f->end.ending.value == ENOENT &&
	    command_lacks_interpreter(r->path, missing, sizeof missing))
		heard.missing = missing;
	if (atomic_load(&r->page->end.superseded))
		heard.newer = r->page->end.newer.text;
	heard.done_status = atomic_load(&r->page->end.done_status);
	v = verdict_of(r->params, &f->end.ending, &heard);
	if (!granted) /* it never was: all the time was spent waiting */
		granted = now;
	v.waited = granted - r->began;
	v.held = now - granted;
	v.where = heard.where;
	v.token = atomic_load(&f->page->log.token);
	v.pid = r->shown;
	/* the keeper leaves right after its last word: a zombie should not outlive us */
	for (front_signals_reap(f); f->keeper.pid &&
	     !atomic_load(&f->page->end.lingers) && instant_now() < patience;
	     front_signals_reap(f))
		pause_until(f, patience);
	log_grant(f);
	atomic_store(&f->page->log.ended, true);
	return v;
}

/*
 * Forgets this keeper, so that the front can begin with another.  It has ended, or still tries to
 * reach a silent server.
 */
static void
part_with_keeper(struct front *f)
{
	if (f->keeper.link >= 0)
		close(f->keeper.link);
	anchors_close(&f->keeper.anchors);
	if (f->keeper.joined >= 0)
		close(f->keeper.joined);
	if (f->keeper.watched >= 0)
		close(f->keeper.watched);
	loop_close(&f->loop);
	free(f->elders.spared.at);
	memset(f, 0, sizeof *f);
}

static void
front_begin(struct front *f, const struct run *r, pid_t keeper)
{
	const struct params_show *show = &r->params->show;
	/* a hold awaits the grant; -v, --status-fd and --log await each message */
	bool awaited = r->ward->is_hold || show->verbose || show->status_fd >= 0 ||
	    show->log.kind != LOG_NOWHERE;
	sigset_t all;
	int error;

	f->run = r;
	f->params = r->params;
	f->page = r->page;
	f->keeper.pid = keeper;
	f->parent = getppid();
	f->with_parent = r->parent;
	f->keeper.link = r->ends[0];
	f->keeper.joined = f->keeper.watched = -1;
	/* the anchors that come before that are ours already: start.c has seen to room for them */
	f->keeper.listen_from = awaited ? NEVER : instant_now() + LISTEN_LATER;
	f->elders.look_at = f->threat.warn_at = NEVER;
	front_signals_begin(f);
	close(r->ends[1]);
	libc_sigfillset(&all);
	watch_init(&f->watch, r->params->terms.ttl, r->params->terms.grace);
	waiting_begin(&f->waiting, r->params, r->page, r->began, r->origin->has_tty);
	error = loop_open(&f->loop, &all) == 0 ? 0 : errno;
	if (error)
		take_over(f, strerror(error));
	if (r->has_elders)
		look_for_elders(f);
}

/* The next time at which something is to be done, if nothing comes. */
static instant
front_wake(const struct front *f, instant watch_at)
{
	instant wake = instant_first(watch_at, f->waiting.line.next);

	wake = instant_first(wake, instant_first(f->suspension.at, f->threat.warn_at));
	wake = instant_first(wake, f->keeper.listen_from);
	if (instant_now() < f->witness_at) /* later the grant begins it, and wakes us */
		wake = instant_first(wake, f->witness_at);
	if (f->with_parent.pid)
		wake = instant_first(wake, parent_wake(&f->with_parent));
	if (f->printed) /* the keeper may renew the lease at the very moment */
		wake = instant_first(wake, instant_now() + PRINTED_AGAIN);
	return wake;
}

/*
 * Takes all signals that have come.  Before a suspension it asks even where the poll has seen none:
 * one that has come since may say that the suspension is over.
 */
static void
take_signals(struct front *f, bool came)
{
	struct signalfd_siginfo info;

	while (!f->end.over && (came || f->suspension.at != NEVER) &&
	    loop_signal(&f->loop, &info))
		front_signals_take(f,
		    &(struct received){.sig = info.ssi_signo,
			.code = info.ssi_code,
			.sender = info.ssi_pid});
	if (!f->end.over && f->with_parent.pid && parent_ends(&f->with_parent))
		front_signals_take(f,
		    &(struct received){
			.sig = SIGTERM, .code = SI_KERNEL, .parent = true});
}

/* One turn: does what is due, sleeps, takes what has come. */
static void
front_turn(struct front *f)
{
	struct pollfd set[SLOTS];
	instant wake = watch_keeper(f);
	nfds_t n;

	if (f->end.over)
		return;
	show_waiting(f);
	if (front_has_grant(f) && instant_now() >= f->witness_at)
		front_signals_watch(f);
	n = poll_keeper(f, set);
	loop_wait(&f->loop, set, n, front_wake(f, wake));
	if (set[SLOT_LINK].revents || atomic_load(&f->page->end.final))
		hear_keeper(f);
	for (nfds_t i = SLOT_ANCHOR; i < n; i++)
		if (set[i].revents) {
			f->keeper.broken = i - SLOT_ANCHOR;
			watch_adrift(&f->watch, instant_now());
		}
	take_signals(f, set[LOOP_SIGNAL].revents);
	/* a hold has given it back by then, and is suspended as if it still waited */
	if (front_has_grant(f) && f->suspension.put_off && !f->run->ward->is_hold)
		front_signals_granted(f);
	/*
	 * Later than a signal that would end it.  The page may say that the lock is granted before
	 * we have heard of it: what is told, and the anchors, come with the message alone.
	 */
	if (f->keeper.granted && f->run->ward->is_hold &&
	    (f->printed || delivery_of(f->run) == UNDELIVERED))
		deliver(f);
	log_grant(f);
	if (!f->end.over && instant_now() >= f->suspension.at)
		front_signals_suspend(f);
	if (!f->end.over && instant_now() >= f->threat.warn_at)
		loss_warn(f->run, &f->threat);
}

struct verdict
front_run(const struct run *r, pid_t keeper)
{
	struct verdict v;

	front_begin(&front, r, keeper);
	while (!front.end.over)
		front_turn(&front);
	v = conclude(&front);
	if (v.again || (v.signal && signal_suspends(v.signal)))
		part_with_keeper(&front);
	return v;
}

void
front_await_joined(void)
{
	struct front *f = &front;
	struct pollfd set[LOOP_OWN + 1];
	struct signalfd_siginfo info;

	if ((f->end.ending.kind != END_LOST && f->end.ending.kind != END_REFUSED) ||
	    f->keeper.joined < 0)
		return;
	loop_hear_children(&f->loop);
	do {
		set[LOOP_OWN] = (struct pollfd){.fd = f->keeper.joined};
		loop_wait(&f->loop, set, LOOP_OWN + 1, NEVER);
		while (loop_signal(&f->loop, &info))
			continue;
		front_signals_reap(f);
	} while (!set[LOOP_OWN].revents);
}
