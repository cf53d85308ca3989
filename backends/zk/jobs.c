/*
 * jobs.c - reads and writes what the jobs of a lock have done (struct job).
 *
 *	<above>/dlock-jobs/<lock>/last		the last run that was remembered
 *	<above>/dlock-jobs/<lock>/good		the last one that ended with 0
 *	<above>/dlock-jobs/<lock>/<era>/<ID>	one with an ID that ended with 0
 *	<above>/dlock-jobs/<lock>/final/<era>/<ID>	one with --no-retry that ended otherwise
 *	<above>/dlock-jobs/<lock>/shown		the last one that is no job's (--remember)
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
 *     Where all are forgotten, that is at the moment when those two are emptied: of the IDs,
 *     those that were written by then are deleted after that.
 *  6. What others have written there, and is no record, is as if nothing were there; but an
 *     ID's node says that it was run, whatever it holds.
 *  7. To a dlock that does not know them, `final` and `shown` are names of others': it does not
 *     look there, and does not forget them.
 */
#include "zk.h"

#include "backends/common/job.h"
#include "backends/common/refuse.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ERA (400LL * 86400 * NS_PER_S)

enum {
	LOOKS = 3 /* eras */,
	PRUNED = 200 /* names at a time */,
	DELETES = 8 /* at once */
};

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

/* Of those that ended with 0, or (`final`) of the others that count. */
static struct path
era_path(const struct zk *z, long long era, bool final)
{
	char number[64];

	snprintf(number, sizeof number, "%s%lld", final ? FINAL "/" : "", era);
	return jobs_path(&z->dir, number);
}

static struct path
id_path(const struct zk *z, long long era, bool final)
{
	char id[ENCODED_BYTES];

	encode_key(id, sizeof id, z->claim->job.once);
	return path_of("%s/%s", era_path(z, era, final).at, id);
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

enum judged { JUDGED_ID, JUDGED_FINAL, JUDGED_GOOD };

/* A run of our ID has been, or one that has ended well may have been too recent. */
static enum rc
judge_run(struct zk *z, struct call *c, enum judged what, instant until, struct fault *f)
{
	struct past_run run;
	const struct job *job = &z->claim->job;
	int64_t age, now = node_server_now(&z->node);
	enum rc rc = call_await(c, until, f);
	bool is;

	if (rc != RC_OK || c->code != ZOK)
		return rc;
	is = jobs_read(&run, c);
	jobs_forget(&run);
	if (what == JUDGED_ID || (what == JUDGED_FINAL && is))
		return refuse_done(z->base.host, f, job,
		    what == JUDGED_ID ? 0 : run.status,
		    run.began < 0 ? -1 : run.began / NS_PER_MS, run.who);
	if (what == JUDGED_FINAL)
		return RC_OK;
	age = now - run.began;
	return run.began >= 0 && job_is_recent(job, age / 1000)
	    ? refuse_recent(f, job, age)
	    : RC_OK;
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

static bool
is_era(const char *name)
{
	return *name && !name[strspn(name, "0123456789")];
}

static bool
is_past_era(const char *name, long long era)
{
	return is_era(name) && strtoll(name, NULL, 10) < era - 1;
}

/* The directories and nodes that stay. */
static enum rc
make_all(struct zk *z, long long era, instant until, struct fault *f)
{
	const struct path all[] = {jobs_path(&z->dir, "last"), jobs_path(&z->dir, "good"),
	    era_path(z, era, false), era_path(z, era, true)};
	size_t n = z->claim->job.no_retry ? 4 : 3;
	enum rc rc = RC_OK;

	for (size_t i = 0; i < n && rc == RC_OK; i++)
		rc = lockdir_make_path(&z->dir, all[i].at, ZOO_PERSISTENT, until, f);
	return rc;
}

static enum rc
make_shown(struct zk *z, instant until, struct fault *f)
{
	return lockdir_make_path(
	    &z->dir, jobs_path(&z->dir, SHOWN).at, ZOO_PERSISTENT, until, f);
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

/* The same of those that ended otherwise. */
static enum rc
tidy_final(struct zk *z, struct call *list, long long era, instant until, struct fault *f)
{
	enum rc rc = call_await(list, until, f);
	bool found = false;
	char name[64];

	for (size_t i = 0; rc == RC_OK && i < list->nnames; i++) {
		if (!is_era(list->names[i]))
			continue;
		found |= strtoll(list->names[i], NULL, 10) == era;
		snprintf(name, sizeof name, FINAL "/%.40s", list->names[i]);
		if (is_past_era(list->names[i], era))
			rc = prune_era(z, name, until, f);
	}
	return rc == RC_OK && !found ? make_all(z, era, until, f) : rc;
}

/* ---- */

/* All that is asked goes out at once. */
enum rc
jobs_check(struct zk *z, instant until, struct fault *f)
{
	struct session *s = z->dir.session;
	struct call *list, *finals = NULL, *runs[2 * LOOKS + 1];
	int ids = z->claim->job.once ? LOOKS : 0,
	    all = z->claim->job.no_retry ? 2 * ids : ids;
	int64_t now = node_server_now(&z->node);
	enum rc rc = job_name_period(
	    &z->claim->job, z->node.joined < 0 ? -1 : z->node.joined / 1000, z->where, f);

	if (rc != RC_OK)
		return rc;
	for (int i = 0; i < all; i++)
		runs[i] = call_ask(
		    s, ASK_GET, id_path(z, era_of(now) + 1 - i % LOOKS, i >= LOOKS).at);
	runs[all] = call_ask(s, ASK_GET, jobs_path(&z->dir, "good").at);
	list = call_ask(s, ASK_LIST, jobs_path(&z->dir, "").at);
	if (z->claim->job.no_retry)
		finals = call_ask(s, ASK_LIST, jobs_path(&z->dir, FINAL).at);
	for (int i = 0; i <= all; i++) {
		if (rc == RC_OK)
			rc = judge_run(z, runs[i],
			    i == all        ? JUDGED_GOOD
				: i < LOOKS ? JUDGED_ID
					    : JUDGED_FINAL,
			    until, f);
		call_drop(runs[i]);
	}
	if (rc == RC_OK)
		rc = tidy(z, list, era_of(now), until, f);
	if (rc == RC_OK && finals)
		rc = tidy_final(z, finals, era_of(now), until, f);
	call_drop(list);
	call_drop(finals);
	z->jobs.began = rc == RC_OK ? now : -1;
	return rc;
}

enum rc
jobs_begin_shown(struct zk *z, instant until, struct fault *f)
{
	struct call *c;
	enum rc rc = RC_OK;

	z->jobs.began = node_server_now(&z->node);
	if (z->claim->job.remember != REMEMBER_SURELY)
		return RC_OK;
	c = call_ask(z->dir.session, ASK_EXISTS, jobs_path(&z->dir, SHOWN).at);
	rc = call_await(c, until, f);
	if (rc == RC_OK && c->code != ZOK)
		rc = make_shown(z, until, f);
	call_drop(c);
	return rc;
}

/* Where the run of an ID is written, if it counts. */
static bool
is_final(const struct zk *z, struct outcome o)
{
	return o.status != 0 && o.ended && z->claim->job.no_retry;
}

void
jobs_remember(struct zk *z, struct outcome o, struct memory *m)
{
	const struct job *job = &z->claim->job;
	json_t *record, *root;
	char *text;

	m->n = 0;
	if (z->jobs.began < 0)
		return;
	record = json_loads(z->node.record, JSON_REJECT_DUPLICATES, NULL);
	root = json_pack("{s:s?, s:I, s:i, s:I, s:o?}", "id", job->once, "began",
	    (json_int_t)(z->jobs.began / NS_PER_MS), "status", o.status, "token",
	    (json_int_t)z->node.token, "record", record);
	text = root ? json_dumps(root, JSON_COMPACT) : NULL;
	snprintf(m->data, sizeof m->data, "%s",
	    text && strlen(text) < sizeof m->data ? text : "{}");
	free(text);
	json_decref(root);
	m->last = jobs_path(&z->dir, job_is_shown(job) ? SHOWN : "last");
	m->good = jobs_path(&z->dir, "good");
	m->changes[m->n++] = (struct change){
	    CHANGE_SET, m->last.at, m->data, .version = -1};
	if (job_is_shown(job) || (o.status != 0 && !is_final(z, o)))
		return;
	if (o.status == 0)
		m->changes[m->n++] = (struct change){
		    CHANGE_SET, m->good.at, m->data, .version = -1};
	if (!job->once)
		return;
	m->id = id_path(z, era_of(node_server_now(&z->node)), is_final(z, o));
	m->changes[m->n++] = (struct change){z->jobs.exists ? CHANGE_SET : CHANGE_CREATE,
	    m->id.at, m->data, .mode = ZOO_PERSISTENT, .version = -1};
}

enum rc
jobs_prepare(struct zk *z, struct outcome o, instant until, struct fault *f)
{
	long long era = era_of(node_server_now(&z->node));
	bool shown = job_is_shown(&z->claim->job);
	int code;
	enum rc rc = shown ? make_shown(z, until, f) : make_all(z, era, until, f);

	if (rc != RC_OK || shown || !z->claim->job.once)
		return rc;
	rc = call_finish(
	    call_ask(z->dir.session, ASK_EXISTS, id_path(z, era, is_final(z, o)).at),
	    until, &code, f);
	z->jobs.exists = rc == RC_OK && code == ZOK;
	return rc;
}

/* ---- all IDs ---- */

void
ids_begin(
    struct ids *i, const struct lockdir *d, bool final, enum ask what, instant until)
{
	*i = (struct ids){.dir = *d, .what = what, .until = until};
	snprintf(i->dir.path, sizeof i->dir.path, "%.*s", DIR_BYTES - 1,
	    jobs_path(d, final ? FINAL : "").at);
	i->eras = lockdir_ask(&i->dir, ASK_LIST, "", NULL);
}

enum rc
ids_next(struct ids *i, struct fault *f)
{
	enum rc rc = call_await(i->eras, i->until, f);

	call_drop(i->node);
	i->node = NULL;
	while (rc == RC_OK && !(i->name = reader_next(&i->reader, &i->dir, &i->node))) {
		if (i->neras == i->eras->nnames)
			return RC_DONE;
		i->era = path_of("/%s", i->eras->names[i->neras++]);
		if (!is_era(i->era.at + 1))
			continue;
		call_drop(i->list);
		i->list = lockdir_ask(&i->dir, ASK_LIST, i->era.at, NULL);
		rc = call_await(i->list, i->until, f);
		if (rc == RC_OK)
			i->reader = (struct reader){i->what, .part = i->era.at,
			    .names = i->list->names, .n = i->list->nnames};
	}
	return rc == RC_OK ? call_await(i->node, i->until, f) : rc;
}

void
ids_end(struct ids *i)
{
	reader_end(&i->reader);
	call_drop(i->node);
	call_drop(i->list);
	call_drop(i->eras);
}

/* ---- forgotten ---- */

/* Is that a run, and of the ID that is to be forgotten, if it is but one? */
static bool
is_meant(const struct steering *how, const struct call *read)
{
	struct past_run run = {.id = NULL};
	bool is = read->code == ZOK && jobs_read(&run, read) &&
	    (!how->once || (run.id && strcmp(run.id, how->once) == 0));

	jobs_forget(&run);
	return is;
}

/* What one transaction does: it empties the last runs, and deletes one ID. */
struct forgetting {
	struct path paths[CHANGES_MAX];
	struct change all[CHANGES_MAX];
	size_t n;
	bool some; /* there is something to be forgotten in it */
	bool any;  /* there are jobs of that lock at all */
};

/* One that is not meant must be the same yet.  Where all are, a write tells the time. */
static void
add_last(const struct steering *how, struct forgetting *t, const char *name,
    const struct call *read)
{
	struct path *path = &t->paths[t->n];
	bool meant = is_meant(how, read);

	*path = jobs_path(how->dir, name);
	if (read->code == ZOK)
		t->all[t->n++] = (struct change){
		    meant || !how->once ? CHANGE_SET : CHANGE_CHECK, path->at, "{}",
		    .version = read->stat.version};
	t->some |= meant;
}

/* The node of that ID in each era below there, as far as there is room. */
static enum rc
add_id(const struct steering *how, struct forgetting *t, const char *below,
    const struct call *eras, struct fault *f)
{
	char id[ENCODED_BYTES], era[64];
	enum rc rc = RC_OK;

	encode_key(id, sizeof id, how->once);
	for (size_t i = 0; rc == RC_OK && i < eras->nnames && t->n < CHANGES_MAX; i++) {
		struct path *path = &t->paths[t->n];
		struct call *c;

		if (!is_era(eras->names[i]))
			continue;
		snprintf(era, sizeof era, "%s%s%.40s", below, *below ? "/" : "",
		    eras->names[i]);
		*path = path_of("%s/%s", jobs_path(how->dir, era).at, id);
		c = call_ask(how->dir->session, ASK_EXISTS, path->at);
		rc = call_await(c, how->until, f);
		if (rc == RC_OK && c->code == ZOK) {
			t->all[t->n++] = (struct change){
			    CHANGE_DELETE, path->at, .version = c->stat.version};
			t->some = true;
		}
		call_drop(c);
	}
	return rc;
}

/* Reads what there is, as it is at the leader now, and makes a transaction of it. */
static enum rc
read_runs(const struct steering *how, struct forgetting *t, struct fault *f)
{
	static const char *const names[] = {"good", "last", "", FINAL, SHOWN};
	struct session *s = how->dir->session;
	struct call *sync = lockdir_ask(how->dir, ASK_SYNC, "", NULL), *reads[5];
	enum rc rc;

	for (int i = 0; i < 5; i++)
		reads[i] = call_ask(s, i == 2 || i == 3 ? ASK_LIST : ASK_GET,
		    jobs_path(how->dir, names[i]).at);
	rc = call_finish(sync, how->until, NULL, f);
	for (int i = 0; i < 5 && rc == RC_OK; i++) {
		rc = call_await(reads[i], how->until, f);
		if (rc == RC_OK && (i < 2 || (i == 4 && !how->once)))
			add_last(how, t, names[i], reads[i]);
	}
	t->any = rc == RC_OK && reads[2]->code == ZOK;
	for (int i = 2; i < 4 && rc == RC_OK && how->once; i++)
		rc = add_id(how, t, names[i], reads[i], f);
	for (int i = 0; i < 5; i++)
		call_drop(reads[i]);
	return rc;
}

/*
 * In one transaction, so that a run that ends meanwhile is forgotten whole or stays whole.
 * *done: all that was there at *moment, a zxid, is forgotten, but for the IDs where all are to be.
 * Otherwise another run has ended, or an ID is in very many eras: to be called again; or there was
 * no node yet whose write tells the time.
 */
static enum rc
forget_last(
    struct steering *how, bool *found, bool *done, int64_t *moment, struct fault *f)
{
	struct forgetting t = {.n = 0};
	struct call *c;
	enum rc rc = read_runs(how, &t, f);

	*done = how->once || !t.any || t.n > 0;
	*moment = 0;
	if (rc == RC_OK && !*done)
		return lockdir_make_path(how->dir, jobs_path(how->dir, "last").at,
		    ZOO_PERSISTENT, how->until, f);
	if (rc != RC_OK || t.n == 0 || (how->once && !t.some))
		return rc;
	c = call_multi(how->dir->session, t.all, t.n, false);
	rc = steering_changed(how, c, f);
	*done = rc == RC_OK && c->code == ZOK && t.n < CHANGES_MAX;
	if (rc == RC_OK && c->code == ZOK) {
		*found |= t.some;
		*moment = c->stat.mzxid;
	}
	call_drop(c);
	return rc;
}

/* Awaits and drops one of several deletes; NULL: none was asked for. */
static enum rc
id_deleted(struct steering *how, struct call *c, bool *found, struct fault *f)
{
	enum rc rc = c ? steering_changed(how, c, f) : RC_OK;

	*found |= c && rc == RC_OK && c->code == ZOK;
	call_drop(c);
	return rc;
}

/* What was written after that moment is of a run that has ended since: it stays, as that does. */
static enum rc
forget_ids(struct steering *how, bool final, int64_t moment, bool *found, struct fault *f)
{
	struct call *asked[DELETES] = {NULL};
	struct fault unused;
	size_t n = 0;
	struct ids i;
	enum rc rc;

	ids_begin(&i, how->dir, final, ASK_EXISTS, how->until);
	while ((rc = ids_next(&i, f)) == RC_OK) {
		struct call **c = &asked[n % DELETES];

		/* NOLINTNEXTLINE(clang-analyzer-core.*): call_await() is not RC_OK of NULL */
		if (i.node->code != ZOK || i.node->stat.mzxid > moment)
			continue;
		rc = id_deleted(how, *c, found, f);
		*c = call_delete(how->dir->session,
		    lockdir_below(&i.dir, i.era.at, i.name).at, i.node->stat.version);
		if (rc == RC_OK && !*c)
			rc = fault_set(f, RC_SYSTEM, "out of memory");
		if (rc != RC_OK)
			break;
		n++;
	}
	ids_end(&i);
	rc = rc == RC_DONE ? RC_OK : rc;
	for (size_t k = 0; k < DELETES; k++) {
		enum rc last = id_deleted(
		    how, asked[k], found, rc == RC_OK ? f : &unused);

		rc = rc == RC_OK ? last : rc;
	}
	return rc;
}

enum rc
steering_forget(struct steering *how, struct fault *f)
{
	bool found = false, done = false;
	int64_t moment;
	enum rc rc = RC_OK;

	while (rc == RC_OK && !done && instant_now() < how->until)
		rc = forget_last(how, &found, &done, &moment, f);
	if (rc == RC_OK && !done)
		return fault_set(
		    f, RC_AGAIN, "%s: runs end all the time", how->dir->where);
	for (int final = 0; final < 2 && rc == RC_OK && !how->once; final++)
		rc = forget_ids(how, final, moment, &found, f);
	/* whoever asks again may find nothing any more */
	how->asked = how->asked || found;
	if (rc == RC_DENIED)
		return steering_denied(how, jobs_path(how->dir, "").at, f);
	return rc == RC_OK && !found && !how->again
	    ? fault_set(f, RC_LOST, "%s: no such run is remembered", how->dir->where)
	    : rc;
}
