/*
 * loop.h - all waiting of a run is done here, and here it is suspended as a shell's job.
 *
 * Signals come through a signalfd, time through a timerfd on CLOCK_BOOTTIME
 * (poll's own timeout would stand still while the machine sleeps).
 */
#ifndef DLOCK_LOOP_H
#define DLOCK_LOOP_H

#include "backends/common/instant.h"

#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/signalfd.h>

/* The loop's own slots at the head of every poll set, before the caller's. */
enum { LOOP_SIGNAL, LOOP_TIMER, LOOP_OWN };

struct loop {
	int signals, timer;
	instant armed;
};

/* Opens a loop for `signals`, which must be blocked.  -1 with errno. */
int loop_open(struct loop *, const sigset_t *signals);

/* Sleeps until set[0..n) has something (in revents) or `until` has come. */
void loop_wait(struct loop *, struct pollfd *set, nfds_t n, instant until);

/* Suspends this process as `sig` would have, until somebody continues it. */
void loop_suspend_here(int sig);

/*
 * The same, but only until all other ends of the pipe `guard` are closed: then the kernel
 * continues this process (guard.c), or it is not suspended.  With `guard` -1 there is no pipe.  Nor is it
 * suspended if `command` (0: none), which was, goes on by now.  True: SIGCONT has
 * come, and *by says from whom; nobody else hears of it.
 */
bool loop_suspend_guarded(pid_t command, int sig, int guard, siginfo_t *by);

/* Have all other ends of the guard's pipe been closed? */
bool loop_is_closed(int guard);

/*
 * Does loop_suspend_guarded() where we are a shell's job whose command is suspended.  A command that
 * leads a group of its own, such as an interactive shell, is not reached by the `fg` that
 * continues ours: it is continued by us, and gets the terminal back if it had it.  *hung_up: it
 * has got from us the SIGHUP, too, that has come to us.
 */
bool loop_suspend_with(pid_t command, int sig, int guard, siginfo_t *by, bool *hung_up);

/*
 * Puts off that `sig` suspends us.  It stays pending: loop_signal() has none that suspends until
 * loop_hear_suspends(l, true).  A signal that continues this process before loop_suspend_now()
 * cancels it, as it would cancel any.
 */
void loop_put_off(struct loop *, int sig);
void loop_hear_suspends(struct loop *, bool hears);
void loop_suspend_now(int sig);

/*
 * Would `sig` suspend our process group?  The kernel ignores it where no shell is above that could
 * continue it.  `unknown`: the answer where there is no room for a process to ask with.
 */
bool loop_suspends_group(int sig, bool unknown);

/* From now on loop_signal() has SIGCHLD alone, and all others stay pending. */
void loop_hear_children(struct loop *);

void loop_close(struct loop *);

/* Lets this signal through, which does what it is set to. */
void loop_unblock(int sig);

/* Is our process group the terminal's? */
bool loop_is_foreground(void);

/* The next signal that has come, or false. */
bool loop_signal(struct loop *, struct signalfd_siginfo *);

#endif
