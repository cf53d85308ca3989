/* loop.c - sleeps until a descriptor, a signal or a time; stops as a shell's job. */
#include "loop.h"

#include "backends/common/libc.h"
#include "tree.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <sys/timerfd.h>
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

bool
loop_is_for_group(const struct signalfd_siginfo *info)
{
	bool hang_up = info->ssi_signo == SIGHUP || info->ssi_signo == SIGCONT;

	return info->ssi_code == SI_KERNEL && !(hang_up && getsid(0) == getpid());
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
loop_stop_here(int sig)
{
	sigset_t blocked;

	libc_sigprocmask(SIG_BLOCK, NULL, &blocked);
	raise(sig);
	loop_unblock(sig); /* here we stop, and from here we go on */
	libc_sigprocmask(SIG_SETMASK, &blocked, NULL);
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
		return errno != ENXIO && tree_terminal() == TERMINAL_FOREGROUND;
	close(tty);
	return yes;
}

void
loop_stop_with(pid_t command, int sig)
{
	pid_t group = getpgid(command);
	int tty = group != getpgrp() ? open_terminal() : -1;
	bool owner = tty >= 0 && tcgetpgrp(tty) == group;

	loop_stop_here(sig);
	if (owner && tcgetpgrp(tty) == getpgrp() && getpgid(command) == group)
		tcsetpgrp(tty, group);
	if (tty >= 0)
		close(tty);
	if (group > 0 && group != getpgrp() && getpgid(command) == group)
		kill(-group, SIGCONT);
}
