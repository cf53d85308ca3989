/* jobs.c - reads and writes what jobs have done. */
#include "jobs.h"

#include "backends/common/text.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ERA (400LL * 86400 * NS_PER_S)

enum { LOOKS = 3 /* eras */, PRUNED = 200 /* names at a time */ };

/* A run, as it is remembered. */
struct run {
	int64_t began; /* ns since 1970; -1: it is none */
	char who[128];
};

static long long
era_of(int64_t now)
{
	return now < 0 ? 0 : now / ERA;
}

void
jobs_path(char out[JOBS_DIR_BYTES], const struct lockdir *d)
{
	const char *name = strrchr(d->path, '/');

	snprintf(
	    out, JOBS_DIR_BYTES, "%.*s/" JOBS "%s", (int)(name - d->path), d->path, name);
}

void
jobs_begin(struct jobs *p, const struct claim *claim, const struct lockdir *d)
{
	*p = (struct jobs){.claim = claim, .began = -1};
	jobs_path(p->path, d);
}

static void
id_path(const struct jobs *p, char out[JOBS_BYTES], long long era)
{
	char id[ENCODED_BYTES];

	encode_key(id, sizeof id, p->claim->job.once);
	snprintf(out, JOBS_BYTES, "%s/%lld/%s", p->path, era, id);
}

/* ---- read ---- */

static struct run
read_run(const struct call *c)
{
	json_t *root = json_loads(call_text(c), JSON_REJECT_DUPLICATES, NULL);
	json_int_t began = json_integer_value(json_object_get(root, "began"));
	const char *who = json_string_value(
	    json_object_get(json_object_get(root, "record"), "who"));
	int64_t ended = node_server_time(call_stat(c)->mtime);
	struct run run = {.began = node_server_time(began)};

	if (run.began > ended)
		run.began = ended;
	snprintf(run.who, sizeof run.who, "%s", who ? who : "");
	json_decref(root);
	return run;
}

bool
jobs_read(struct past_run *run, const struct call *last)
{
	json_t *root = json_loads(call_text(last), JSON_REJECT_DUPLICATES, NULL);
	json_t *record = json_object_get(root, "record"),
	       *status = json_object_get(root, "status");
	bool is_one = json_is_integer(status) && json_integer_value(status) >= 0 &&
	    json_integer_value(status) <= 255;
	const char *id = json_string_value(json_object_get(root, "id"));

	*run = (struct past_run){.began = read_run(last).began,
	    .ended = node_server_time(call_stat(last)->mtime),
	    .token = (uint64_t)json_integer_value(json_object_get(root, "token")),
	    .status = (int)json_integer_value(status)};
	if (is_one) {
		run->id = id ? strdup(id) : NULL;
		run->record = json_is_object(record) ? json_dumps(record, JSON_COMPACT)
						     : NULL;
	}
	json_decref(root);
	return is_one;
}

void
jobs_forget(struct past_run *run)
{
	free(run->id);
	free(run->record);
}

/* Is there a node of our ID in that era? */
static enum rc
judge_id(const struct jobs *p, const struct node *n, struct call *c, instant until,
    struct fault *f)
{
	struct run run;
	char who[128];
	int code;
	enum rc rc = call_await(c, until, &code, f);

	if (rc != RC_OK || code != ZOK)
		return rc;
	run = read_run(c);
	session_quote(n->session, who, sizeof who, run.who);
	return refuse_done(
	    f, &p->claim->job, run.began < 0 ? -1 : run.began / NS_PER_MS, who);
}

static enum rc
judge_good(
    const struct jobs *p, struct call *c, int64_t now, instant until, struct fault *f)
{
	struct run run;
	int64_t age;
	int code;
	enum rc rc = call_await(c, until, &code, f);

	if (rc != RC_OK || code != ZOK)
		return rc;
	run = read_run(c);
	age = now > run.began ? now - run.began : 0;
	return run.began >= 0 && age < p->claim->job.cooldown
	    ? refuse_recent(f, &p->claim->job, age)
	    : RC_OK;
}

/* ---- old eras ---- */

/* Removes a few of its names, or it, when it has none any more.  It was worth trying. */
static enum rc
prune_era(const struct jobs *p, const struct node *n, const char *era, instant until,
    struct fault *f)
{
	char path[JOBS_BYTES], child[JOBS_BYTES + NAME_BYTES];
	const char *const *names;
	struct call *list, *last;
	size_t count;
	int code;
	enum rc rc;

	snprintf(path, sizeof path, "%s/%s", p->path, era);
	list = call_list(n->session, path);
	rc = call_await(list, until, &code, f);
	names = call_names(list, &count);
	for (size_t i = 0; rc == RC_OK && i < count && i < PRUNED; i++) {
		snprintf(child, sizeof child, "%s/%s", path, names[i]);
		call_drop(call_delete(n->session, child, -1));
	}
	call_drop(list);
	if (rc != RC_OK)
		return rc;
	last = call_delete(n->session, path, -1);
	rc = call_finish(last, until, &code, f);
	return rc == RC_DENIED || rc == RC_PROTOCOL ? RC_OK : rc; /* it has others yet */
}

static bool
is_past_era(const char *name, long long era)
{
	char *end;
	long long number = strtoll(name, &end, 10);

	return *name >= '0' && *name <= '9' && !*end && number < era - 1;
}

/* The directories and nodes that stay. */
static enum rc
make_all(const struct jobs *p, const struct node *n, long long era, instant until,
    struct fault *f)
{
	static const char *const names[] = {"last", "good"};
	char path[JOBS_BYTES];
	enum rc rc = RC_OK;

	for (size_t i = 0; i < 2 && rc == RC_OK; i++) {
		snprintf(path, sizeof path, "%s/%s", p->path, names[i]);
		rc = lockdir_make_path(
		    n->dir, n->session, path, ZOO_PERSISTENT, until, f);
	}
	snprintf(path, sizeof path, "%s/%lld", p->path, era);
	return rc == RC_OK
	    ? lockdir_make_path(n->dir, n->session, path, ZOO_PERSISTENT, until, f)
	    : rc;
}

/*
 * Makes what is missing now, while nothing has been run: who is not allowed to hears of
 * it in time.
 */
static enum rc
tidy(const struct jobs *p, const struct node *n, struct call *list, long long era,
    instant until, struct fault *f)
{
	const char *const *names;
	char now[32];
	size_t count, found = 0;
	int code;
	enum rc rc = call_await(list, until, &code, f);

	if (rc != RC_OK)
		return rc;
	names = call_names(list, &count);
	snprintf(now, sizeof now, "%lld", era);
	for (size_t i = 0; i < count && rc == RC_OK; i++) {
		found += strcmp(names[i], "last") == 0 || strcmp(names[i], "good") == 0 ||
		    strcmp(names[i], now) == 0;
		if (is_past_era(names[i], era))
			rc = prune_era(p, n, names[i], until, f);
	}
	return rc == RC_OK && found < 3 ? make_all(p, n, era, until, f) : rc;
}

/* ---- */

/* All that is asked goes out at once. */
enum rc
jobs_check(struct jobs *p, const struct node *n, instant until, struct fault *f)
{
	struct call *list, *good, *ids[LOOKS] = {NULL};
	int64_t now = node_server_now(n);
	long long era = era_of(now);
	char path[JOBS_BYTES];
	enum rc rc = RC_OK;

	for (int i = 0; p->claim->job.once && i < LOOKS; i++) {
		id_path(p, path, era + 1 - i);
		ids[i] = call_get(n->session, path);
	}
	snprintf(path, sizeof path, "%s/good", p->path);
	good = call_get(n->session, path);
	list = call_list(n->session, p->path);
	for (int i = 0; p->claim->job.once && i < LOOKS && rc == RC_OK; i++)
		rc = judge_id(p, n, ids[i], until, f);
	if (rc == RC_OK)
		rc = judge_good(p, good, now, until, f);
	if (rc == RC_OK)
		rc = tidy(p, n, list, era, until, f);
	for (int i = 0; i < LOOKS; i++)
		call_drop(ids[i]);
	call_drop(good);
	call_drop(list);
	p->began = rc == RC_OK ? now : -1;
	return rc;
}

static void
print_run(const struct jobs *p, const struct node *n, int status, char *out, size_t size)
{
	json_t *record = json_loads(n->record, JSON_REJECT_DUPLICATES, NULL);
	json_t *root = json_pack("{s:s?, s:I, s:i, s:I, s:o?}", "id", p->claim->job.once,
	    "began", (json_int_t)(p->began / NS_PER_MS), "status", status, "token",
	    (json_int_t)n->token, "record", record);
	char *text = root ? json_dumps(root, JSON_COMPACT) : NULL;

	snprintf(out, size, "%s", text && strlen(text) < size ? text : "{}");
	free(text);
	json_decref(root);
}

void
jobs_remember(struct jobs *p, const struct node *n, int status, struct memory *m)
{
	m->n = 0;
	if (p->began < 0)
		return;
	print_run(p, n, status, m->data, sizeof m->data);
	snprintf(m->last, sizeof m->last, "%s/last", p->path);
	m->changes[m->n++] = (struct change){CHANGE_SET, m->last, m->data, .version = -1};
	if (status != 0)
		return;
	snprintf(m->good, sizeof m->good, "%s/good", p->path);
	m->changes[m->n++] = (struct change){CHANGE_SET, m->good, m->data, .version = -1};
	if (!p->claim->job.once)
		return;
	id_path(p, m->id, era_of(node_server_now(n)));
	m->changes[m->n++] = (struct change){p->exists ? CHANGE_SET : CHANGE_CREATE,
	    m->id, m->data, .mode = ZOO_PERSISTENT, .version = -1};
}

enum rc
jobs_prepare(struct jobs *p, const struct node *n, instant until, struct fault *f)
{
	long long era = era_of(node_server_now(n));
	char path[JOBS_BYTES];
	struct call *c;
	int code = ZNONODE;
	enum rc rc = make_all(p, n, era, until, f);

	if (rc != RC_OK || !p->claim->job.once)
		return rc;
	id_path(p, path, era);
	c = call_exists(n->session, path);
	rc = call_await(c, until, &code, f);
	p->exists = rc == RC_OK && code == ZOK;
	call_drop(c);
	return rc;
}
