/* metrics.c - keeps the file of --metrics-file: reads it, adds a run to it, replaces it. */
#include "metrics.h"

#include "backends/common/libc.h"
#include "backends/common/trusted.h"
#include "say.h"
#include "text.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

/* The first line of a file tells that dlock has written it. */
static const char mark[] = "# dlock run --metrics-file, 1\n";

#define PATIENCE NS_PER_S     /* for other runs that end at this moment */
#define FILE_BYTES (16 << 20) /* more than a full file has */
enum { KEYS_KEPT = 200, BACKEND_BYTES = 16 };

/* The gauges of a key.  Times are milliseconds since the epoch, lengths are milliseconds. */
enum gauge { START, END, SUCCESS, WAIT, HOLD, STATUS, GAUGES };

static const struct metric {
	const char *name, *help;
} metrics[] = {
    [START] = {"dlock_last_start_timestamp_seconds",
	"When the last run began to ask for the lock."},
    [END] = {"dlock_last_end_timestamp_seconds", "When the last run ended."},
    [SUCCESS] = {"dlock_last_success_timestamp_seconds",
	"When the last run ended whose command had the lock and ended with 0."},
    [WAIT] = {"dlock_last_wait_seconds", "How long the last run waited for the lock."},
    [HOLD] = {"dlock_last_hold_seconds",
	"How long the last run that got the lock had it."},
    [STATUS] = {"dlock_last_status", "The exit status of the last run."},
    [GAUGES] = {"dlock_runs_total", "Runs by their result."},
};

/*
 * The results.  OK and FAILED are of commands that ended; the others bear the names of verdicts.
 */
enum { OK, FAILED, MAX_RUN, ERROR = 8, RESULTS };

static const char *const results[RESULTS] = {"ok", "failed", "max-run", "lost", "busy",
    "skipped", "interrupted", "unreachable", "error"};

/* One key on one backend. */
struct series {
	char *key; /* escaped, as it stands in the file */
	char backend[BACKEND_BYTES];
	int64_t
	    value[GAUGES + RESULTS]; /* -1: not known; from GAUGES on, runs by result */
};

/* Room for all keys that are kept, and for those of one run beside them. */
struct table {
	struct series list[KEYS_KEPT + KEYS_MAX];
	size_t n,
	    last; /* the one that was found last: its neighbour is the likely next */
};

/* ---- labels ---- */

char *
metrics_label(char *out, const char *key)
{
	char clean[4 * KEY_BYTES + 1];
	char *to = out;

	text_clean(clean, sizeof clean, key, strlen(key));
	for (const char *c = clean; *c; c++) {
		if (*c == '\\' || *c == '"')
			*to++ = '\\';
		*to++ = *c;
	}
	*to = '\0';
	return out;
}

void
metrics_head(FILE *to, const char *name, const char *help, const char *type)
{
	fprintf(to, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

/* ---- reading ---- */

/* NULL: no memory. */
static struct series *
find_series(struct table *t, const char *key, size_t n, const char *backend)
{
	struct series *s;

	for (size_t i = 0; i < t->n; i++) {
		size_t at = (t->last + i) % t->n;

		s = &t->list[at];
		if (text_is(s->key, key, n) && strcmp(s->backend, backend) == 0) {
			t->last = at;
			return s;
		}
	}
	if (t->n == sizeof t->list / sizeof *t->list)
		return NULL;
	s = &t->list[t->n];
	*s = (struct series){.key = strndup(key, n)};
	if (!s->key)
		return NULL;
	snprintf(s->backend, sizeof s->backend, "%s", backend);
	for (int i = 0; i < GAUGES; i++)
		s->value[i] = -1;
	t->last = t->n++;
	return s;
}

/* Steps over `text`, if it comes next. */
static bool
eat(const char **at, const char *text)
{
	size_t n = strlen(text);

	if (strncmp(*at, text, n) != 0)
		return false;
	*at += n;
	return true;
}

/* Reads a lower-case word up to a quote into out[BACKEND_BYTES]. */
static bool
eat_word(const char **at, char *out)
{
	size_t n = strspn(*at, "abcdefghijklmnopqrstuvwxyz-");

	if (n == 0 || n >= BACKEND_BYTES || (*at)[n] != '"')
		return false;
	snprintf(out, BACKEND_BYTES, "%.*s", (int)n, *at);
	*at += n + 1;
	return true;
}

/* Reads `NAME{key="...",backend="...",result="..."} VALUE`, and ignores any other line. */
static void
read_sample(struct table *t, const char *line)
{
	char backend[BACKEND_BYTES], result[BACKEND_BYTES] = "";
	const char *key, *end;
	int64_t whole, thousandths = 0;
	struct series *s;
	int m = 0;

	while (m <= GAUGES && !eat(&line, metrics[m].name))
		m++;
	if (m > GAUGES || !eat(&line, "{key=\""))
		return;
	key = line;
	while (*line && *line != '"')
		line += *line == '\\' && line[1] ? 2 : 1;
	end = line;
	if (!eat(&line, "\",backend=\"") || !eat_word(&line, backend) ||
	    (m == GAUGES && (!eat(&line, ",result=\"") || !eat_word(&line, result))) ||
	    !eat(&line, "} ") ||
	    sscanf(line, "%15" SCNd64 ".%3" SCNd64, &whole, &thousandths) < 1 ||
	    whole < 0)
		return;
	s = find_series(t, key, end - key, backend);
	if (s && m < GAUGES)
		s->value[m] = m == STATUS ? whole : whole * 1000 + thousandths;
	for (int i = 0; s && m == GAUGES && i < RESULTS; i++)
		if (strcmp(results[i], result) == 0)
			s->value[GAUGES + i] = whole;
}

/* Fails with the text of errno. */
static enum rc
fail_by_errno(struct fault *f)
{
	return fault_set(f, RC_SYSTEM, "%s", strerror(errno));
}

/*
 * Reads all of an open file that dlock has written, or that is empty.  `begun`: a file that was
 * not finished is fine, too.  The caller frees the text.  NULL: *f says why not.
 */
static char *
read_metrics_text(int fd, bool begun, struct stat *st, struct fault *f)
{
	size_t n, all = strlen(mark);
	char *text;

	if (libc_stat_of(fd, st) != 0 || !S_ISREG(st->st_mode) ||
	    st->st_size > FILE_BYTES) {
		fault_set(f, RC_CONFIG, "it is no file that dlock has written");
		return NULL;
	}
	text = calloc(1, st->st_size + 1);
	if (!text) {
		fail_by_errno(f);
	} else if (trusted_read(fd, st, text, st->st_size, &n, f) == RC_OK) {
		n = strlen(text);
		if (n == 0 || strncmp(text, mark, all) == 0 ||
		    (begun && n < all && strncmp(text, mark, n) == 0))
			return text;
		fault_set(f, RC_CONFIG,
		    "it was not written by dlock, and is not overwritten (remove it, or name another)");
	}
	free(text);
	return NULL;
}

/*
 * Reads the file.  *mode becomes its mode, which its successor gets; it stays if there is no
 * file.
 */
static enum rc
read_metrics(struct table *t, const char *path, mode_t *mode, struct fault *f)
{
	int fd = open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	struct stat st;
	char *text;

	if (fd < 0)
		return errno == ENOENT ? RC_OK : fail_by_errno(f);
	text = read_metrics_text(fd, false, &st, f);
	close(fd);
	if (!text)
		return RC_SYSTEM;
	/* another user who made it first could decide what it says, and the mode of ours */
	if (st.st_uid != libc_user() && st.st_uid != 0) {
		free(text);
		return fault_set(f, RC_CONFIG,
		    "it is of another user (uid %u): remove it, or name another",
		    (unsigned)st.st_uid);
	}
	for (char *rest = text, *line; (line = strsep(&rest, "\n"));)
		read_sample(t, line);
	free(text);
	*mode = st.st_mode & 0777;
	return RC_OK;
}

/* ---- one run more ---- */

static int
result_of(const struct metrics_run *r)
{
	if (strcmp(r->verdict, "ended") == 0 || strcmp(r->verdict, "killed") == 0)
		return r->status == 0 ? OK : FAILED;
	for (int i = MAX_RUN; i < ERROR; i++)
		if (strcmp(results[i], r->verdict) == 0)
			return i;
	return ERROR;
}

static void
count_run(struct series *s, const struct metrics_run *r)
{
	int result = result_of(r);
	int64_t end = instant_epoch() / 1000;

	s->value[START] = end - (r->waited + r->held) / NS_PER_MS;
	s->value[END] = end;
	s->value[WAIT] = r->waited / NS_PER_MS;
	s->value[STATUS] = r->status;
	if (r->held)
		s->value[HOLD] = r->held / NS_PER_MS;
	if (result == OK)
		s->value[SUCCESS] = end;
	s->value[GAUGES + result]++;
}

/* Drops the keys beyond KEYS_KEPT: first the one whose last run ended longest ago. */
static void
drop_oldest(struct table *t)
{
	while (t->n > KEYS_KEPT) {
		struct series *oldest = t->list;

		for (struct series *s = t->list; s < t->list + t->n; s++)
			if (s->value[END] < oldest->value[END])
				oldest = s;
		free(oldest->key);
		*oldest = t->list[--t->n];
	}
}

/* ---- writing ---- */

/* Prints value i of a key, if it is known. */
static void
print_sample(FILE *to, const struct series *s, int i)
{
	bool is_run = i >= GAUGES;
	int64_t v = s->value[i];

	if (v < 0)
		return;
	fprintf(to, "%s{key=\"%s\",backend=\"%s\"", metrics[is_run ? GAUGES : i].name,
	    s->key, s->backend);
	if (is_run)
		fprintf(to, ",result=\"%s\"} %" PRId64 "\n", results[i - GAUGES], v);
	else if (i == STATUS)
		fprintf(to, "} %" PRId64 "\n", v);
	else
		fprintf(to, "} %" PRId64 ".%03d\n", v / 1000, (int)(v % 1000));
}

/*
 * Prints all samples of a metric together, as the format wants it.  A result that no run has had
 * yet gets a line with 0, since Prometheus sees an increase from 0 to 1, and none from nothing to
 * 1.
 */
static void
print_metric(FILE *to, const struct table *t, int m)
{
	int end = m < GAUGES ? m + 1 : GAUGES + RESULTS;

	metrics_head(
	    to, metrics[m].name, metrics[m].help, m < GAUGES ? "gauge" : "counter");
	for (const struct series *s = t->list; s < t->list + t->n; s++)
		for (int i = m; i < end; i++)
			print_sample(to, s, i);
}

/* Writes the table into a file that is empty by now. */
static enum rc
write_file(int fd, const struct table *t, struct fault *f)
{
	int copy = fcntl(fd, F_DUPFD_CLOEXEC, 3);
	FILE *to = copy < 0 ? NULL : fdopen(copy, "w");
	bool bad;

	if (!to)
		return fail_by_errno(f);
	fputs(mark, to);
	for (int m = 0; m <= GAUGES; m++)
		print_metric(to, t, m);
	bad = ferror(to);
	return fclose(to) == 0 && !bad ? RC_OK : fail_by_errno(f);
}

/* ---- the file, one run at a time ---- */

/* Locks the file; waits for that until `until`. */
static bool
lock(int fd, instant until)
{
	while (flock(fd, LOCK_EX | LOCK_NB) != 0) {
		if ((errno != EWOULDBLOCK && errno != EINTR) || instant_now() >= until)
			return false;
		poll(NULL, 0, 2);
	}
	return true;
}

/*
 * Is this open file still the one with the name, and is it ours?  We do not write into another
 * user's file, since that user could change what we write.  We have its lock, so no run writes
 * it: the run that made it was killed.  Root removes such a file.
 */
static bool
is_next(int fd, const char *path)
{
	struct stat opened, named;

	if (libc_stat_of(fd, &opened) != 0 || lstat(path, &named) != 0 ||
	    opened.st_dev != named.st_dev || opened.st_ino != named.st_ino)
		return false;
	if (opened.st_uid != libc_user() && libc_user() == 0)
		unlink(path);
	return opened.st_uid == libc_user();
}

/* Says why open_next() has failed.  `why`: the errno of open(2); 0: the file was opened. */
static void
tell_next(const char *path, int why, struct fault *f)
{
	struct stat st;

	if ((why == 0 || why == EACCES) &&
	    libc_stat_at(AT_FDCWD, path, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
	    st.st_uid != libc_user())
		fault_set(f, RC_SYSTEM,
		    "%s is of another user (uid %u), whose run has not finished it: remove it",
		    path, (unsigned)st.st_uid);
	else
		fault_set(f, RC_SYSTEM, "%s",
		    why ? strerror(why) : "other runs did not leave it for a second");
}

/*
 * Opens and locks the file that is to replace the metrics file.  -1: *f says why not.
 *
 * A run that had the lock before us has renamed its file, so we open the name again.  The file's
 * mode lets no other user open it, since that user could lock it and hold up all runs.  So while
 * another user's run writes its file, open(2) refuses us; as root we wait for its lock.  If
 * open(2) refuses us twice and no such file is there, the directory refuses us, and waiting does
 * not help.
 */
static int
open_next(const char *path, struct fault *f)
{
	instant until = instant_now() + PATIENCE;
	int absent = 0;

	for (;;) {
		int fd = open(path,
			O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC,
			0600),
		    why = fd < 0 ? errno : 0;
		struct stat st;

		if (fd >= 0 && lock(fd, until) && is_next(fd, path))
			return fd;
		absent = why == EACCES && lstat(path, &st) != 0 ? absent + 1 : 0;
		if ((why && why != EACCES) || absent == 2 || instant_now() >= until) {
			tell_next(path, why, f);
			if (fd >= 0)
				close(fd);
			return -1;
		}
		if (fd >= 0)
			close(fd);
		poll(NULL, 0, 2);
	}
}

/* The mode of a new file. */
static mode_t
usual_mode(void)
{
	mode_t mask = umask(0);

	umask(mask);
	return 0644 & ~mask;
}

/* Reads the metrics file, writes its successor, which is locked, and renames that. */
static enum rc
replace(const struct params *p, const struct metrics_run *r, const char *next, int fd,
    struct fault *f)
{
	static struct table t; /* zeroed, and used once: the process ends after this */
	char label[METRICS_LABEL];
	mode_t mode = usual_mode();
	struct stat st;
	struct fault why = {""};
	char *begun = read_metrics_text(fd, true, &st, &why);
	enum rc rc = begun ? RC_OK : RC_SYSTEM;

	free(begun);
	if (rc == RC_OK && st.st_nlink != 1)
		rc = fault_set(&why, RC_CONFIG, "it has two names");
	if (rc != RC_OK)
		return fault_set(f, rc, "%s: %s", text_shown(next).text, why.text);
	rc = read_metrics(&t, p->show.metrics, &mode, f);
	drop_oldest(&t);
	for (size_t i = 0; i < p->nkeys && rc == RC_OK; i++) {
		struct series *s;

		metrics_label(label, p->keys[i]);
		s = find_series(&t, label, strlen(label), p->site.backend->name);
		if (s)
			count_run(s, r);
		else
			rc = fault_set(f, RC_SYSTEM, "no memory");
	}
	drop_oldest(&t);
	if (rc == RC_OK && (ftruncate(fd, 0) != 0 || lseek(fd, 0, SEEK_SET) != 0))
		rc = fail_by_errno(f);
	if (rc == RC_OK)
		rc = write_file(fd, &t, f);
	if (rc == RC_OK && (fchmod(fd, mode) != 0 || rename(next, p->show.metrics) != 0))
		rc = fail_by_errno(f);
	if (rc != RC_OK)
		unlink(next);
	return rc;
}

void
metrics_add(const struct params *p, const struct metrics_run *r)
{
	struct fault f = {""};
	char next[PATH_MAX + 16];
	enum rc rc = RC_SYSTEM;
	int fd;

	signal(SIGXFSZ, SIG_IGN); /* the write fails instead, and we say so */
	snprintf(next, sizeof next, "%s.dlock", p->show.metrics);
	fd = open_next(next, &f);
	if (fd >= 0)
		rc = replace(p, r, next, fd, &f);
	if (rc != RC_OK)
		say("this run is not counted in %s: %s", text_shown(p->show.metrics).text,
		    text_shown(f.text).text);
	if (fd >= 0)
		close(fd);
}
