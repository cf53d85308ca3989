/*
 * tree.c - finds and signals all descendants of a process.
 *
 *	tree_signal()  sweeps once; an outsider and its tree are halted before
 *	tree_kill()    halts those that are known, then all, until nobody new comes (halt_all);
 *	               then kills in the same order
 */
#include "tree.h"

#include "sweep.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- can a tree be stopped here? ---- */

/*
 * Would every descendant be found in /proc, sooner or later?  Asks by a child that is not dumpable, as
 * we are not: if /proc shows that one, it hides none of ours.
 */
static bool
finds_all(pid_t self)
{
	struct process probe = {.pid = 0};
	bool shown;
	pid_t pid, parent = getpid();

	if (!self && process_self() == parent)
		return true;
	pid = process_fork();
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		while (getppid() == parent)
			pause();
		_exit(0);
	}
	if (pid < 0)
		return true; /* nor will anything else be started */
	probe.pid = process_number(pid);
	shown = probe.pid && process_look_up(&probe);
	kill(pid, SIGKILL);
	while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
		continue;
	return shown;
}

const char *
tree_objection(void)
{
	pid_t self = process_find_self();

	if (!self && errno != EMFILE && errno != ENFILE)
		return "/proc is not mounted here, or does not show this process";
	if (self == getpid() || finds_all(self))
		return NULL;
	return process_has_pidfds()
	    ? "/proc is an outer pid namespace's, and hides processes (hidepid)"
	    : "/proc is an outer pid namespace's, and this kernel or sandbox lacks pidfd_open(2) (Linux 5.3)";
}

/* ---- halting, signalling, killing ---- */

/*
 * Those of earlier looks, the youngest first: when a parent dies, the kernel wakes a process
 * group that has nobody left and was halted.
 */
static void
signal_known(const struct aim *a)
{
	struct outsider *o = a->outsider;
	const struct processes *known = sweep_known(o);
	bool grouped = o &&
	    !outsider_has_ended(o); /* or the group's number is another's */

	for (size_t i = known->n; i-- > 0;) {
		struct process p = {.pid = known->at[i].pid};

		if (!process_look_up(&p) || p.born != known->at[i].born)
			continue;
		grouped |= o && p.group == o->group;
		if (!process_is_dead(&p) && !process_is_among(a->spared, &p) &&
		    !aim_leaves(&p, a) && !(o && process_is_hold(&p)))
			aim_at(&p, a);
	}
	if (grouped && o->group && o->whole && process_self() == getpid())
		kill(-o->group, a->sig);
}

/* For one more look of a hunt that began then? */
static bool
has_time(const struct aim *a, instant began)
{
	instant now = instant_now();

	return now < began + HUNT_PATIENCE &&
	    (a->by <= began || now + sweep_took() <= a->by);
}

/*
 * Halts all (SIGSTOP), until nobody new comes, or the time is up.  A process that does not halt at
 * once may just be bearing a child; it may also be one that cannot be halted.  With `spares` the
 * one outside gets no signal.  False: there is nobody.
 */
static bool
halt_all(pid_t root, const struct aim *a, bool spares)
{
	instant began = instant_now();
	size_t hidden = 0;

	for (int quiet = 0; quiet < 2 && has_time(a, began);) {
		struct sweep s = {.aim = *a, .spares_outsider = spares};

		s.aim.sig = SIGSTOP;
		s.aim.wake = false;
		sweep(&s, root);
		if (s.alive == 0)
			return false;
		if (s.fresh || s.hidden > hidden ||
		    (s.moves && instant_now() < began + HALT_PATIENCE))
			quiet = 0;
		else
			quiet++;
		hidden = s.hidden;
		if (!quiet)
			poll(NULL, 0, 1); /* they need the processor to halt */
	}
	return true;
}

/*
 * A shell at a terminal takes it back from a job that is suspended.  Such a job leads a
 * process group, in which what has lost its parent is found; so it may run on here.
 */
size_t
tree_signal(pid_t root, const struct aim *a)
{
	struct sweep s = {.aim = *a};

	if (a->outsider && a->wake) {
		halt_all(root, a, a->outsider->group != 0);
		s.answers = process_clock();
	}
	sweep(&s, root);
	return s.alive;
}

size_t
tree_kill(pid_t root, const struct aim *a)
{
	struct sweep s = {.aim = *a};
	struct aim halt = *a;

	halt.sig = SIGSTOP;
	s.aim.sig = SIGKILL;
	s.aim.wake = halt.wake = false;
	signal_known(&halt);
	if (!halt_all(root, a, false))
		return 0;
	signal_known(&s.aim);
	sweep(&s, root);
	return s.alive;
}

/* ---- looking ---- */

void
tree_look(struct outsider *o)
{
	if (o)
		tree_signal(0, &(struct aim){.outsider = o});
}

bool
tree_has_known(void)
{
	const struct processes *below = sweep_known(NULL);

	for (size_t i = 0; i < below->n; i++) {
		struct process p = {.pid = below->at[i].pid};

		if (process_look_up(&p) && p.born == below->at[i].born &&
		    !process_is_dead(&p))
			return true;
	}
	return false;
}

bool
tree_spare(struct processes *spared, pid_t keeper)
{
	struct sweep s = {.root = process_self()};
	bool seen;

	s.own[0].pid = process_number(keeper);
	s.but.n = s.own[0].pid && process_look_up(&s.own[0]);
	s.but.at = s.own;
	sweep_all(&s);
	/* /proc may hide the keeper, from both looks; never ourselves */
	seen = !s.cut && s.own[0].pid && process_find(&s.all, s.root) &&
	    (s.but.n == 1 || !process_find(&s.all, s.own[0].pid));
	if (seen && process_lives(keeper))
		sweep_keep(spared, &s);
	free(s.all.at);
	return seen;
}

void
tree_signal_run(pid_t keeper, const struct aim *a)
{
	struct process p = {.pid = process_number(keeper)}, front;

	if (!p.pid || !process_look_up(&p))
		return;
	front.pid = p.parent;
	if (process_is_named_hold(&p))
		aim_at(&p, a);
	else if (p.parent != process_self() && process_look_up(&front) &&
	    !(a->but && front.group == process_number(a->but)))
		aim_at(&front, a);
}
