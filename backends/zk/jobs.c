/* jobs.c - reads and writes what jobs have done. */
#include "jobs.h"

#include "backends/common/text.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ERA (400LL * 86400 * NS_PER_S)

enum { LOOKS = 3 /* eras */, PRUNED = 200 /* names at a time */ };

static long long
era_of(int64_t now)
{
	return now < 0 ? 0 : now / ERA;
}

void
jobs_begin(struct jobs *p, const struct claim *claim, const struct lockdir *d)
{
	const char *name = strrchr(d->path, '/');

	*p = (struct jobs){.claim = claim, .began = -1};
	snprintf(p->path, sizeof p->path, "%.*s/" JOBS "%s", (int)(name - d->path),
	    d->path, name);
}

static struct path
id_path(const struct jobs *p, long long era)
{
	char id[ENCODED_BYTES];

	encode_key(id, sizeof id, p->claim->job.once);
	return path_of("%s/%lld/%s", p->path, era, id);
}

/* ---- read ---- */

bool
jobs_read(struct past_run *run, const struct call *c)
{
	json_t *root = json_loads(c->text, JSON_REJECT_DUPLICATES, NULL);
	json_t *record = json_object_get(root, "record"),
	       *status = json_object_get(root, "status");
	const char *id = json_string_value(json_object_get(root, "id")),
		   *who = json_string_value(json_object_get(record, "who"));

	*run = (struct past_run){
	    .began = stat_time(json_integer_value(json_object_get(root, "began"))),
	    .ended = stat_time(c->stat.mtime),
	    .token = (uint64_t)json_integer_value(json_object_get(root, "token")),
	    .status = json_is_integer(status) ? (int)json_integer_value(status) : -1,
	    .id = id ? strdup(id) : NULL,
	    .record = json_is_object(record) ? json_dumps(record, JSON_COMPACT) : NULL};
	if (run->began > run->ended)
		run->began = run->ended;
	snprintf(run->who, sizeof run->who, "%s", who ? who : "");
	json_decref(root);
	return run->status >= 0 && run->status <= 255;
}

void
jobs_forget(struct past_run *run)
{
	free(run->id);
	free(run->record);
}

/* A run of our ID has been, or one that has ended well may have been too recent. */
static enum rc
judge_run(const struct jobs *p, const struct node *n, struct call *c, bool good,
    instant until, struct fault *f)
{
	struct past_run run;
	char who[sizeof run.who];
	int64_t now = node_server_now(n), age;
	enum rc rc = call_await(c, until, f);

	if (rc != RC_OK || c->code != ZOK)
		return rc;
	jobs_read(&run, c);
	jobs_forget(&run);
	session_quote(n->dir->session, who, sizeof who, run.who);
	if (!good)
		return refuse_done(
		    f, &p->claim->job, run.began < 0 ? -1 : run.began / NS_PER_MS, who);
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
	struct session *s = n->dir->session;
	struct path path = path_of("%s/%s", p->path, era);
	struct call *list = call_ask(s, ASK_LIST, path.at);
	enum rc rc = call_await(list, until, f);

	for (size_t i = 0; rc == RC_OK && i < list->nnames && i < PRUNED; i++)
		call_drop(
		    call_delete(s, path_of("%s/%s", path.at, list->names[i]).at, -1));
	call_drop(list);
	if (rc != RC_OK)
		return rc;
	rc = call_finish(call_delete(s, path.at, -1), until, NULL, f);
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
	const struct path all[] = {path_of("%s/last", p->path),
	    path_of("%s/good", p->path), path_of("%s/%lld", p->path, era)};
	enum rc rc = RC_OK;

	for (size_t i = 0; i < 3 && rc == RC_OK; i++)
		rc = lockdir_make_path(n->dir, all[i].at, ZOO_PERSISTENT, until, f);
	return rc;
}

/*
 * Makes what is missing now, while nothing has been run: who is not allowed to hears of
 * it in time.
 */
static enum rc
tidy(const struct jobs *p, const struct node *n, struct call *list, long long era,
    instant until, struct fault *f)
{
	char now[32];
	size_t found = 0;
	enum rc rc = call_await(list, until, f);

	snprintf(now, sizeof now, "%lld", era);
	for (size_t i = 0; rc == RC_OK && i < list->nnames; i++) {
		const char *name = list->names[i];

		found += strcmp(name, "last") == 0 || strcmp(name, "good") == 0 ||
		    strcmp(name, now) == 0;
		if (is_past_era(name, era))
			rc = prune_era(p, n, name, until, f);
	}
	return rc == RC_OK && found < 3 ? make_all(p, n, era, until, f) : rc;
}

/* ---- */

/* All that is asked goes out at once. */
enum rc
jobs_check(struct jobs *p, const struct node *n, instant until, struct fault *f)
{
	struct session *s = n->dir->session;
	struct call *list, *runs[LOOKS + 1];
	int ids = p->claim->job.once ? LOOKS : 0;
	int64_t now = node_server_now(n);
	enum rc rc = RC_OK;

	for (int i = 0; i < ids; i++)
		runs[i] = call_ask(s, ASK_GET, id_path(p, era_of(now) + 1 - i).at);
	runs[ids] = call_ask(s, ASK_GET, path_of("%s/good", p->path).at);
	list = call_ask(s, ASK_LIST, p->path);
	for (int i = 0; i <= ids; i++) {
		if (rc == RC_OK)
			rc = judge_run(p, n, runs[i], i == ids, until, f);
		call_drop(runs[i]);
	}
	if (rc == RC_OK)
		rc = tidy(p, n, list, era_of(now), until, f);
	call_drop(list);
	p->began = rc == RC_OK ? now : -1;
	return rc;
}

void
jobs_remember(struct jobs *p, const struct node *n, int status, struct memory *m)
{
	json_t *record, *root;
	char *text;

	m->n = 0;
	if (p->began < 0)
		return;
	record = json_loads(n->record, JSON_REJECT_DUPLICATES, NULL);
	root = json_pack("{s:s?, s:I, s:i, s:I, s:o?}", "id", p->claim->job.once, "began",
	    (json_int_t)(p->began / NS_PER_MS), "status", status, "token",
	    (json_int_t)n->token, "record", record);
	text = root ? json_dumps(root, JSON_COMPACT) : NULL;
	snprintf(m->data, sizeof m->data, "%s",
	    text && strlen(text) < sizeof m->data ? text : "{}");
	free(text);
	json_decref(root);
	m->last = path_of("%s/last", p->path);
	m->good = path_of("%s/good", p->path);
	m->changes[m->n++] = (struct change){
	    CHANGE_SET, m->last.at, m->data, .version = -1};
	if (status != 0)
		return;
	m->changes[m->n++] = (struct change){
	    CHANGE_SET, m->good.at, m->data, .version = -1};
	if (!p->claim->job.once)
		return;
	m->id = id_path(p, era_of(node_server_now(n)));
	m->changes[m->n++] = (struct change){p->exists ? CHANGE_SET : CHANGE_CREATE,
	    m->id.at, m->data, .mode = ZOO_PERSISTENT, .version = -1};
}

enum rc
jobs_prepare(struct jobs *p, const struct node *n, instant until, struct fault *f)
{
	long long era = era_of(node_server_now(n));
	int code;
	enum rc rc = make_all(p, n, era, until, f);

	if (rc != RC_OK || !p->claim->job.once)
		return rc;
	rc = call_finish(
	    call_ask(n->dir->session, ASK_EXISTS, id_path(p, era).at), until, &code, f);
	p->exists = rc == RC_OK && code == ZOK;
	return rc;
}
