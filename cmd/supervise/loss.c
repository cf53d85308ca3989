/* loss.c - tells the user, or the script that has a hold, that the lock is not renewed, or lost. */
#include "loss.h"

#include "cmd/parse.h"
#include "cmd/say.h"
#include "cmd/text.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/pidfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- the stderr of a script ---- */

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

/* False: it may be tried again. */
static bool
tell_script(const struct run *r, const char *text)
{
	char line[sizeof((struct verdict *)0)->line + 16];
	int fd = open_stderr(r->body), n;
	ssize_t sent;

	if (fd < 0)
		return true;
	n = snprintf(line, sizeof line, "dlock: %s\n", text);
	sent = send(fd, line, n, MSG_DONTWAIT | MSG_NOSIGNAL);
	if (sent < 0 && errno == ENOTSOCK)
		sent = write(fd, line, n);
	close(fd);
	return sent == n;
}

/* ---- not renewed ---- */

/* With -v it is said at once, otherwise only if it lasts. */
void
loss_suspect(const struct run *r, struct doubt *d, const struct msg *m)
{
	char key[400], left[32];

	text_clean(d->why, sizeof d->why, m->text, strlen(m->text));
	if (r->plan->show.verbose)
		say("%s: %s; the command may go on for %s, trying again",
		    plan_name(r->plan, key, sizeof key), d->why,
		    parse_duration_text(
			m->number > 0 ? m->number : 0, left, sizeof left));
	if ((!r->plan->show.verbose || r->body) && !r->plan->show.quiet)
		d->warn_at = instant_now() + m->number / 2;
}

/* A hold has left its stderr to the script. */
static void
tell(const struct run *r, const char *text)
{
	if (!r->body)
		say("%s", text);
	else if (run_guarded(r))
		tell_script(r, text);
}

void
loss_warn(const struct run *r, struct doubt *d)
{
	int64_t left = atomic_load(&r->shared->term_at) - instant_now();
	char key[400], time[32], whom[64] = "the command is", text[1400];

	d->warn_at = NEVER;
	if (left <= 0 || atomic_load(&r->shared->stopping) ||
	    atomic_load(&r->shared->end.finished))
		return;
	d->warned = true;
	if (run_guarded(r))
		snprintf(whom, sizeof whom, "process %d and its descendants are",
		    (int)r->body->outside.pid);
	snprintf(text, sizeof text, "%s: %s; if no renewal succeeds, %s stopped in %s",
	    plan_name(r->plan, key, sizeof key), d->why, whom,
	    parse_duration_text(left, time, sizeof time));
	tell(r, text);
}

void
loss_trust(const struct run *r, struct doubt *d)
{
	char key[400], text[450];

	snprintf(text, sizeof text, "%s: the lease was renewed after all",
	    plan_name(r->plan, key, sizeof key));
	if (d->warned)
		tell(r, text);
	else if (r->plan->show.verbose)
		say("%s", text);
	d->warn_at = NEVER;
	d->warned = false;
}

/* ---- lost ---- */

void
loss_tell(const struct run *r, const struct ending *e, const char *words)
{
	const struct heard heard = {.words = words, .where = shared_where(r->shared)};

	if (e->kind != END_LOST || !run_guarded(r) ||
	    atomic_exchange(&r->shared->end.loss_told, true))
		return;
	if (!tell_script(r, verdict_of(r->plan, e, &heard).line))
		atomic_store(&r->shared->end.loss_told, false);
}
