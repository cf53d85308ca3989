/* loss.c - tells a script that its hold is not renewed, or lost. */
#include "loss.h"

#include "verdict.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/pidfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

void
loss_note_stderr(struct body *b)
{
	struct stat st;

	b->has_stderr = fstat(STDERR_FILENO, &st) == 0;
	b->stderr_device = b->has_stderr ? st.st_dev : 0;
	b->stderr_inode = b->has_stderr ? st.st_ino : 0;
}

static bool
is_meant(const struct body *b, int fd)
{
	struct stat st;

	if (fstat(fd, &st) != 0)
		return false;
	return isatty(fd) ||
	    (b->has_stderr && st.st_dev == b->stderr_device &&
		st.st_ino == b->stderr_inode);
}

/*
 * A descriptor that is written to without waiting, or -1.  A file is shared with the script,
 * so that what it writes next comes behind our line and not over it, and so is a socket,
 * which nobody can open.  Where the kernel does not let us share, and for a pipe or a
 * terminal, which must not block us, there is one of our own.
 */
static int
open_stderr(const struct body *b)
{
	char path[40];
	struct stat st;
	int fd = -1;

	snprintf(path, sizeof path, "/proc/%d/fd/2", (int)b->outside.pid);
	if (stat(path, &st) == 0 && (S_ISREG(st.st_mode) || S_ISSOCK(st.st_mode)))
		fd = pidfd_getfd(b->outside.fd, STDERR_FILENO, 0);
	if (fd < 0)
		fd = open(path, O_WRONLY | O_APPEND | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
	if (fd >= 0 && (!is_meant(b, fd) || outside_has_ended(&b->outside))) {
		close(fd);
		fd = -1;
	}
	return fd;
}

static bool
write_line(int fd, const char *line, ssize_t n)
{
	ssize_t sent = send(fd, line, n, MSG_DONTWAIT | MSG_NOSIGNAL);

	return (sent < 0 && errno == ENOTSOCK ? write(fd, line, n) : sent) == n;
}

/* False: it may be tried again. */
static bool
tell_script(const struct run *r, const char *text)
{
	char line[sizeof((struct verdict *)0)->line + 16];
	int fd = open_stderr(r->body), n;
	bool told;

	if (fd < 0)
		return true;
	n = snprintf(line, sizeof line, "dlock: %s\n", text);
	told = write_line(fd, line, n);
	close(fd);
	return told;
}

void
loss_warn(const struct run *r, const char *text)
{
	if (run_guarded(r))
		tell_script(r, text);
}

void
loss_tell(const struct run *r, const struct ending *e, const char *words)
{
	const struct heard heard = {.words = words,
	    .where = shared_where(r->shared),
	    .key = "",
	    .holder = "",
	    .slots = ""};

	if (e->kind != END_LOST || !run_guarded(r) ||
	    atomic_exchange(&r->shared->end.loss_told, true))
		return;
	if (!tell_script(r, verdict_of(r->plan, e, &heard).line))
		atomic_store(&r->shared->end.loss_told, false);
}
