/* runs.c - remembers runs in a file, and reads what is remembered there. */
#include "runs.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { BUFFER = 16 * RUN_LINE };

/* An ID, after its run has ended: microseconds. */
#define KEPT (400 * 24 * 3600 * INT64_C(1000000))

/* ---- the file, line by line ---- */

struct reader {
	int fd;
	bool skip; /* the rest of a line that is too long */
	size_t at, n;
	char buffer[BUFFER];
};

static struct reader *
reader_new(int fd)
{
	struct reader *in = malloc(sizeof *in);

	if (!in)
		return NULL;
	in->fd = fd;
	in->skip = false;
	in->at = in->n = 0;
	lseek(fd, 0, SEEK_SET);
	return in;
}

/* More bytes behind those that are left.  1, 0 at the end, -1 with errno. */
static int
fill(struct reader *in)
{
	ssize_t got;

	if (in->at == 0 && in->n == sizeof in->buffer) {
		in->skip = true;
		in->n = 0;
	}
	memmove(in->buffer, in->buffer + in->at, in->n - in->at);
	in->n -= in->at;
	in->at = 0;
	do
		got = read(in->fd, in->buffer + in->n, sizeof in->buffer - in->n);
	while (got < 0 && errno == EINTR);
	in->n += got > 0 ? (size_t)got : 0;
	return got > 0 ? 1 : (int)got;
}

/*
 * The next run that can be read; what is not ended by a newline is none.  1, 0 at the
 * end, -1 with errno.
 */
static int
next_run(struct reader *in, struct run *r)
{
	for (;;) {
		char *line = in->buffer + in->at,
		     *end = memchr(line, '\n', in->n - in->at);
		bool whole = !in->skip;
		int got;

		if (!end) {
			got = fill(in);
			if (got <= 0)
				return got;
			continue;
		}
		in->at += (size_t)(end - line) + 1;
		in->skip = false;
		if (whole && run_parse(r, line, (size_t)(end - line)))
			return 1;
	}
}

/* Of a file that a stranger may have blown up, nothing is read. */
static enum rc
open_runs(const struct directory *d, const char *name, enum directory_use use, int *fd,
    struct stat *st, struct fault *fault)
{
	enum rc rc = directory_open_file(d, name, use, fd, fault);

	if (rc != RC_OK)
		return rc;
	if (fstat(*fd, st) == 0 && st->st_size <= RUNS_MOST)
		return RC_OK;
	close(*fd);
	return fault_set(fault, RC_PROTOCOL,
	    "%s: %.60s is larger than any file that dlock writes: remove it", d->where,
	    name);
}

/* ---- has it been done? ---- */

enum rc
runs_check(const struct directory *d, const char *name, const struct job *job,
    int64_t now_us, struct fault *fault)
{
	struct past past = {.once = false};
	struct reader *in;
	struct run run;
	struct stat st;
	int fd, got = -1;
	enum rc rc = open_runs(d, name, DIRECTORY_MAKE, &fd, &st, fault);

	if (rc != RC_OK)
		return rc;
	errno = ENOMEM;
	in = reader_new(fd);
	while (in && (got = next_run(in, &run)) > 0)
		past_add(&past, &run, job, now_us);
	if (got < 0)
		rc = directory_failed(d, "cannot read what has been run", fault);
	else if (past.once || past.recent)
		rc = past_tell(&past, job, fault);
	free(in);
	close(fd);
	return rc;
}

/* ---- remembering ---- */

/* Writes all of it at the end of the file of `size` bytes, or nothing. */
static int
append(int fd, off_t size, const char *line, size_t n)
{
	char whole[RUN_LINE + 1] = "\n", last = '\n';
	bool torn = size > 0 && pread(fd, &last, 1, size - 1) == 1 && last != '\n';
	ssize_t wrote;
	int error;

	memcpy(whole + torn, line, n);
	wrote = pwrite(fd, whole, n + torn, size);
	if (wrote == (ssize_t)(n + torn))
		return 0;
	error = wrote < 0 ? errno : ENOSPC;
	if (ftruncate(fd, size) != 0)
		error = errno;
	errno = error;
	return -1;
}

/* Which of the lines is that of the youngest run that ended with 0; 0: none. */
static long
find_youngest(struct reader *in, int64_t now_us)
{
	int64_t begin = -1;
	long youngest = 0;
	struct run r;

	for (long n = 1; next_run(in, &r) > 0; n++)
		if (r.status == 0 && r.begin > begin && r.begin <= now_us) {
			begin = r.begin;
			youngest = n;
		}
	return youngest;
}

/* All that may still be asked for, from one file to the other. */
static bool
copy_wanted(int from, FILE *to, int64_t now_us)
{
	struct reader *in = reader_new(from);
	long youngest = in ? find_youngest(in, now_us) : 0;
	char line[RUN_LINE] = "";
	bool good = in != NULL;
	struct run r;
	int got = 0;

	free(in);
	in = reader_new(from);
	for (long n = 1; in && good && (got = next_run(in, &r)) > 0; n++) {
		size_t length = run_format(&r, line);

		if (r.status == 0 && (n == youngest || (*r.id && r.end > now_us - KEPT)))
			good = fwrite(line, length, 1, to) == 1;
	}
	good = good && in && got == 0;
	free(in);
	return good;
}

/* On the disk before it takes the place of what may be there for months. */
static bool
write_anew(int from, int to, const char *line, size_t n, int64_t now_us)
{
	FILE *out = fdopen(to, "w");
	bool good;

	if (!out) {
		close(to);
		return false;
	}
	good = ftruncate(to, 0) == 0 && copy_wanted(from, out, now_us) &&
	    fwrite(line, n, 1, out) == 1;
	good = good && fflush(out) == 0 && fdatasync(to) == 0;
	return fclose(out) == 0 && good;
}

static bool
replace(const struct directory *d, const char *name, int fd, const char *line, size_t n,
    int64_t now_us)
{
	char fresh[PATH_MAX];
	struct fault ignored;
	int to;

	snprintf(fresh, sizeof fresh, "%s.new", name);
	if (directory_open_file(d, fresh, DIRECTORY_MAKE, &to, &ignored) != RC_OK)
		return false;
	if (write_anew(fd, to, line, n, now_us) &&
	    renameat(d->fd, fresh, d->fd, name) == 0)
		return true;
	unlinkat(d->fd, fresh, 0);
	return false;
}

enum rc
runs_remember(
    const struct directory *d, const char *name, const struct run *r, struct fault *fault)
{
	char line[RUN_LINE];
	size_t n = run_format(r, line);
	struct stat st;
	bool done;
	int fd;
	enum rc rc = open_runs(d, name, DIRECTORY_MAKE, &fd, &st, fault);

	if (rc != RC_OK)
		return rc;
	done = st.st_size / RUNS_STEP != (st.st_size + (off_t)n) / RUNS_STEP &&
	    replace(d, name, fd, line, n, r->end);
	if (!done && append(fd, st.st_size, line, n) != 0)
		rc = directory_failed(d, "cannot write down what has been run", fault);
	close(fd);
	return rc;
}

/* ---- looking ---- */

/* In more than enough bytes of the end for a few lines, if these are ours. */
bool
runs_last(const struct directory *d, const char *name, struct run *r)
{
	struct reader *in = NULL;
	struct fault ignored;
	bool found = false;
	struct stat st;
	struct run run;
	int fd;

	if (open_runs(d, name, DIRECTORY_LOOK, &fd, &st, &ignored) != RC_OK)
		return false;
	in = reader_new(fd);
	if (in && st.st_size > BUFFER)
		in->skip = lseek(fd, st.st_size - BUFFER, SEEK_SET) > 0;
	while (in && next_run(in, &run) > 0) {
		*r = run;
		found = true;
	}
	free(in);
	close(fd);
	return found;
}
