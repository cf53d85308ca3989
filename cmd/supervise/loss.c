/* loss.c - tells a script that its hold is lost, before it is stopped. */
#include "loss.h"

#include "verdict.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
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

/* A descriptor of our own, or -1. */
static int
open_stderr(const struct body *b)
{
	char path[40];
	int fd;

	snprintf(path, sizeof path, "/proc/%d/fd/2", (int)b->outside.pid);
	fd = open(path, O_WRONLY | O_APPEND | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
	if (fd >= 0 && (!is_meant(b, fd) || outside_has_ended(&b->outside))) {
		close(fd);
		fd = -1;
	}
	return fd;
}

void
loss_tell(const struct run *r, const struct ending *e, const char *words)
{
	const struct heard heard = {.words = words,
	    .where = shared_where(r->shared),
	    .key = "",
	    .holder = "",
	    .slots = ""};
	char line[sizeof((struct verdict *)0)->line + 16];
	struct verdict v;
	int fd, n;

	if (e->kind != END_LOST || !run_guarded(r) ||
	    atomic_exchange(&r->shared->end.loss_told, true))
		return;
	fd = open_stderr(r->body);
	if (fd < 0)
		return;
	v = verdict_of(r->plan, e, &heard);
	n = snprintf(line, sizeof line, "dlock: %s\n", v.line);
	if (write(fd, line, n) != n)
		atomic_store(&r->shared->end.loss_told, false);
	close(fd);
}
