/* runs.c - remembers, tells and forgets the runs of jobs, and knows whether a job is done. */
#include "runs.h"

#include "block.h"

#include "backends/common/digits.h"
#include "backends/common/job.h"
#include "backends/common/libc.h"
#include "backends/common/refuse.h"
#include "backends/common/sha.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

enum {
	ID_CHARS = 200, /* an ID that is longer when encoded is named by its hash */
	SWEEP = 64,     /* files of an old era that are deleted at a time */
};

#define ERA (400 * 24 * 3600 * INT64_C(1000000))

static const char last_name[] = "last", good_name[] = "good", shown_name[] = "shown",
		  new_name[] = "new";

/* ---- a run as a line of text ---- */

static const char no_id[] = "."; /* the ID "." is encoded as %2E */

bool
run_parse(struct run *r, const char *line, size_t n)
{
	const char *s = line, *end = line + n, *blank;
	int64_t status;

	*r = (struct run){.begin = block_number(&s, end)};
	r->end = block_number(&s, end);
	status = block_number(&s, end);
	r->token = block_number(&s, end);
	blank = memchr(s, ' ', (size_t)(end - s));
	if (r->begin < 0 || r->end < 0 || status < 0 || status > 255 || r->token < 0 ||
	    !blank || blank == s || blank + 1 == end)
		return false;
	if (blank - s >= (ptrdiff_t)sizeof r->id ||
	    end - blank > (ptrdiff_t)sizeof r->record || memchr(line, '\0', n))
		return false; /* torn, or not ours */
	r->status = (int)status;
	if (blank - s != 1 || *s != *no_id)
		memcpy(r->id, s, (size_t)(blank - s));
	memcpy(r->record, blank + 1, (size_t)(end - blank - 1));
	return true;
}

size_t
run_format(const struct run *r, char line[RUN_LINE])
{
	return (size_t)snprintf(line, RUN_LINE,
	    "%" PRId64 " %" PRId64 " %d %" PRId64 " %s %s\n", r->begin, r->end, r->status,
	    r->token, *r->id ? r->id : no_id, *r->record ? r->record : "{}");
}

/* ---- what a job asks ---- */

enum rc
run_refuse(struct host *host, const struct run *r, const struct job *job, bool final,
    int64_t now_us, struct fault *fault)
{
	char id[ENCODED_BYTES], who[RECORD_BYTES];
	int64_t age = now_us - r->begin;

	if (r->status != 0 && !(final && job->no_retry))
		return RC_OK;
	if (job->once && encode_key(id, sizeof id, job->once) > 0 &&
	    strcmp(id, r->id) == 0) {
		job_who(r->record, who, sizeof who);
		return refuse_done(host, fault, job, r->status, r->begin / 1000, who);
	}
	return r->status == 0 && job_is_recent(job, age)
	    ? refuse_recent(fault, job, age * 1000)
	    : RC_OK;
}

/* ---- the files ---- */

/*
 * A key's directory of runs, as a directory of its own.  With RC_OK its descriptor is the
 * caller's.
 */
static enum rc
open_runs(struct directory *runs, const struct directory *d, const char *name,
    enum directory_use use, struct fault *fault)
{
	char step[NAME_MAX + 1];
	const char *behind;
	struct stat st;
	enum rc rc;

	*runs = *d;
	snprintf(runs->where, sizeof runs->where, "%.250s/%.*s", d->where,
	    (int)strcspn(name, "/"), name);
	rc = directory_open_steps(d, name, use, &runs->fd, &behind, fault);
	snprintf(step, sizeof step, "%.*s", (int)strcspn(name, "/"), name);
	if (rc == RC_DENIED && libc_stat_at(d->fd, step, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
	    S_ISREG(st.st_mode))
		return fault_set(fault, rc,
		    "%s is a file, as dlocks of before 2026-11-25 had it: once no such dlock runs, "
		    "remove it, and its jobs are forgotten",
		    runs->where);
	return rc;
}

/* RC_LOST: there is none. */
static enum rc
load_run(
    const struct directory *runs, const char *name, struct run *r, struct fault *fault)
{
	char text[RUN_LINE], *end = NULL;
	ssize_t n;
	int fd;
	enum rc rc = directory_open_file(runs, name, DIRECTORY_LOOK, &fd, fault);

	if (rc != RC_OK)
		return rc;
	n = read(fd, text, sizeof text);
	if (n < 0)
		rc = directory_failed(
		    runs, "cannot read the records of past runs", fault);
	else
		end = memchr(text, '\n', (size_t)n);
	if (rc == RC_OK && (!end || !run_parse(r, text, (size_t)(end - text))))
		rc = RC_LOST;
	close(fd);
	return rc;
}

/* The whole file appears under its name, or nothing changes. */
static enum rc
store_run(const struct directory *runs, const char *name, const struct run *r,
    struct fault *fault)
{
	char line[RUN_LINE];
	size_t n = run_format(r, line);
	const char *leaf;
	int fd = -1, at;
	enum rc rc = directory_open_steps(runs, name, DIRECTORY_MAKE, &at, &leaf, fault);

	if (rc != RC_OK)
		return rc;
	rc = directory_open_file(runs, new_name, DIRECTORY_MAKE, &fd, fault);
	errno = ENOSPC; /* what a short write means */
	if (rc == RC_OK &&
	    (ftruncate(fd, 0) != 0 || pwrite(fd, line, n, 0) != (ssize_t)n ||
		renameat(runs->fd, new_name, at, leaf) != 0)) {
		rc = directory_failed(runs, "cannot write the record of this run", fault);
		unlinkat(runs->fd, new_name, 0);
	}
	if (fd >= 0)
		close(fd);
	directory_close_steps(runs, at);
	return rc;
}

/* *deleted: it was there. */
static enum rc
delete_run(
    const struct directory *runs, const char *name, bool *deleted, struct fault *fault)
{
	const char *leaf;
	int at;
	enum rc rc = directory_open_steps(
	    runs, name, DIRECTORY_CHANGE, &at, &leaf, fault);

	if (rc != RC_OK)
		return rc == RC_LOST ? RC_OK : rc;
	if (unlinkat(at, leaf, 0) == 0)
		*deleted = true;
	else if (errno != ENOENT && errno != EISDIR) /* a directory is none of ours */
		rc = directory_failed(runs, "cannot delete what has been run", fault);
	directory_close_steps(runs, at);
	return rc;
}

/* The file of an ID, which is encoded already. */
static void
name_id(char out[NAME_MAX + 1], int64_t era, const char *id)
{
	int n = snprintf(out, NAME_MAX + 1, "%" PRId64 "/%.*s", era, ID_CHARS, id);
	unsigned char hash[SHA256_BYTES];

	if (strlen(id) <= ID_CHARS)
		return;
	n -= ID_CHARS;
	out[n++] = '+'; /* which no encoded ID has */
	sha_256(hash, id, strlen(id));
	digits_hex(out + n, hash, sizeof hash);
}

/* ---- the eras ---- */

/* What is done with the files of IDs: they are deleted, if nobody asks or sees. */
struct visit {
	const struct directory *runs;
	const char *id; /* only with those of this one; NULL: with all */
	int64_t before; /* only in eras before this one; 0: in all */
	int most;     /* with so many of an era, whatever becomes of each; 0: with all */
	bool deleted; /* something was */
	const struct job *job; /* has one of them done this, */
	struct host *host;     /* whose it is, */
	int64_t now_us;        /* by this time? */
	bool (*see)(void *ctx, enum entry_kind, const struct run *);
	void *ctx;
	bool enough;
	const char *told; /* the ID of the run that has been seen before */
};

static void
hand_on_run(struct visit *v, enum entry_kind kind, const struct run *run)
{
	v->enough = v->enough || !v->see(v->ctx, kind, run);
}

static enum rc
visit_file(struct visit *v, int64_t era, const char *name, struct fault *fault)
{
	char expected[NAME_MAX + 1];
	struct run run;
	enum rc rc;

	if (!v->job && !v->see) {
		rc = delete_run(v->runs, name, &v->deleted, fault);
		return v->most ? RC_OK : rc;
	}
	rc = load_run(v->runs, name, &run, fault);
	if (rc != RC_OK)
		return rc == RC_LOST ? RC_OK : rc;
	/* a failure stands in the file of its ID where it counts */
	if (v->job)
		return run_refuse(
		    v->host, &run, v->job, name != last_name, v->now_us, fault);
	name_id(expected, era, run.id);
	/* others have been put there by somebody */
	if (strcmp(name, expected) == 0 && (!v->told || strcmp(v->told, run.id) != 0))
		hand_on_run(v, ENTRY_DONE, &run);
	return RC_OK;
}

static enum rc
visit_era(struct visit *v, int64_t era, struct fault *fault)
{
	char name[2 * NAME_MAX];
	const struct dirent *e;
	DIR *list;
	enum rc rc;

	if (v->id) {
		name_id(name, era, v->id);
		return visit_file(v, era, name, fault);
	}
	snprintf(name, sizeof name, "%" PRId64 "/", era);
	rc = directory_list(v->runs, name, &list, fault);
	if (rc != RC_OK) /* a sweep passes over what is none of ours */
		return rc == RC_LOST || v->most ? RC_OK : rc;
	for (int i = 0; rc == RC_OK && !v->enough && (e = readdir(list)); i++) {
		if (v->most && i >= v->most)
			break;
		if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
			continue;
		snprintf(name, sizeof name, "%" PRId64 "/%s", era, e->d_name);
		rc = visit_file(v, era, name, fault);
	}
	closedir(list);
	if (!v->job && !v->see) {
		snprintf(name, sizeof name, "%" PRId64, era);
		unlinkat(v->runs->fd, name, AT_REMOVEDIR); /* unless something is left */
	}
	return rc;
}

static enum rc
visit_eras(struct visit *v, struct fault *fault)
{
	const struct dirent *e;
	DIR *list;
	enum rc rc = directory_list(v->runs, "", &list, fault);

	if (rc != RC_OK)
		return rc;
	while (rc == RC_OK && !v->enough && (e = readdir(list))) {
		const char *s = e->d_name;
		int64_t era = block_number(&s, s + strlen(s));

		if (era >= 0 && (!v->before || era < v->before))
			rc = visit_era(v, era, fault);
	}
	closedir(list);
	return rc;
}

/* ---- has it been done? ---- */

/*
 * A success in `last` is no longer a failure, as the file of its ID has it.  A run that is to be
 * shown asks for nothing but the directory.
 */
enum rc
runs_check(const struct directory *d, const char *name, struct host *host,
    const struct job *job, int64_t now_us, struct fault *fault)
{
	char id[ENCODED_BYTES];
	struct directory runs;
	struct visit v = {
	    .runs = &runs, .id = id, .job = job, .host = host, .now_us = now_us};
	enum rc rc = open_runs(&runs, d, name, DIRECTORY_MAKE, fault);

	if (rc != RC_OK)
		return rc;
	if (job->no_retry)
		rc = visit_file(&v, 0, last_name, fault);
	if (rc == RC_OK && job->once) {
		encode_key(id, sizeof id, job->once);
		rc = visit_eras(&v, fault);
	}
	if (rc == RC_OK)
		rc = visit_file(&v, 0, last_name, fault);
	if (rc == RC_OK)
		rc = visit_file(&v, 0, good_name, fault);
	close(runs.fd);
	return rc;
}

/* ---- remembering ---- */

/*
 * `last` can be replaced then.  A good run that seems to lie in the future is given up for any
 * that does not.
 */
static enum rc
copy_last(const struct directory *runs, int64_t now_us, struct fault *fault)
{
	char name[NAME_MAX + 1];
	struct run last, good;
	enum rc rc = load_run(runs, last_name, &last, fault);

	if (rc != RC_OK || last.status != 0)
		return rc == RC_LOST ? RC_OK : rc;
	name_id(name, now_us / ERA, last.id);
	if (*last.id)
		rc = store_run(runs, name, &last, fault);
	if (rc == RC_OK)
		rc = load_run(runs, good_name, &good, fault);
	if (rc != RC_OK && rc != RC_LOST)
		return rc;
	if (last.begin > now_us ||
	    (rc == RC_OK && good.begin > last.begin && good.begin <= now_us))
		return RC_OK;
	return store_run(runs, good_name, &last, fault);
}

/* A failure that counts, unless a run beside it has ended with 0: copy_last() has copied that. */
static enum rc
store_failure(const struct directory *runs, const struct run *r, struct fault *fault)
{
	char name[NAME_MAX + 1];
	struct run done;
	enum rc rc;

	name_id(name, r->end / ERA, r->id);
	rc = load_run(runs, name, &done, fault);
	if (rc == RC_OK && done.status == 0)
		return RC_OK;
	return rc == RC_OK || rc == RC_LOST ? store_run(runs, name, r, fault) : rc;
}

enum rc
runs_remember(const struct directory *d, const char *name, const struct run *r,
    enum run_use use, struct fault *fault)
{
	struct directory runs;
	struct visit old = {.runs = &runs, .before = r->end / ERA - 1, .most = SWEEP};
	struct fault ignored;
	enum rc rc = open_runs(&runs, d, name, DIRECTORY_MAKE, fault);

	if (rc != RC_OK)
		return rc;
	if (use == RUN_SHOWN) {
		rc = store_run(&runs, shown_name, r, fault);
		close(runs.fd);
		return rc;
	}
	rc = copy_last(&runs, r->end, fault);
	if (rc == RC_OK && use == RUN_FINAL && r->status != 0 && *r->id)
		rc = store_failure(&runs, r, fault);
	if (rc == RC_OK)
		rc = store_run(&runs, last_name, r, fault);
	if (rc == RC_OK && old.before > 0)
		(void)visit_eras(&old, &ignored);
	close(runs.fd);
	return rc;
}

/* ---- looking ---- */

/* The run in `last` has not been copied to the file of its ID yet. */
enum rc
runs_look(const struct directory *d, const char *name, bool ids,
    bool (*see)(void *ctx, enum entry_kind, const struct run *), void *ctx,
    struct fault *fault)
{
	struct directory runs;
	struct visit v = {.runs = &runs, .see = see, .ctx = ctx};
	struct run last = {.status = STATUS_NONE}, good, shown;
	enum rc rc = open_runs(&runs, d, name, DIRECTORY_LOOK, fault);

	if (rc != RC_OK)
		return rc;
	rc = load_run(&runs, last_name, &last, fault);
	if (rc == RC_OK)
		hand_on_run(&v, ENTRY_LAST, &last);
	if ((rc == RC_OK && last.status != 0) || rc == RC_LOST) {
		rc = load_run(&runs, good_name, &good, fault);
		if (rc == RC_OK)
			hand_on_run(&v, ENTRY_GOOD, &good);
	} else if (rc == RC_OK && ids && *last.id) {
		v.told = last.id;
		hand_on_run(&v, ENTRY_DONE, &last);
	}
	if (!v.enough && (rc == RC_OK || rc == RC_LOST)) {
		rc = load_run(&runs, shown_name, &shown, fault);
		if (rc == RC_OK)
			hand_on_run(&v, ENTRY_SHOWN, &shown);
	}
	if (ids && !v.enough && (rc == RC_OK || rc == RC_LOST))
		rc = visit_eras(&v, fault);
	close(runs.fd);
	return rc;
}

/* ---- forgetting ---- */

/* `last` goes at the end: of who is killed before, the job is not due yet. */
enum rc
runs_forget(
    const struct directory *d, const char *name, const char *once, struct fault *fault)
{
	struct directory runs;
	char id[ENCODED_BYTES];
	struct visit v = {.runs = &runs, .id = once ? id : NULL};
	struct run run;
	enum rc rc = open_runs(&runs, d, name, DIRECTORY_CHANGE, fault);

	if (rc != RC_OK)
		return rc;
	if (once)
		encode_key(id, sizeof id, once);
	rc = visit_eras(&v, fault);
	if (rc == RC_OK && !once)
		rc = delete_run(&runs, shown_name, &v.deleted, fault);
	for (int i = 0; rc == RC_OK && i < 2; i++) {
		const char *file = i == 0 ? good_name : last_name;

		rc = once ? load_run(&runs, file, &run, fault) : RC_OK;
		if (rc == RC_OK && (!once || strcmp(run.id, id) == 0))
			rc = delete_run(&runs, file, &v.deleted, fault);
		rc = rc == RC_LOST ? RC_OK : rc;
	}
	close(runs.fd);
	if (rc == RC_OK && !v.deleted)
		return fault_set(
		    fault, RC_LOST, "%s: no such run is remembered", d->where);
	return rc;
}
