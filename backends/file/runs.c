/* runs.c - remembers, tells and forgets the runs of jobs, and knows whether a job is done. */
#include "runs.h"

#include "block.h"

#include "backends/common/text.h"
#include "backends/common/sha256.h"

#include <dirent.h>
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

static const char last_name[] = "last", good_name[] = "good", new_name[] = "new";

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
run_refuse(
    const struct run *r, const struct job *job, int64_t now_us, struct fault *fault)
{
	static const char who_is[] = "\"who\":\"";
	const char *at;
	char id[ENCODED_BYTES], who[100];
	int64_t ago = now_us - r->begin, cooldown = job->cooldown / 1000;

	if (r->status != 0)
		return RC_OK;
	if (job->once && encode_key(id, sizeof id, job->once) > 0 &&
	    strcmp(id, r->id) == 0) {
		/* what stands there as "who", which whoever prints it makes harmless */
		at = strstr(r->record, who_is);
		at = at ? at + strlen(who_is) : "";
		snprintf(who, sizeof who, "%.*s", (int)strcspn(at, "\"\\"), at);
		return refuse_done(fault, job, r->begin / 1000, who);
	}
	/*
	 * A clock that was set back makes a run lie in the future: by so much it may be
	 * wrong, not by more.
	 */
	if (ago < cooldown && -ago < cooldown)
		return refuse_recent(fault, job, ago > 0 ? ago * 1000 : 0);
	return RC_OK;
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
	const char *behind;

	*runs = *d;
	snprintf(runs->where, sizeof runs->where, "%.250s/%.*s", d->where,
	    (int)strcspn(name, "/"), name);
	return directory_open_steps(d, name, use, &runs->fd, &behind, fault);
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
	int fd, at;
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
		close(fd);
	} else if (rc == RC_OK) {
		close(fd);
	}
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
	sha256(hash, id, strlen(id));
	text_hex(out + n, hash, sizeof hash);
}

/* The next of the eras that are there; -1: that was the last one. */
static int64_t
next_era(DIR *list)
{
	const struct dirent *e;

	while ((e = readdir(list))) {
		const char *s = e->d_name;
		int64_t era = block_number(&s, s + strlen(s));

		if (era >= 0)
			return era;
	}
	return -1;
}

/* ---- has it been done? ---- */

static enum rc
check_run(const struct directory *runs, const char *name, const struct job *job,
    int64_t now_us, struct fault *fault)
{
	struct run run;
	enum rc rc = load_run(runs, name, &run, fault);

	if (rc == RC_OK)
		return run_refuse(&run, job, now_us, fault);
	return rc == RC_LOST ? RC_OK : rc;
}

enum rc
runs_check(const struct directory *d, const char *name, const struct job *job,
    int64_t now_us, struct fault *fault)
{
	char id[ENCODED_BYTES], file[NAME_MAX + 1];
	struct directory runs;
	DIR *list = NULL;
	int64_t era;
	enum rc rc = open_runs(&runs, d, name, DIRECTORY_MAKE, fault);

	if (rc != RC_OK)
		return rc;
	if (job->once) {
		encode_key(id, sizeof id, job->once);
		list = directory_list(runs.fd);
		if (!list)
			rc = directory_failed(
			    &runs, "cannot list the records of past runs", fault);
	}
	while (rc == RC_OK && list && (era = next_era(list)) >= 0) {
		name_id(file, era, id);
		rc = check_run(&runs, file, job, now_us, fault);
	}
	if (list)
		closedir(list);
	if (rc == RC_OK)
		rc = check_run(&runs, last_name, job, now_us, fault);
	if (rc == RC_OK)
		rc = check_run(&runs, good_name, job, now_us, fault);
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
	const struct run *r = &last;
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
	if (r->begin > now_us ||
	    (rc == RC_OK && good.begin > r->begin && good.begin <= now_us))
		return RC_OK;
	return store_run(runs, good_name, r, fault);
}

/* As many files of an era as may be deleted in one go. */
static void
sweep_era(const struct directory *runs, int64_t era)
{
	const struct dirent *e;
	struct fault ignored;
	const char *behind;
	char name[24];
	DIR *list;
	int at;

	snprintf(name, sizeof name, "%" PRId64 "/", era);
	if (directory_open_steps(runs, name, DIRECTORY_CHANGE, &at, &behind, &ignored) !=
	    RC_OK)
		return;
	list = directory_list(at);
	for (int i = 0; list && i < SWEEP && (e = readdir(list)); i++)
		unlinkat(at, e->d_name, 0);
	if (list)
		closedir(list);
	close(at);
	unlinkat(runs->fd, name, AT_REMOVEDIR); /* unless something is left */
}

enum rc
runs_remember(
    const struct directory *d, const char *name, const struct run *r, struct fault *fault)
{
	struct directory runs;
	enum rc rc = open_runs(&runs, d, name, DIRECTORY_MAKE, fault);
	int64_t era;
	DIR *list;

	if (rc != RC_OK)
		return rc;
	rc = copy_last(&runs, r->end, fault);
	if (rc == RC_OK)
		rc = store_run(&runs, last_name, r, fault);
	list = rc == RC_OK ? directory_list(runs.fd) : NULL;
	while (list && (era = next_era(list)) >= 0)
		if (era < r->end / ERA - 1)
			sweep_era(&runs, era);
	if (list)
		closedir(list);
	close(runs.fd);
	return rc;
}

/* ---- looking ---- */

/* One of them that is there by its name. */
static enum rc
load_named(const struct directory *d, const char *name, const char *leaf, struct run *r,
    struct fault *fault)
{
	struct directory runs;
	enum rc rc = open_runs(&runs, d, name, DIRECTORY_LOOK, fault);

	if (rc != RC_OK)
		return rc;
	rc = load_run(&runs, leaf, r, fault);
	close(runs.fd);
	return rc;
}

enum rc
runs_last(const struct directory *d, const char *name, struct run *r, struct fault *fault)
{
	return load_named(d, name, last_name, r, fault);
}

enum rc
runs_good(const struct directory *d, const char *name, const struct run *last,
    struct run *r, struct fault *fault)
{
	return last && last->status == 0 ? RC_LOST
					 : load_named(d, name, good_name, r, fault);
}

/* What is done with a file of an ID. */
struct visit {
	const struct directory *runs;
	bool (*see)(void *ctx, const struct run *); /* NULL: it is deleted */
	void *ctx;
	bool enough;
	bool deleted;            /* something was */
	const struct run * not ; /* this one is told already */
};

static enum rc
visit_file(struct visit *v, int64_t era, int at, const char *leaf, struct fault *fault)
{
	char name[NAME_MAX + 1], expected[NAME_MAX + 1];
	struct run run;
	enum rc rc;

	if (!v->see && unlinkat(at, leaf, 0) != 0)
		return errno == ENOENT || errno == EISDIR
		    ? RC_OK
		    : directory_failed(v->runs, "cannot delete what has been run", fault);
	v->deleted |= !v->see;
	if (!v->see)
		return RC_OK;
	if (snprintf(name, sizeof name, "%" PRId64 "/%s", era, leaf) >= (int)sizeof name)
		return RC_OK;
	rc = load_run(v->runs, name, &run, fault);
	if (rc != RC_OK)
		return rc == RC_LOST ? RC_OK : rc;
	name_id(expected, era, run.id);
	if (strcmp(name, expected) != 0 || run.status != 0)
		return RC_OK; /* somebody has put it there */
	if (!v->not || strcmp(v->not ->id, run.id) != 0)
		v->enough = !v->see(v->ctx, &run);
	return RC_OK;
}

static enum rc
visit_era(struct visit *v, int64_t era, struct fault *fault)
{
	const struct dirent *e;
	const char *behind;
	char name[24];
	DIR *list;
	int at;
	enum rc rc;

	snprintf(name, sizeof name, "%" PRId64 "/", era);
	rc = directory_open_steps(v->runs, name,
	    v->see ? DIRECTORY_LOOK : DIRECTORY_CHANGE, &at, &behind, fault);
	if (rc != RC_OK)
		return rc == RC_LOST ? RC_OK : rc;
	list = directory_list(at);
	if (!list)
		rc = directory_failed(v->runs, "cannot list what has been run", fault);
	while (rc == RC_OK && !v->enough && (e = readdir(list)))
		if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0)
			rc = visit_file(v, era, at, e->d_name, fault);
	if (list)
		closedir(list);
	close(at);
	return rc;
}

static enum rc
visit_eras(struct visit *v, struct fault *fault)
{
	DIR *list = directory_list(v->runs->fd);
	enum rc rc = list
	    ? RC_OK
	    : directory_failed(v->runs, "cannot list what has been run", fault);
	int64_t era;

	while (rc == RC_OK && !v->enough && (era = next_era(list)) >= 0)
		rc = visit_era(v, era, fault);
	if (list)
		closedir(list);
	return rc;
}

/* The run in `last` has not been copied to the file of its ID yet. */
enum rc
runs_each(const struct directory *d, const char *name,
    bool (*see)(void *ctx, const struct run *), void *ctx, struct fault *fault)
{
	struct directory runs;
	struct visit v = {.runs = &runs, .see = see, .ctx = ctx};
	struct run last;
	enum rc rc = open_runs(&runs, d, name, DIRECTORY_LOOK, fault);

	if (rc != RC_OK)
		return rc;
	rc = load_run(&runs, last_name, &last, fault);
	if (rc == RC_OK && last.status == 0 && *last.id) {
		v.not = &last;
		v.enough = !see(ctx, &last);
	}
	rc = rc == RC_OK || rc == RC_LOST ? visit_eras(&v, fault) : rc;
	close(runs.fd);
	return rc;
}

/* ---- forgetting ---- */

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

/* `last` or `good`, if it is of that ID (NULL: whatever it is). */
static enum rc
delete_if_of(const struct directory *runs, const char *name, const char *id,
    bool *deleted, struct fault *fault)
{
	struct run run;
	enum rc rc = id ? load_run(runs, name, &run, fault) : RC_OK;

	if (rc == RC_LOST || (rc == RC_OK && id && strcmp(run.id, id) != 0))
		return RC_OK;
	return rc == RC_OK ? delete_run(runs, name, deleted, fault) : rc;
}

/* The files of an ID, in each era that is there. */
static enum rc
drop_id(const struct directory *runs, const char *id, bool *deleted, struct fault *fault)
{
	DIR *list = directory_list(runs->fd);
	char name[NAME_MAX + 1];
	int64_t era;
	enum rc rc = list
	    ? RC_OK
	    : directory_failed(runs, "cannot list what has been run", fault);

	while (rc == RC_OK && list && (era = next_era(list)) >= 0) {
		name_id(name, era, id);
		rc = delete_run(runs, name, deleted, fault);
	}
	if (list)
		closedir(list);
	return rc;
}

enum rc
runs_forget(
    const struct directory *d, const char *name, const char *once, struct fault *fault)
{
	struct directory runs;
	struct visit v = {.runs = &runs};
	char encoded[ENCODED_BYTES];
	const char *id = once ? encoded : NULL;
	bool deleted = false;
	enum rc rc = open_runs(&runs, d, name, DIRECTORY_CHANGE, fault);

	if (rc != RC_OK)
		return rc;
	if (once)
		encode_key(encoded, sizeof encoded, once);
	/* `last` goes at the end: killed before, the job is not due yet */
	rc = id ? drop_id(&runs, id, &deleted, fault) : visit_eras(&v, fault);
	if (rc == RC_OK)
		rc = delete_if_of(&runs, good_name, id, &deleted, fault);
	if (rc == RC_OK)
		rc = delete_if_of(&runs, last_name, id, &deleted, fault);
	close(runs.fd);
	if (rc == RC_OK && !deleted && !v.deleted)
		return fault_set(
		    fault, RC_LOST, "%s: no such run is remembered", d->where);
	return rc;
}
