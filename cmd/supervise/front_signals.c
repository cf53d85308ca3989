/*
 * front_signals.c - the front's signals: passes them on, and is suspended with the command.
 *
 *	describe    what is known of a signal: who sent it, whom it has reached, what runs
 *	take        signals.h says what is to be done about it
 *	pass on     the keeper does it, since it knows better what runs
 *	suspend     Ctrl-Z: the command is suspended, the keeper says so, then we are, with a guard
 *	continue    what has continued us reaches the command, too
 *	reap        what has ended below us
 */
#include "front_signals.h"

#include "delivery.h"
#include "script.h"

#include <errno.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* so long after we were continued, the command may still be about to be */
#define CONTINUING (250 * NS_PER_MS)

/* so late we may read what has killed the command */
#define LATE NS_PER_S

/* ---- describing one ---- */

/* Says what runs, as far as we know; the keeper looks again. */
static enum signal_state
front_state(const struct front *f)
{
	if (!front_has_grant(f))
		return SIGNAL_WAITS;
	if (f->run->ward->is_hold)
		return delivery_of(f->run) == UNDELIVERED ? SIGNAL_UNDELIVERED
							  : SIGNAL_DELIVERED;
	if (atomic_load(&f->page->end.finished))
		return SIGNAL_OVER;
	/* it is about to begin before granted_at is set */
	return atomic_load(&f->page->command) || !atomic_load(&f->page->granted_at)
	    ? SIGNAL_RUNS
	    : SIGNAL_RESTS;
}

static enum signal_sender
sender_of(const struct front *f, const struct received *t)
{
	pid_t sender = t->sender, command = atomic_load(&f->page->command);
	const struct script *s = script_of(f->run);
	/* what is no pid there tells of the guard: see loop_suspend_guarded() */
	bool guard = t->sig == SIGCONT && t->code > SI_USER && t->code < SI_KERNEL;

	if (guard || sender == getpid() || (sender && sender == f->keeper.pid))
		return FROM_DLOCK;
	if (sender && sender == command)
		return FROM_COMMAND;
	return s && sender == s->asker ? FROM_ASKER : FROM_OTHERS;
}

static enum signal_reach
reach_of(struct front *f, const struct received *t)
{
	instant due = instant_first(f->duty_at, f->watch.adrift_by);
	enum signal_reach witnessed = witness_ask(&f->witness, t->sig, t->sender, due),
			  by_code = signal_reach_by_code(
			      t->sig, t->code, getsid(0) == getpid());

	/* a witness that was just born has not got what the terminal sent before */
	return witnessed == REACH_UNKNOWN || by_code == REACH_GROUP ? by_code : witnessed;
}

/* Has this signal killed the command a moment ago?  It may not have been reaped yet. */
static bool
has_just_killed(const struct front *f, int sig, pid_t command)
{
	int of = command ? process_died_of(command) : 0;

	if (of)
		return of == sig;
	return atomic_load(&f->page->died_of) == sig &&
	    instant_now() < atomic_load(&f->page->died_at) + LATE;
}

/*
 * Has the command got it while it ran?  It may end before the keeper looks; or it has died of it,
 * before we could read it.  Of the first one of its kind: later ones are for those that are left.
 */
static bool
had_it(struct front *f, const struct signal_case *c, pid_t command)
{
	uint64_t bit = 1ULL << (c->sig - 1);
	bool first = !(f->given & bit);

	if (c->reach != REACH_GROUP || c->apart ||
	    (c->state != SIGNAL_RUNS && c->state != SIGNAL_RESTS))
		return false;
	f->given |= bit;
	return c->state == SIGNAL_RUNS || (first && has_just_killed(f, c->sig, command));
}

/* The keeper reaps it, and may be late. */
static bool
has_ended(pid_t command)
{
	char state = process_state(command);

	return state ? state == 'Z' : kill(command, 0) != 0 && errno == ESRCH;
}

/*
 * A command that was reaped since we read its number is in no group; it was in ours, as far as we
 * know.
 */
static bool
is_in_other_group(pid_t command)
{
	pid_t group = command ? getpgid(command) : -1;

	return group >= 0 && group != getpgrp();
}

/* Adds what only some signals need to be asked of the kernel. */
static void
describe_suspension(const struct front *f, struct signal_case *c, pid_t command)
{
	char state = c->sig == SIGCONT && command ? process_state(command) : 'S';

	c->suspended = state == 'T' || state == '\0';
	c->foreground = c->sig == SIGCONT && c->terminal && loop_is_foreground();
	if (c->state == SIGNAL_RUNS && command && has_ended(command))
		c->state = SIGNAL_RESTS;
	/* nothing suspends the init of a pid namespace */
	if (signal_suspends(c->sig) &&
	    (c->state == SIGNAL_WAITS || (c->state == SIGNAL_RESTS && c->terminal)))
		c->may_suspend = getpid() != 1 && loop_suspends_group(c->sig, true);
	c->sent = c->sig == SIGHUP && f->suspension.hung_up;
}

/* The asker of a hold sends TERM only where it is to end: also if their caller ignores TERM. */
bool
front_signals_ends(const struct front *f, const struct received *r)
{
	const struct script *s = script_of(f->run);

	return r->parent || signal_is_end(r->sig) ||
	    (s && r->sender == s->asker && r->sig == SIGTERM);
}

static struct signal_case
describe_signal(struct front *f, const struct received *t)
{
	struct signal_case c = {
	    .sig = t->sig, .getter = BY_FRONT, .sender = sender_of(f, t)};
	pid_t command = atomic_load(&f->page->command);

	if (c.sig == SIGCHLD || c.sender == FROM_DLOCK)
		return c;
	c.state = front_state(f);
	c.ends = front_signals_ends(f, t);
	c.terminal = f->run->origin->has_tty;
	c.by_key = c.terminal && t->code == SI_KERNEL &&
	    (c.sig == SIGINT || c.sig == SIGQUIT);
	c.apart = !c.terminal || is_in_other_group(command);
	c.for_nobody = !delivery_receiver(f->run);
	describe_suspension(f, &c, command);
	c.reach = reach_of(f, t); /* late: it takes time */
	c.had = had_it(f, &c, command);
	return c;
}

/* ---- being suspended ---- */

/* While we are suspended nobody would stop the tree if the keeper is killed, or frozen. */
static void
begin_suspension(struct front *f)
{
	f->suspension.guard = guard_begin(
	    f->page, &f->watch, f->keeper.pid, f->keeper.link);
	atomic_store(&f->page->front.guarded, f->suspension.guard.pid > 0);
	atomic_store(&f->page->front.mirrored, true);
}

/* Has the guard continued us? */
static bool
end_suspension(struct front *f)
{
	bool woken = loop_is_closed(f->suspension.guard.fd);

	atomic_store(&f->page->front.mirrored, false);
	atomic_store(&f->page->front.guarded, false);
	guard_end(&f->suspension.guard);
	return woken;
}

/*
 * The command has ended, and we wait for what it has left, which Ctrl-Z has suspended.  The keeper
 * wakes us when there is nothing left.
 */
static void
suspend_with_rest(struct front *f, int sig)
{
	siginfo_t by;
	bool came;

	begin_suspension(f);
	came = loop_suspend_guarded(0, sig, f->suspension.guard.fd, &by);
	end_suspension(f);
	if (came)
		front_signals_take(f,
		    &(struct received){
			.sig = SIGCONT, .code = by.si_code, .sender = by.si_pid});
}

/*
 * The kernel has not suspended us, for no shell is above; but it took our keeper for one when it
 * suspended the others.  It would have hung them up, too, if there was a shell until now.
 */
static void
continue_group(struct front *f, pid_t command)
{
	pid_t leader = getsid(0);
	char state = leader > 0 ? process_state(leader) : 'S';

	/* where that is not known, too many are continued rather than too few */
	if (loop_suspends_group(f->suspension.sig, false))
		return;
	/* /proc may hide one that lives */
	if (getppid() != f->parent || state == 'Z' ||
	    (state == '\0' && kill(leader, 0) != 0 && errno == ESRCH))
		kill(0, SIGHUP);
	kill(0, SIGCONT);
	kill(command, SIGCONT);
}

/*
 * Deals with the signal that has continued us before a command that is continued can be suspended
 * again: passed on later, it would undo that.
 */
static void
take_continue(struct front *f, pid_t command, const siginfo_t *by)
{
	const struct received got = {
	    .sig = SIGCONT, .code = by->si_code, .sender = by->si_pid};
	struct signal_case c = describe_signal(f, &got);

	c.sent = c.apart;
	f->suspension.continued = instant_now();
	if (signal_decide(&c) == DEED_PASS_ON)
		kill(command, SIGCONT);
}

/* The notice may be old: the job may have been continued since. */
void
front_signals_suspend(struct front *f)
{
	pid_t command = atomic_load(&f->page->command);
	char state = command ? process_state(command) : '\0';
	siginfo_t by;
	bool came;

	f->suspension.at = NEVER;
	if (!f->run->origin->has_tty || !command || atomic_load(&f->page->killing) ||
	    (state ? state != 'T' : kill(command, 0) != 0))
		return;
	begin_suspension(f);
	came = loop_suspend_with(command, f->suspension.sig, f->suspension.guard.fd, &by,
	    &f->suspension.hung_up);
	if (end_suspension(f))
		f->suspension.at = instant_now() +
		    CONTINUING; /* if nothing has come of it */
	else if (came)
		take_continue(f, command, &by);
	else
		continue_group(f, command);
}

void
front_signals_suspended(struct front *f, int sig)
{
	f->suspension.sig = sig;
	f->suspension.at = instant_now();
	if (f->suspension.continued &&
	    f->suspension.at < f->suspension.continued + CONTINUING)
		f->suspension.at = f->suspension.continued + CONTINUING;
}

void
front_signals_granted(struct front *f)
{
	loop_hear_suspends(&f->loop, true);
	f->suspension.put_off = false;
}

/* ---- taking it ---- */

void
front_signals_reap(struct front *f)
{
	int status;
	pid_t pid;

	while ((pid = waitpid(-1, &status, WNOHANG)) > 0)
		if (WIFSTOPPED(status))
			continue; /* what is below us has made us its tracer */
		else if (pid == f->keeper.pid)
			f->keeper.pid = 0;
		else if (pid == f->witness.pid)
			witness_reaped(&f->witness, pid);
		else if (pid == atomic_load(&f->page->command)) /* ours by now */
			atomic_store(&f->page->command, 0);
}

/*
 * A keeper that is suspended may have many before it: as in the kernel, a signal that it has
 * not read yet is not sent again, so that there is room for any other.  Two are the same only
 * if the keeper would do the same about both.
 */
static void
pass_on(struct front *f, const struct msg *m)
{
	const struct signal_case *c = &m->got;
	uint64_t *sent = &f->passed_on[c->had][c->reach][c->by_key][c->sender];
	uint64_t bit = 1ULL << (c->sig - 1);

	if (!link_is_crowded(f->keeper.link))
		memset(f->passed_on, 0, sizeof f->passed_on);
	else if (*sent & bit)
		return;
	else
		*sent |= bit;
	link_send(f->keeper.link, m, NULL, NULL);
}

/*
 * A run that is suspended while it waits keeps no place, and no grant: others would wait for it
 * though nothing runs.  So the keeper ends as by a signal, then we are suspended, and ask anew when
 * we are continued (start.c).  If the grant comes first, the command is suspended, and we with it.
 */
static void
put_off_suspension(struct front *f, int sig)
{
	waiting_pause(&f->waiting);
	atomic_store(&f->page->front.on_screen, false);
	f->suspension.put_off = true;
	loop_put_off(&f->loop, sig);
}

static void
note_end(struct front *f, int sig)
{
	if (!f->interrupt || signal_suspends(f->interrupt))
		f->interrupt = sig;
}

static void
end_waiting(struct front *f, int sig)
{
	note_end(f, sig);
	watch_interrupted(&f->watch, instant_now());
}

void
front_signals_take(struct front *f, const struct received *r)
{
	const struct msg m = {.kind = MSG_SIGNAL, .got = describe_signal(f, r)};
	int sig = r->sig;

	if (sig == SIGHUP)
		f->suspension.hung_up = false; /* this was the one */

	if (sig == SIGWINCH && f->waiting.line.drawn)
		f->waiting.line.next = 0; /* it may not fit any more */
	if (sig == SIGCONT) {
		f->suspension.continued = instant_now();
		if (f->suspension.at != NEVER)
			f->suspension.at = f->suspension.continued + CONTINUING;
	}
	/* also of a grant that comes to nothing, and is asked for anew */
	if (m.got.ends)
		note_end(f, sig);
	switch (signal_decide(&m.got)) {
	case DEED_REAP:
		front_signals_reap(f);
		return;
	case DEED_SUSPEND:
		suspend_with_rest(f, sig);
		return;
	case DEED_NOTHING:
		/* what is waited for may just have been granted: the keeper knows */
		if ((m.got.state != SIGNAL_WAITS || m.got.sender == FROM_DLOCK) &&
		    !(f->params->terms.kill_after != NEVER && signal_asks(&m.got)))
			return;
		break;
	case DEED_SUSPEND_WAITING:
		put_off_suspension(f, sig);
		/* fall through */
	case DEED_END_WAITING:
		end_waiting(f, sig);
		/* fall through */
	case DEED_END_HOLD:
		/* the keeper ends a hold of which nobody has been told */
		delivery_settle(f->run, WITHDRAWN);
		break;
	case DEED_PASS_ON:
	case DEED_PASS_ON_OUTSIDE:
	case DEED_END_REST:
		break;
	}
	pass_on(f, &m);
}

/*
 * The witness is for a command in our group.  A run that is over within LISTEN_LATER is spared the
 * price of a witness.  A run that has children already gets none: see kill_everything().
 */
void
front_signals_begin(struct front *f)
{
	const struct run *r = f->run;
	bool witnessed = r->origin->has_tty && !r->ward->is_hold && !r->has_elders;

	f->witness_at = witnessed ? instant_now() + LISTEN_LATER : NEVER;
	f->suspension.guard.fd = -1;
	f->suspension.at = NEVER;
}

void
front_signals_watch(struct front *f)
{
	f->witness_at = NEVER;
	witness_begin(&f->witness);
}
