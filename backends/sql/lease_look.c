/*
 * lease_look.c - looks at the tables of mode=lease, and steers them.
 *
 *  1. A look is a page at a time: one statement that writes nothing, and reads on behind
 *     the last row of the page before.  It creates nothing, and takes a read-only server
 *     where there is no other.
 *  2. A grant is named by key and token.
 *  3. What is asked of a holder stands in its row, and dies with it; a look does without the
 *     asker where the schema is of a version that cannot tell it.  What was taken away by
 *     force is remembered for a day: for its holder, and for who has to ask twice.
 *  4. What is remembered comes in two lists, of keys and of IDs, each page by page.  A status
 *     does without the last success where the schema is of a version that cannot tell it.
 *  5. A freeze is a row among those who hold: a key that has none costs nobody anything.
 */
#include "lease.h"
#include "look.h"

#include <stdio.h>
#include <string.h>

enum { PAGE = 500 };

/* The columns of a page. */
enum listed {
	LISTED_KEY,
	LISTED_TURN,   /* 0 holds, 1 waits, 2 is a freeze: in this order they are told */
	LISTED_NUMBER, /* and those of one turn by this; unique */
	LISTED_KIND,   /* as sql.h has it */
	LISTED_LIMIT,  /* of a limit, else 0 */
	LISTED_TOKEN,
	LISTED_SLOT,
	LISTED_SINCE, /* this and the next: microseconds since 1970; NULL: none */
	LISTED_ENDS,
	LISTED_MOMENT, /* the server's clock */
	LISTED_IS_WANTED,
	LISTED_RECORD,
	LISTED_FIELDS
};

/* And of a job's last run. */
enum {
	RUN_ID,
	RUN_BEGAN,
	RUN_ENDED,
	RUN_STATUS,
	RUN_TOKEN,
	RUN_MOMENT,
	RUN_RECORD,
	RUN_FIELDS
};

/* And of those that are listed, which have the fields above behind the first two. */
enum {
	JOB_KEY,
	/* 0: the last run of a key; 1: its last success; 2: that of an ID; 3: of no job */
	JOB_TURN,
	JOB_RUN,
	JOB_FIELDS = JOB_RUN + RUN_FIELDS
};

enum { TURN_HOLDER, TURN_WAITER, TURN_FREEZE, TURNS };

/* ---- one row ---- */

/* Which kind of lock it is, and what goes with that.  False: none that makes sense. */
static bool
read_lock_of_entry(const struct row *r, struct entry *e)
{
	const char *word = row_words(r, LISTED_KIND);
	int64_t limit, token, slot;

	if (!word || !row_integer(r, LISTED_LIMIT, 0, LIMIT_MAX, &limit))
		return false;
	if (e->kind == ENTRY_FREEZE)
		return strcmp(word, KIND_WORD_FREEZE) == 0;
	if (!kind_of_word(word, &e->lock) || (e->lock == KIND_LIMIT) != (limit > 0))
		return false;
	e->limit = limit;
	if (e->kind == ENTRY_WAITER)
		return true;
	if (!row_integer(r, LISTED_TOKEN, 1, INT64_MAX, &token) ||
	    !kind_slot(r, LISTED_SLOT, limit, &slot))
		return false;
	e->token = token;
	e->slot = (int)slot;
	return row_boolean(r, LISTED_IS_WANTED, &e->revoked);
}

static struct entry
read_entry(const struct row *r, const struct sql_look *s, const char *damaged)
{
	static const enum entry_kind kinds[TURNS] = {
	    ENTRY_HOLDER, ENTRY_WAITER, ENTRY_FREEZE};
	struct entry e = {.kind = kinds[s->turn],
	    .key = s->key,
	    .slot = -1,
	    .record = row_words(r, LISTED_RECORD),
	    .since = row_time(r, LISTED_SINCE),
	    .until = row_time(r, LISTED_ENDS)};

	if (!read_lock_of_entry(r, &e))
		e = (struct entry){.kind = ENTRY_UNKNOWN,
		    .key = s->key,
		    .slot = -1,
		    .since = EPOCH_NONE,
		    .until = EPOCH_NONE,
		    .what = damaged};
	return e;
}

/* ---- looking ---- */

struct lease_look {
	struct sql_look seen;
	struct sql *db;
	bool no_asker; /* nothing there tells it, or not to us, or not in time */
	int askers;    /* so many have been asked for */
};

enum { ASKERS_MOST = 16 }; /* each costs a round trip */

/* Who asks for the lock of this holder?  The record lives in the answer. */
static void
find_asker(struct lease_look *s, struct entry *e, struct answer *a)
{
	const struct question q = LEASE_QUESTION(
	    "asker", 1, SQL_TEXT(e->key), SQL_INT((int64_t)e->token));
	struct fault unheard;

	if (!e->revoked || s->no_asker)
		return;
	s->no_asker = sql_ask_existing(s->db, &q,
			  instant_first(
			      look_answer_by(s->seen.look), instant_now() + NS_PER_S),
			  a, &unheard) != RC_OK;
	if (s->no_asker)
		return;
	e->asker = row_words(&a->row, 0);
	s->no_asker = ++s->askers == ASKERS_MOST;
}

static bool
read_listed(void *ctx, const struct row *r)
{
	struct lease_look *s = ctx;
	const struct lease_driver *d = s->db->driver->lease;
	struct answer asker = {.db = NULL};
	struct entry e;

	if (!sql_look_position(&s->seen, r, TURNS, LISTED_MOMENT, d->any_order))
		return false;
	e = read_entry(r, &s->seen, d->damaged);
	find_asker(s, &e, &asker);
	sql_look_claim(&s->seen, &e);
	answer_drop(&asker);
	return true;
}

/* ---- runs ---- */

/* From field `first` on.  False: it makes no sense. */
static bool
read_run(
    const struct row *r, int first, struct sql_look *s, const char *key, struct entry *e)
{
	int64_t status, token;

	*e = (struct entry){.kind = ENTRY_LAST,
	    .key = key,
	    .slot = -1,
	    .record = row_words(r, first + RUN_RECORD),
	    .since = row_time(r, first + RUN_BEGAN),
	    .until = row_time(r, first + RUN_ENDED),
	    .once = row_words(r, first + RUN_ID)};
	if (!row_integer(r, first + RUN_MOMENT, 0, INT64_MAX, &s->now) ||
	    !row_integer(r, first + RUN_STATUS, 0, UINT8_MAX, &status))
		return false;
	if (row_integer(r, first + RUN_TOKEN, 1, INT64_MAX, &token))
		e->token = token;
	e->status = (int)status;
	return true;
}

/* How far the list of jobs has come; each page goes on behind the last row. */
struct jobs_look {
	struct sql_look *seen;
	char key[4 * KEY_BYTES + 1], id[4 * ONCE_BYTES + 1];
	bool good;              /* the last run that was told ended with 0 */
	uint64_t token;         /* and its token */
	bool only_good;         /* of one key, whose last run is told already */
	struct lease_list list; /* what is asked for them */
};

/* The newer one may not be there, with nobody who may make it, or not be for us to call. */
static bool
falls_back(const struct sql *db, enum rc rc, struct lease_list *list)
{
	bool refused = rc == RC_CONFIG || rc == RC_DENIED ||
	    (rc != RC_OK && rc != RC_STOP && sql_is_missing(db));

	if (!refused || !sql_is_connected(db) || !list->older)
		return false;
	*list = (struct lease_list){list->older, NULL};
	return true;
}

static bool
read_job(void *ctx, const struct row *r)
{
	static const enum entry_kind kinds[] = {
	    ENTRY_LAST, ENTRY_GOOD, ENTRY_DONE, ENTRY_SHOWN};
	struct jobs_look *j = ctx;
	int64_t turn;
	struct entry e;

	if (!row_text(r, JOB_KEY, j->key, sizeof j->key) ||
	    !row_integer(r, JOB_TURN, 0, ENTRY_SHOWN - ENTRY_LAST, &turn) ||
	    !read_run(r, JOB_RUN, j->seen, j->key, &e))
		return false;
	e.kind = kinds[turn];
	if (turn == 2 && (!e.once || !row_text(r, JOB_RUN + RUN_ID, j->id, sizeof j->id)))
		return false;
	if (turn == 3) { /* the page that begins behind it begins behind an empty ID */
		*j->id = '\0';
		e.once = NULL;
	}
	if (turn == 0) {
		j->good = e.status == 0;
		j->token = e.token;
	}
	if (turn == 1 ? j->only_good || !j->good || e.token != j->token : !j->only_good)
		sql_look_entry(j->seen, &e);
	return true;
}

static enum rc
ask_for_success(
    struct sql *db, const struct jobs_look *j, struct answer *a, struct fault *f)
{
	const struct look *look = j->seen->look;
	struct question q = LEASE_QUESTION(
	    j->list.name, JOB_FIELDS, SQL_TEXT(look->key), SQL_TEXT(""), SQL_INT(1));

	q.many = true;
	return look->success ? sql_ask_existing(db, &q, look_answer_by(look), a, f)
			     : sql_ask(db, &q, look_answer_by(look), a, f);
}

/* Where no function tells it, or not to us, it is not known; unless it is what is asked for. */
static enum rc
look_at_success(struct sql *db, struct sql_look *s, struct fault *f)
{
	struct jobs_look j = {
	    .seen = s, .only_good = true, .list = db->driver->lease->last};
	struct answer a = {.db = NULL};
	enum rc rc = ask_for_success(db, &j, &a, f);

	if (falls_back(db, rc, &j.list))
		rc = ask_for_success(db, &j, &a, f);
	if (rc != RC_OK && rc != RC_STOP && !s->look->success &&
	    (sql_is_missing(db) || sql_is_failure(db, SQL_NO_RIGHT)))
		rc = RC_OK;
	while (rc == RC_OK && !s->enough && answer_next(&a))
		if (!read_job(&j, &a.row))
			rc = sql_makes_no_sense(db, RC_PROTOCOL, f);
	answer_drop(&a);
	return rc;
}

/*
 * A run that failed is not the last success, and nor is one that is dated ahead of the
 * server's clock: list_jobs has the one before.
 */
static bool
hides_success(const struct sql_look *s, const struct entry *last)
{
	return last->status != 0 || last->since > s->now;
}

static enum rc
look_at_last_run(struct sql *db, struct sql_look *s, struct fault *f)
{
	struct question q = LEASE_QUESTION(
	    "last_run", RUN_FIELDS, SQL_TEXT(s->look->key));
	struct answer a = {.db = NULL};
	bool hides = false;
	struct entry e;
	enum rc rc;

	q.many = true;
	rc = sql_ask_existing(db, &q, look_answer_by(s->look), &a, f);
	if (rc == RC_OK && answer_next(&a)) {
		if (read_run(&a.row, 0, s, s->look->key, &e)) {
			sql_look_entry(s, &e);
			hides = hides_success(s, &e);
		} else if (s->look->success) {
			rc = sql_makes_no_sense(db, RC_PROTOCOL, f);
		}
	}
	answer_drop(&a);
	return rc == RC_OK && hides && !s->enough ? look_at_success(db, s, f) : rc;
}

/*
 * Those that are kept apart: of a key, the run that is no job's; or all.  Where no function tells
 * them (an older schema keeps none), or not to us, they are not known.
 */
static enum rc
look_at_ended(struct sql *db, struct sql_look *s, struct fault *f)
{
	struct jobs_look j = {.seen = s};
	enum rc rc;
	int n;

	do {
		struct question q = LEASE_QUESTION("list_ended", JOB_FIELDS,
		    SQL_TEXT(s->look->key), SQL_TEXT(j.key), SQL_TEXT(j.id),
		    SQL_INT(PAGE));
		struct answer a = {.db = NULL};

		q.many = true;
		rc = sql_ask(db, &q, look_answer_by(s->look), &a, f);
		n = rc == RC_OK && !s->look->key ? a.rows : 0;
		if (rc != RC_OK && rc != RC_STOP &&
		    (sql_is_missing(db) || sql_is_failure(db, SQL_NO_RIGHT)))
			return RC_OK;
		while (rc == RC_OK && !s->enough && answer_next(&a))
			if (!read_job(&j, &a.row))
				rc = sql_makes_no_sense(db, RC_PROTOCOL, f);
		answer_drop(&a);
	} while (rc == RC_OK && n > 0 && !s->enough);
	return rc;
}

/* Page by page; one without a row is behind the last one. */
static enum rc
ask_for_pages(struct sql *db, struct jobs_look *j, bool of_ids, struct fault *f)
{
	enum rc rc;
	int n;

	do {
		const struct question keys = LEASE_QUESTION(j->list.name, JOB_FIELDS,
		    SQL_TEXT(NULL), SQL_TEXT(j->key), SQL_INT(PAGE));
		const struct question ids = LEASE_QUESTION(j->list.name, JOB_FIELDS,
		    SQL_TEXT(j->key), SQL_TEXT(j->id), SQL_INT(PAGE));
		struct question q = of_ids ? ids : keys;

		q.many = true;
		rc = sql_look_page(db, j->seen, &q, read_job, j, &n, f);
	} while (
	    (rc == RC_OK && n > 0 && !j->seen->enough) || falls_back(db, rc, &j->list));
	return rc;
}

/* First all keys, then all IDs. */
static enum rc
ask_for_jobs(struct sql *db, struct sql_look *s, struct fault *f)
{
	struct jobs_look keys = {.seen = s, .list = db->driver->lease->last};
	struct jobs_look ids = {.seen = s, .list = db->driver->lease->done};
	enum rc rc = ask_for_pages(db, &keys, false, f);

	if (rc == RC_OK && !s->enough)
		rc = ask_for_pages(db, &ids, true, f);
	return rc == RC_OK && !s->enough ? look_at_ended(db, s, f) : rc;
}

/* ---- looking ---- */

/*
 * On one of several servers what was confirmed by another may be late.  If we looked too early, thaw
 * would not find a freeze, and leave it for ever.
 */
static enum rc
catch_up(struct sql *db, const struct look *look, struct fault *f)
{
	const struct question q = {
	    .text = db->driver->lease->catch_up, .fields = 1, .harmless = true};
	instant by = look_answer_by(look);
	enum rc rc;

	if (!q.text || !look->key)
		return RC_OK;
	rc = sql_open(db, by, f);
	return rc == RC_OK && sql_is_one_of_several(db) ? sql_exec(db, &q, by, NULL, f)
							: rc;
}

enum rc
lease_each(struct sql *db, const struct look *look, struct fault *f)
{
	struct lease_look s = {.db = db, .seen.look = look, .seen.turn = -1};
	enum rc rc;
	int n;

	if (look->jobs)
		return ask_for_jobs(db, &s.seen, f);
	rc = catch_up(db, look, f);
	if (rc != RC_OK)
		return rc;
	snprintf(s.seen.key, sizeof s.seen.key, "%s", look->key ? look->key : "");
	do {
		struct question q = LEASE_QUESTION("list", LISTED_FIELDS,
		    SQL_TEXT(look->key), SQL_TEXT(s.seen.key), SQL_INT(s.seen.turn),
		    SQL_INT(s.seen.number), SQL_INT(PAGE));

		q.many = true;
		rc = sql_look_page(db, &s.seen, &q, read_listed, &s, &n, f);
	} while (rc == RC_OK && n == PAGE && !s.seen.enough);
	if (rc == RC_OK)
		sql_look_waiting(&s.seen);
	if (rc == RC_OK && look->key && !s.seen.enough)
		rc = look_at_last_run(db, &s.seen, f);
	if (rc == RC_OK && look->key && !s.seen.enough)
		rc = look_at_ended(db, &s.seen, f);
	return rc;
}

/* ---- steering ---- */

/* Asks for something that is done or, *done false, has nothing to be done to. */
static enum rc
ask_whether(
    struct sql *db, const struct question *q, instant until, bool *done, struct fault *f)
{
	struct answer a = {.db = NULL};

	*done = false;
	return answer_boolean(&a, sql_ask_existing(db, q, until, &a, f), done, f);
}

/* Has the holder renew now, and not when it would; without that it does so all the same. */
static void
notify_holder(struct sql *db, const struct target *target, instant until)
{
	const struct question q = {.text = db->driver->lease->notify,
	    SQL_VALUES(SQL_INT((int64_t)target->token)),
	    .fields = 1,
	    .harmless = true};
	struct fault unheard;

	if (q.text)
		(void)sql_exec(db, &q, instant_first(until, instant_now() + NS_PER_S),
		    NULL, &unheard);
}

enum rc
lease_revoke(struct sql *db, const struct target *target, const char *record, bool force,
    instant until, struct fault *f)
{
	const struct question q = LEASE_QUESTION(force ? "take_away" : "ask_back", 1,
	    SQL_TEXT(target->key), SQL_INT((int64_t)target->token),
	    SQL_TEXT(target->owner), SQL_TEXT(record));
	bool done = false;
	enum rc rc = RC_OK;

	if (target->token > 0 && target->token <= INT64_MAX)
		rc = ask_whether(db, &q, until, &done, f);
	if (rc == RC_OK && !done)
		return fault_set(
		    f, RC_LOST, "%s: this holder no longer has the lock", db->where);
	if (rc == RC_OK && force && db->driver->lease->taken_away)
		db->driver->lease->taken_away(db, until);
	if (rc == RC_OK)
		notify_holder(db, target, until);
	return rc;
}

/*
 * An older schema, or rights to that, has only what one server orders: that is enough where no other
 * one writes.
 */
enum rc
lease_freeze(struct sql *db, const char *key, const char *record, int64_t length,
    instant until, struct fault *f)
{
	const struct sql_value forever = SQL_TEXT(NULL);
	const struct lease_driver *d = db->driver->lease;
	struct question q = LEASE_QUESTION("freeze", 1, SQL_TEXT(key), SQL_TEXT(record),
	    length == NEVER ? forever : SQL_INT(ns_to_ms(length)));
	enum rc rc;

	q.text = d->freeze;
	if (!d->freeze_for_all)
		return sql_ask_created(db, &q, until, NULL, f);
	q.procedure = d->freeze_for_all;
	rc = sql_ask_created(db, &q, until, NULL, f);
	if ((rc != RC_DENIED && rc != RC_CONFIG) || !sql_is_connected(db) ||
	    sql_is_one_of_several(db))
		return rc;
	q.procedure = "freeze";
	return sql_ask_created(db, &q, until, NULL, f);
}

/* Of what is to be there, else `none`. */
static enum rc
judge_done(const struct sql *db, enum rc rc, bool done, const char *none, struct fault *f)
{
	if (rc != RC_OK || done)
		return rc;
	if (db->again)
		return fault_set(f, RC_AGAIN,
		    "%s was asked twice, and has not said whether the first question did it",
		    db->where);
	return fault_set(f, RC_LOST, "%s: %s", db->where, none);
}

static enum rc
ask_done(struct sql *db, const struct question *q, instant until, const char *none,
    struct fault *f)
{
	bool done;
	enum rc rc = ask_whether(db, q, until, &done, f);

	return judge_done(db, rc, done, none, f);
}

enum rc
lease_thaw(struct sql *db, const char *key, instant until, struct fault *f)
{
	return ask_done(
	    db, &LEASE_QUESTION("thaw", 1, SQL_TEXT(key)), until, "it is not frozen", f);
}

/* An older schema keeps none apart, and forgets the others by another name perhaps. */
enum rc
lease_forget(
    struct sql *db, const char *key, const char *once, instant until, struct fault *f)
{
	static const char none[] = "no such run is remembered";
	const struct question all = LEASE_QUESTION(
	    db->driver->lease->forget, 1, SQL_TEXT(key), SQL_TEXT(once));
	struct answer a = {.db = NULL};
	enum rc rc = sql_ask(db, &all, until, &a, f);
	bool done = false;

	if (rc != RC_OK && rc != RC_STOP && sql_is_missing(db))
		return ask_done(db,
		    &LEASE_QUESTION("forget", 1, SQL_TEXT(key), SQL_TEXT(once)), until,
		    none, f);
	rc = sql_explain_denial(db, answer_boolean(&a, rc, &done, f), f);
	return judge_done(db, rc, done, none, f);
}
