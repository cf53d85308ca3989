/* loop.c - sleeps until a descriptor, a signal or a time; suspends itself as a shell's job: see loop.h. */
#include "loop.h"

#include "backends/common/libc.h"
#include "process.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <sys/prctl.h>
#include <sys/timerfd.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

int
loop_open(struct loop *l, const sigset_t *signals)
{
	l->armed = NEVER;
	l->signals = signalfd(-1, signals, SFD_CLOEXEC | SFD_NONBLOCK);
	l->timer = timerfd_create(CLOCK_BOOTTIME, TFD_CLOEXEC | TFD_NONBLOCK);
	return l->signals < 0 || l->timer < 0 ? -1 : 0;
}

#define BLIND 10 /* milliseconds between two looks where there is no timer */

/* An instant of 0 or before would disarm the timer; 1 ns is as good. */
static void
arm(struct loop *l, instant until)
{
	struct itimerspec t = {0};

	if (l->armed == until)
		return;
	if (until != NEVER) {
		instant at = until > 0 ? until : 1;

		t.it_value.tv_sec = at / NS_PER_S;
		t.it_value.tv_nsec = at % NS_PER_S;
	}
	timerfd_settime(l->timer, TFD_TIMER_ABSTIME, &t, NULL);
	l->armed = until;
}

void
loop_wait(struct loop *l, struct pollfd *set, nfds_t n, instant until)
{
	uint64_t expirations;

	arm(l, until);
	set[LOOP_SIGNAL] = (struct pollfd){.fd = l->signals, .events = POLLIN};
	set[LOOP_TIMER] = (struct pollfd){.fd = l->timer, .events = POLLIN};
	if (poll(set, n, l->timer < 0 ? BLIND : -1) < 0)
		for (nfds_t i = 0; i < n; i++)
			set[i].revents = 0;
	if (set[LOOP_TIMER].revents &&
	    read(l->timer, &expirations, sizeof expirations) > 0)
		l->armed = NEVER;
}

bool
loop_signal(struct loop *l, struct signalfd_siginfo *info)
{
	return read(l->signals, info, sizeof *info) == sizeof *info;
}

void
loop_unblock(int sig)
{
	sigset_t one;

	sigemptyset(&one);
	libc_sigaddset(&one, sig);
	libc_sigprocmask(SIG_UNBLOCK, &one, NULL);
}

void
loop_suspend_now(int sig)
{
	sigset_t blocked;

	libc_sigprocmask(SIG_BLOCK, NULL, &blocked);
	loop_unblock(sig); /* here we are suspended, and from here we go on */
	libc_sigprocmask(SIG_SETMASK, &blocked, NULL);
}

void
loop_suspend_here(int sig)
{
	raise(sig);
	loop_suspend_now(sig);
}

bool
loop_is_closed(int guard)
{
	struct pollfd p = {.fd = guard};

	return poll(&p, 1, 0) > 0;
}

static bool
goes_on(pid_t command)
{
	char state = command ? process_state(command) : 'T';

	return state != 'T' && state != '\0';
}

static volatile sig_atomic_t continued;
static siginfo_t continued_by;

static void
note_continue(int sig, siginfo_t *info, void *context)
{
	(void)sig, (void)context;
	continued_by = *info;
	continued = 1;
}

static void
take_back(int sig)
{
	static const struct timespec at_once;
	sigset_t one;

	sigemptyset(&one);
	sigaddset(&one, sig);
	sigtimedwait(&one, NULL, &at_once);
}

/*
 * Once the signal is pending, SIGCONT takes it back: it may come at any moment, also because the
 * guard is closed, or because the keeper sees that the command goes on.  But a SIGCONT that
 * is pending before would be cancelled by it.  So it is noted by a handler, and all is looked at
 * once more.  SIGSTOP is never pending, so there a moment remains.
 */
bool
loop_suspend_guarded(pid_t command, int sig, int guard, siginfo_t *by)
{
	struct sigaction note = {.sa_sigaction = note_continue, .sa_flags = SA_SIGINFO},
			 before;
	sigset_t blocked;

	continued = 0;
	sigaction(SIGCONT, &note, &before);
	libc_sigprocmask(SIG_BLOCK, NULL, &blocked);
	loop_unblock(SIGCONT);
	if (sig != SIGSTOP || !(continued || loop_is_closed(guard)))
		raise(sig);
	if (continued || loop_is_closed(guard) || goes_on(command))
		take_back(sig);
	loop_suspend_now(sig);
	libc_sigprocmask(SIG_SETMASK, &blocked, NULL);
	sigaction(SIGCONT, &before, NULL);
	*by = continued_by;
	return continued;
}

void
loop_hear_suspends(struct loop *l, bool hears)
{
	sigset_t heard;

	libc_sigfillset(&heard);
	for (int sig = SIGTSTP; !hears && sig <= SIGTTOU; sig++)
		sigdelset(&heard, sig);
	signalfd(l->signals, &heard, 0);
}

void
loop_put_off(struct loop *l, int sig)
{
	loop_hear_suspends(l, false);
	raise(sig);
}

void
loop_hear_children(struct loop *l)
{
	sigset_t heard;

	sigemptyset(&heard);
	sigaddset(&heard, SIGCHLD);
	if (l->signals >= 0)
		signalfd(l->signals, &heard, 0);
}

/* A child in the group is asked, for the kernel alone knows all who are in it. */
bool
loop_suspends_group(int sig, bool unknown)
{
	int status = 0;
	pid_t parent = getpid(), pid = process_fork();

	if (pid == 0) {
		/* it outlives nobody, and keeps nothing open meanwhile */
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		libc_close_range(0, ~0U);
		if (getppid() != parent)
			_exit(0);
		loop_suspend_here(sig);
		_exit(0);
	}
	if (pid < 0)
		return unknown;
	while (waitpid(pid, &status, WUNTRACED) < 0 && errno == EINTR)
		continue;
	if (!WIFSTOPPED(status))
		return false;
	kill(pid, SIGKILL);
	while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
		continue;
	return true;
}

void
loop_close(struct loop *l)
{
	close(l->signals);
	close(l->timer);
}

/* Where there is no /dev/tty, one of these may be the terminal: tcgetpgrp() asks for ours. */
static int
open_terminal(void)
{
	int tty = open("/dev/tty", O_RDWR | O_NOCTTY | O_NONBLOCK | O_CLOEXEC);

	for (int fd = 0; tty < 0 && errno != ENXIO && fd <= 2; fd++)
		if (tcgetpgrp(fd) >= 0)
			tty = fcntl(fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
	return tty;
}

bool
loop_is_foreground(void)
{
	int tty = open_terminal();
	bool yes = tty >= 0 && tcgetpgrp(tty) == getpgrp();

	if (tty < 0)
		return errno != ENXIO && process_terminal() == TERMINAL_FOREGROUND;
	close(tty);
	return yes;
}

static bool
is_pending(int sig)
{
	sigset_t pending;

	return sigpending(&pending) == 0 && sigismember(&pending, sig) == 1;
}

bool
loop_suspend_with(pid_t command, int sig, int guard, siginfo_t *by, bool *hung_up)
{
	pid_t group = getpgid(command);
	int tty = group != getpgrp() ? open_terminal() : -1;
	bool owner = tty >= 0 && tcgetpgrp(tty) == group, came;

	came = loop_suspend_guarded(command, sig, guard, by);
	if (owner && tcgetpgrp(tty) == getpgrp() && getpgid(command) == group)
		tcsetpgrp(tty, group);
	if (tty >= 0)
		close(tty);
	*hung_up = false;
	if (loop_is_closed(guard) || group <= 0 || group == getpgrp() ||
	    getpgid(command) != group)
		return came;
	/* in this order, as the kernel does: a shell that went on first would take the terminal */
	*hung_up = is_pending(SIGHUP);
	if (*hung_up)
		kill(-group, SIGHUP);
	kill(-group, SIGCONT);
	return came;
}
