/* say.c - writes one line to stderr without ever being held up by its reader. */
#include "say.h"

#include "backends/common/libc.h"
#include "exit.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define STUCK (10 * NS_PER_MS) /* a write that takes longer sleeps */

/* Waits for room.  *broken: nobody can write there, now or later. */
static bool
has_room(int fd, instant until, bool *broken)
{
	struct pollfd p = {.fd = fd, .events = POLLOUT};
	int64_t left;
	int n;

	do {
		left = until - instant_now();
		n = poll(&p, 1, left > 0 ? (int)(left / NS_PER_MS) + 1 : 0);
	} while (n < 0 && errno == EINTR && left > 0);
	if (n > 0 && (p.revents & POLLNVAL))
		*broken = true;
	return n > 0 && (p.revents & POLLOUT);
}

static void
do_nothing(int sig)
{
	(void)sig;
}

/*
 * Writes as write(2) does, but does not sleep for long.  Without a timer it may sleep for ever;
 * then only the last line is written.
 */
static ssize_t
write_briefly(int fd, const char *text, size_t n, bool last)
{
	const struct sigaction interrupt = {.sa_handler = do_nothing};
	/* repeated, since the first signal may come just before the write */
	const struct itimerspec often = {{.tv_nsec = STUCK}, {.tv_nsec = STUCK}};
	struct sigevent signal_us = {
	    .sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGCHLD};
	struct sigaction before;
	sigset_t chld, mask;
	timer_t timer;
	ssize_t done;
	int error;

	if (timer_create(CLOCK_MONOTONIC, &signal_us, &timer) != 0 ||
	    timer_settime(timer, 0, &often, NULL) != 0)
		return last ? write(fd, text, n) : 0;
	sigemptyset(&chld);
	sigaddset(&chld, SIGCHLD);
	libc_sigprocmask(SIG_BLOCK, NULL, &mask); /* musl's sigaction() changes it */
	sigaction(SIGCHLD, &interrupt, &before);
	libc_sigprocmask(SIG_UNBLOCK, &chld, NULL);
	done = write(fd, text, n);
	error = errno;
	libc_sigprocmask(SIG_SETMASK, &mask, NULL);
	timer_delete(timer);
	sigaction(SIGCHLD, &before, NULL); /* the command inherits it */
	errno = error;
	return done;
}

size_t
say_bytes(int fd, const char *text, size_t n, int64_t patience)
{
	instant until = instant_now() + patience;
	bool broken = false;
	size_t done = 0;
	ssize_t now;

	do {
		now = has_room(fd, until, &broken)
		    ? write_briefly(fd, text + done, n - done, patience > 0)
		    : 0;
		if (broken)
			errno = EBADF;
		if (broken || (now < 0 && errno != EINTR && errno != EAGAIN))
			break;
		if (now > 0)
			done += now;
		else if (patience > 0)
			/* there is room, but not for all of it at once */
			poll(NULL, 0, STUCK / NS_PER_MS);
	} while (done < n && instant_now() < until);
	return done;
}

/* Writes a line with one write(2), so that lines of several processes do not mix. */
static void
say_line(int64_t patience, const char *fmt, va_list ap)
{
	char line[2048] = "dlock: ";
	size_t n = strlen(line);
	int error = errno;

	vsnprintf(line + n, sizeof line - n - 1, fmt, ap);
	n = strlen(line);
	line[n++] = '\n';
	say_bytes(STDERR_FILENO, line, n, patience);
	errno = error;
}

void
say(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	say_line(SAY_AT_ONCE, fmt, ap);
	va_end(ap);
}

void
say_last(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	say_line(SAY_PATIENTLY, fmt, ap);
	va_end(ap);
}

int
say_written(void)
{
	errno = 0; /* stdio does not keep why an earlier write has failed */
	if (fflush(stdout) == 0 && !ferror(stdout))
		return 0;
	say_last("cannot write to standard output%s%s", errno ? ": " : "",
	    errno ? strerror(errno) : "");
	return STATUS_SYSTEM;
}

void
say_to_eval(int status)
{
	if (status != 0)
		printf("(exit %d)\n", status);
	fflush(stdout);
}

/* ---- asking ---- */

bool
say_can_ask(void)
{
	return isatty(STDIN_FILENO) && isatty(STDERR_FILENO);
}

bool
say_asks(const char *question)
{
	char answer[16];

	fprintf(stderr, "%s [y/N] ", question);
	fflush(stderr);
	if (!fgets(answer, sizeof answer, stdin)) {
		fputc('\n', stderr);
		return false;
	}
	answer[strcspn(answer, "\n")] = '\0';
	return strcasecmp(answer, "y") == 0 || strcasecmp(answer, "yes") == 0;
}
