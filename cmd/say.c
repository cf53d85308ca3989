/* say.c - see say.h. */
#include "say.h"

#include "verdict.h"

#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

int
say_has_room(int fd)
{
	struct pollfd p = {.fd = fd, .events = POLLOUT};

	return poll(&p, 1, 0) > 0 && (p.revents & POLLOUT);
}

/* One write, so that lines of several processes do not mix. */
static void
say_line(const char *fmt, va_list ap)
{
	char line[2048] = "dlock: ";
	size_t n = strlen(line);

	vsnprintf(line + n, sizeof line - n - 1, fmt, ap);
	n = strlen(line);
	line[n++] = '\n';
	while (write(STDERR_FILENO, line, n) < 0 && errno == EINTR)
		continue;
}

void
say(const char *fmt, ...)
{
	int error = errno;
	va_list ap;

	va_start(ap, fmt);
	if (say_has_room(STDERR_FILENO))
		say_line(fmt, ap);
	va_end(ap);
	errno = error;
}

void
say_last(const char *fmt, ...)
{
	int error = errno;
	va_list ap;

	va_start(ap, fmt);
	say_line(fmt, ap);
	va_end(ap);
	errno = error;
}

int
say_written(void)
{
	if (fflush(stdout) == 0 && !ferror(stdout))
		return 0;
	say_last("cannot write to standard output: %s", strerror(errno));
	return STATUS_SYSTEM;
}
