/*
 * jobs.c - reads and writes what the jobs of a lock have done (struct job).
 *
 *	<above>/dlock-jobs/<lock>/last		the last run that was remembered
 *	<above>/dlock-jobs/<lock>/good		the last one that ended with 0
 *	<above>/dlock-jobs/<lock>/<era>/<ID>	one with an ID that ended with 0
 *
 *  1. It is no part of the lock's own directory <above>/<lock>, whose children Curator's
 *     users count.  The nodes are persistent.
 *  2. A release writes it in the transaction that deletes our node, so that it is there
 *     when the next one's turn comes, and only if the lock was still ours.
 *  3. Begin is the server's time at the grant, as told with our node; the end is the
 *     mtime of what was written.  Nobody can forge that one, so a begin after it is none.
 *  4. An era is 400 days of the server's time, the one in which a run has ended.  Two are
 *     looked at, and the one to come, if the clock goes back; older ones are removed, a
 *     few names at a time, by whoever looks.
 *  5. To forget a run empties `last` and `good`, which releases write, and deletes the ID's.
 *  6. What others have written there, and is no record, is as if nothing were there; but an
 *     ID's node says that it was run, whatever it holds.
 */
#include "zk.h"

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

struct path
jobs_path(const struct lockdir *d, const char *name)
{
	const char *lock = strrchr(d->path, '/');

	return path_of("%.*s/" JOBS "%s%s%s", (int)(lock - d->path), d->path, lock,
	    *name ? "/" : "", name);
}

static struct path
era_path(const struct zk *z, long long era)
{
	char number[32];

	snprintf(number, sizeof number, "%lld", era);
	return jobs_path(&z->dir, number);
}

static struct path
id_path(const struct zk *z, long long era)
{
	char id[ENCODED_BYTES];

	encode_key(id, sizeof id, z->claim->job.once);
	return path_of("%s/%s", era_path(z, era).at, id);
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
judge_run(struct zk *z, struct call *c, bool good, instant until, struct fault *f)
{
	struct past_run run;
	char who[sizeof run.who];
	const struct job *job = &z->claim->job;
	int64_t now = node_server_now(&z->node), age;
	enum rc rc = call_await(c, until, f);

	if (rc != RC_OK || c->code != ZOK)
		return rc;
	jobs_read(&run, c);
	jobs_forget(&run);
	session_quote(z->dir.session, who, sizeof who, run.who);
	if (!good)
		return refuse_done(
		    f, job, run.began < 0 ? -1 : run.began / NS_PER_MS, who);
	age = now > run.began ? now - run.began : 0;
	return run.began >= 0 && age < job->cooldown ? refuse_recent(f, job, age) : RC_OK;
}

/* ---- old eras ---- */

/* Removes a few of its names, or it, when it has none any more.  It was worth trying. */
static enum rc
prune_era(struct zk *z, const char *era, instant until, struct fault *f)
{
	struct session *s = z->dir.session;
	struct path path = jobs_path(&z->dir, era);
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

bool
jobs_is_era(const char *name)
{
	return *name && !name[strspn(name, "0123456789")];
}

static bool
is_past_era(const char *name, long long era)
{
	return jobs_is_era(name) && strtoll(name, NULL, 10) < era - 1;
}

/* The directories and nodes that stay. */
static enum rc
make_all(struct zk *z, long long era, instant until, struct fault *f)
{
	const struct path all[] = {
	    jobs_path(&z->dir, "last"), jobs_path(&z->dir, "good"), era_path(z, era)};
	enum rc rc = RC_OK;

	for (size_t i = 0; i < 3 && rc == RC_OK; i++)
		rc = lockdir_make_path(&z->dir, all[i].at, ZOO_PERSISTENT, until, f);
	return rc;
}

/*
 * Makes what is missing now, while nothing has been run: who is not allowed to hears of
 * it in time.
 */
static enum rc
tidy(struct zk *z, struct call *list, long long era, instant until, struct fault *f)
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
			rc = prune_era(z, name, until, f);
	}
	return rc == RC_OK && found < 3 ? make_all(z, era, until, f) : rc;
}

/* ---- */

/* All that is asked goes out at once. */
enum rc
jobs_check(struct zk *z, instant until, struct fault *f)
{
	struct session *s = z->dir.session;
	struct call *list, *runs[LOOKS + 1];
	int ids = z->claim->job.once ? LOOKS : 0;
	int64_t now = node_server_now(&z->node);
	enum rc rc = period_name(
	    &z->claim->job, z->node.joined < 0 ? -1 : z->node.joined / 1000, z->where, f);

	if (rc != RC_OK)
		return rc;
	for (int i = 0; i < ids; i++)
		runs[i] = call_ask(s, ASK_GET, id_path(z, era_of(now) + 1 - i).at);
	runs[ids] = call_ask(s, ASK_GET, jobs_path(&z->dir, "good").at);
	list = call_ask(s, ASK_LIST, jobs_path(&z->dir, "").at);
	for (int i = 0; i <= ids; i++) {
		if (rc == RC_OK)
			rc = judge_run(z, runs[i], i == ids, until, f);
		call_drop(runs[i]);
	}
	if (rc == RC_OK)
		rc = tidy(z, list, era_of(now), until, f);
	call_drop(list);
	z->jobs.began = rc == RC_OK ? now : -1;
	return rc;
}

void
jobs_remember(struct zk *z, int status, struct memory *m)
{
	json_t *record, *root;
	char *text;

	m->n = 0;
	if (z->jobs.began < 0)
		return;
	record = json_loads(z->node.record, JSON_REJECT_DUPLICATES, NULL);
	root = json_pack("{s:s?, s:I, s:i, s:I, s:o?}", "id", z->claim->job.once, "began",
	    (json_int_t)(z->jobs.began / NS_PER_MS), "status", status, "token",
	    (json_int_t)z->node.token, "record", record);
	text = root ? json_dumps(root, JSON_COMPACT) : NULL;
	snprintf(m->data, sizeof m->data, "%s",
	    text && strlen(text) < sizeof m->data ? text : "{}");
	free(text);
	json_decref(root);
	m->last = jobs_path(&z->dir, "last");
	m->good = jobs_path(&z->dir, "good");
	m->changes[m->n++] = (struct change){
	    CHANGE_SET, m->last.at, m->data, .version = -1};
	if (status != 0)
		return;
	m->changes[m->n++] = (struct change){
	    CHANGE_SET, m->good.at, m->data, .version = -1};
	if (!z->claim->job.once)
		return;
	m->id = id_path(z, era_of(node_server_now(&z->node)));
	m->changes[m->n++] = (struct change){z->jobs.exists ? CHANGE_SET : CHANGE_CREATE,
	    m->id.at, m->data, .mode = ZOO_PERSISTENT, .version = -1};
}

enum rc
jobs_prepare(struct zk *z, instant until, struct fault *f)
{
	long long era = era_of(node_server_now(&z->node));
	int code;
	enum rc rc = make_all(z, era, until, f);

	if (rc != RC_OK || !z->claim->job.once)
		return rc;
	rc = call_finish(
	    call_ask(z->dir.session, ASK_EXISTS, id_path(z, era).at), until, &code, f);
	z->jobs.exists = rc == RC_OK && code == ZOK;
	return rc;
}

/* ---- forgotten ---- */

static bool
is_run_of(const struct call *read, const char *once)
{
	struct past_run run = {.id = NULL};
	bool is = read->code == ZOK && jobs_read(&run, read) &&
	    (!once || (run.id && strcmp(run.id, once) == 0));

	jobs_forget(&run);
	return is;
}

/* A call that changes something; its code. */
static enum rc
ask_change(struct steering *how, struct call *c, int *code, struct fault *f)
{
	enum rc rc = call_finish(c, how->until, code, f);

	how->asked = how->asked || rc == RC_AGAIN || rc == RC_LOST;
	return rc;
}

/* What is remembered: the last runs, and the eras of IDs. */
struct memories {
	struct call *good, *last, *eras;
};

static void
drop_memories(struct memories *m)
{
	call_drop(m->good);
	call_drop(m->last);
	call_drop(m->eras);
}

static enum rc
read_memories(struct steering *how, struct memories *m, struct fault *f)
{
	struct session *s = how->dir->session;
	enum rc rc;

	m->good = call_ask(s, ASK_GET, jobs_path(how->dir, "good").at);
	m->last = call_ask(s, ASK_GET, jobs_path(how->dir, "last").at);
	m->eras = call_ask(s, ASK_LIST, jobs_path(how->dir, "").at);
	rc = call_await(m->good, how->until, f);
	if (rc == RC_OK)
		rc = call_await(m->last, how->until, f);
	return rc == RC_OK ? call_await(m->eras, how->until, f) : rc;
}

enum { ASKED_AT_ONCE = 32 };

/* Of the IDs from `from` on, a few that were written before that transaction. */
static enum rc
delete_ids(struct steering *how, const char *era, const struct call *list, size_t from,
    int64_t before, bool *found, struct fault *f)
{
	struct session *s = how->dir->session;
	struct call *asked[ASKED_AT_ONCE];
	struct path ids[ASKED_AT_ONCE];
	enum rc rc = RC_OK;
	size_t n = 0;
	int code;

	for (; n < ASKED_AT_ONCE && from + n < list->nnames; n++) {
		ids[n] = path_of(
		    "%s/%s", jobs_path(how->dir, era).at, list->names[from + n]);
		asked[n] = call_ask(s, ASK_EXISTS, ids[n].at);
	}
	for (size_t i = 0; i < n; i++) {
		if (rc == RC_OK)
			rc = call_await(asked[i], how->until, f);
		if (rc == RC_OK && asked[i]->code == ZOK &&
		    asked[i]->stat.mzxid < before) {
			rc = ask_change(how,
			    call_delete(s, ids[i].at, asked[i]->stat.version), &code, f);
			*found |= rc == RC_OK && code == ZOK;
		}
		call_drop(asked[i]);
	}
	return rc;
}

static enum rc
delete_of_era(
    struct steering *how, const char *era, int64_t before, bool *found, struct fault *f)
{
	struct call *list = call_ask(
	    how->dir->session, ASK_LIST, jobs_path(how->dir, era).at);
	enum rc rc = call_await(list, how->until, f);

	for (size_t i = 0; rc == RC_OK && i < list->nnames; i += ASKED_AT_ONCE)
		rc = delete_ids(how, era, list, i, before, found, f);
	call_drop(list);
	return rc;
}

/*
 * Another run that has ended meanwhile stays, as its ID does: *written is the transaction that
 * has emptied it, and releases write `good` and their ID in one.  *old: this one was written
 * after it was read.
 */
static enum rc
empty_run(struct steering *how, const char *name, const struct call *read,
    int64_t *written, bool *old, struct fault *f)
{
	struct call *set = call_set(
	    how->dir->session, jobs_path(how->dir, name).at, "{}", read->stat.version);
	enum rc rc = call_await(set, how->until, f);

	how->asked = how->asked || rc == RC_AGAIN || rc == RC_LOST;
	*old = rc == RC_OK && set->code != ZOK;
	*written = rc == RC_OK && set->code == ZOK ? set->stat.mzxid : 0;
	call_drop(set);
	return rc;
}

/* *old: a run has ended well since they were read. */
static enum rc
forget_all(struct steering *how, const struct memories *m, bool *found, bool *old,
    struct fault *f)
{
	int64_t before = INT64_MAX, ignored;
	bool replaced;
	enum rc rc = RC_OK;

	*old = false;
	if (m->good->code == ZOK)
		rc = empty_run(how, "good", m->good, &before, old, f);
	if (rc != RC_OK || *old)
		return rc;
	*found |= is_run_of(m->good, NULL) || is_run_of(m->last, NULL);
	for (size_t i = 0; rc == RC_OK && i < m->eras->nnames; i++)
		if (jobs_is_era(m->eras->names[i]))
			rc = delete_of_era(how, m->eras->names[i], before, found, f);
	return rc == RC_OK && is_run_of(m->last, NULL)
	    ? empty_run(how, "last", m->last, &ignored, &replaced, f)
	    : rc;
}

/* A change for one ID: what empties a last run of it, or sees that it is another's yet. */
static bool
add_run(const struct steering *how, const struct path *path, const struct call *read,
    struct change *all, size_t *n)
{
	bool its = is_run_of(read, how->once);

	if (read->code == ZOK)
		all[(*n)++] = (struct change){its ? CHANGE_SET : CHANGE_CHECK, path->at,
		    "{}", .version = read->stat.version};
	return its;
}

/*
 * In one transaction, so that no run of the ID that ends meanwhile leaves a part.  *old: it is
 * to be tried again, as another run has ended, or an ID is in very many eras.
 */
static enum rc
forget_id(struct steering *how, const struct memories *m, bool *found, bool *old,
    struct fault *f)
{
	struct change all[CHANGES_MAX];
	struct path paths[CHANGES_MAX] = {
	    jobs_path(how->dir, "good"), jobs_path(how->dir, "last")};
	char id[ENCODED_BYTES];
	size_t n = 0, npaths = 2;
	bool some = add_run(how, &paths[0], m->good, all, &n);
	enum rc rc = RC_OK;
	int code = ZOK;

	some = add_run(how, &paths[1], m->last, all, &n) || some;
	encode_key(id, sizeof id, how->once);
	for (size_t i = 0; rc == RC_OK && i < m->eras->nnames && npaths < CHANGES_MAX;
	     i++) {
		struct path *path = &paths[npaths];

		if (!jobs_is_era(m->eras->names[i]))
			continue;
		*path = path_of("%s/%s", jobs_path(how->dir, m->eras->names[i]).at, id);
		rc = call_finish(call_ask(how->dir->session, ASK_EXISTS, path->at),
		    how->until, &code, f);
		if (rc != RC_OK || code != ZOK)
			continue;
		all[n++] = (struct change){CHANGE_DELETE, path->at, .version = -1};
		npaths++;
		some = true;
	}
	*old = false;
	if (rc != RC_OK || !some)
		return rc;
	rc = ask_change(how, call_multi(how->dir->session, all, n, false), &code, f);
	*old = rc == RC_OK && (code != ZOK || npaths == CHANGES_MAX);
	*found |= rc == RC_OK && code == ZOK;
	return rc;
}

enum rc
steering_forget(struct steering *how, struct fault *f)
{
	struct memories m;
	bool found = false, old = false;
	enum rc rc = lockdir_sync(how->dir, how->until, f);

	if (rc != RC_OK)
		return rc;
	do {
		rc = read_memories(how, &m, f);
		if (rc == RC_OK)
			rc = (how->once ? forget_id : forget_all)(
			    how, &m, &found, &old, f);
		drop_memories(&m);
	} while (rc == RC_OK && old && instant_now() < how->until);
	if (rc == RC_OK && old)
		return fault_set(
		    f, RC_AGAIN, "%s: runs end all the time", how->dir->where);
	if (rc == RC_DENIED)
		return fault_set(f, RC_DENIED,
		    "%s: no permission to change %s: its ACL is for whoever made it (use the same user: -O auth-file)",
		    how->dir->where, jobs_path(how->dir, "").at);
	return rc == RC_OK && !found && !how->again
	    ? fault_set(f, RC_LOST, "%s: no such run is remembered", how->dir->where)
	    : rc;
}
