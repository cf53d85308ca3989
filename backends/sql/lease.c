/* lease.c - asks a database for a lease, waits for its turn, confirms, renews and releases it. */
#include "lease.h"

#include "backends/common/alert.h"
#include "backends/common/digits.h"
#include "backends/common/job.h"
#include "backends/common/refuse.h"
#include "backends/common/sha.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* who asks now and then counts as alive for so long: two questions may be lost */
enum { ALIVE_MS = 9000 };

#define FIRST_RENEWAL NS_PER_S /* when a holder asks to be notified of a break */

/* without our wake-up lock for the first time, then twice as long each time */
#define SPACE_FIRST (20 * NS_PER_MS)

/* The columns of the answers, from the first behind those of lease.h on. */
enum { TAKE_DIRECT = 1, TAKE_HAS_OWN, TAKE_FIELDS };
enum {
	ENTER_AHEAD = ANSWER_MORE, /* the wake-up lock to sleep on; NULL: there is none */
	ENTER_DONE,
	ENTER_RECORD = ENTER_DONE + 3, /* DONE: of the run */
	ENTER_DIRECT,                  /* nobody is between us and the server */
	ENTER_HAS_OWN,
	ENTER_LISTENING, /* a notification will come */
	ENTER_MOMENT,    /* the server's clock, in microseconds */
	ENTER_FIELDS
};
enum { RENEW_IS_OURS, RENEW_WANTED_BY, RENEW_HAS_OWN, RENEW_FIELDS };
enum { ENDED_BEGAN_MS, ENDED_STATUS, ENDED_RECORD, ENDED_FIELDS };

enum was { WAS_NOT, WAS_HELD, WAS_QUEUED };

/* ---- one question, one answer ---- */

/* From here on the server may know of us. */
size_t
lease_own_values(struct sql *db, int which, instant until, struct sql_value *values)
{
	const struct lease_driver *d = db->driver->lease;
	struct lease *l = lease_of(db);
	size_t n = 0;

	if (l->serial != db->serial) {
		/* another connection than we asked on before: it has nothing of ours */
		l->serial = db->serial;
		l->left_over = l->left_over || l->asked;
		l->has_own = l->is_direct = l->has_slept = l->is_listening =
		    l->hears_breaks = false;
		l->lacking = l->unheard = 0;
		*l->ahead = '\0';
	}
	l->asked = true;
	if (which & OWN_SESSION)
		values[n++] = SQL_INT(d->session_number(db));
	if (which & OWN_SESSION_TAKE)
		values[n++] = SQL_INT(l->has_own ? 0 : d->session_number(db));
	if (which & OWN_LOCK)
		values[n++] = SQL_INT(l->has_own);
	if ((which & OWN_WAKE) && d->wake_number)
		values[n++] = SQL_INT(d->wake_number(db));
	if (which & OWN_WAKE_GIVE)
		values[n++] = SQL_INT(
		    l->has_own && d->wake_number ? d->wake_number(db) : 0);
	if ((which & OWN_DEADLINE) && d->server_time)
		values[n++] = SQL_INT(d->server_time(db, until));
	return n;
}

void
lease_note_own(struct lease *l, const struct row *r, int field)
{
	bool has;

	if (!row_boolean(r, field, &has))
		return;
	l->has_own = has;
	if (has)
		l->lacking = 0;
}

int64_t
lease_own_space(struct lease *l, int64_t most)
{
	l->lacking = instant_first(most, l->lacking ? 2 * l->lacking : SPACE_FIRST);
	return l->lacking;
}

/*
 * Whoever may read statements shall not learn by what a hold is given back: so the claim's
 * owner itself is only sent to do that.
 */
static void
write_me(struct lease *l, bool hides)
{
	unsigned char hash[SHA256_BYTES];

	if (!hides) {
		snprintf(l->me, sizeof l->me, "%s", l->claim->owner);
		return;
	}
	sha_256(hash, l->claim->owner, strlen(l->claim->owner));
	digits_hex(l->me, hash, OWNER_CHARS / 2);
}

enum rc
lease_refuse_answer(struct lease *l, struct fault *f)
{
	l->db->driver->close(l->db);
	return sql_makes_no_sense(l->db, RC_PROTOCOL, f);
}

/* ---- what an answer means ---- */

/* It is ours, by the request that left at `sent`. */
static void
grant_lease(struct lease *l, instant sent, struct grant *g)
{
	l->held = true;
	l->token = l->place.token;
	*g = (struct grant){.token = l->token,
	    .slot = l->place.slot,
	    .sent = sent,
	    .lease = l->claim->ttl,
	    .soon = l->is_direct && l->db->driver->lease->listen
		? instant_first(FIRST_RENEWAL, l->claim->ttl / 3)
		: 0,
	    .anchor = -1};
}

/* What the place, which a request has brought that left at `sent`, means for acquire. */
static enum rc
judge_place(struct lease *l, instant sent, struct grant *g, struct fault *f)
{
	const struct lease_place *s = &l->place;

	if (s->code == IN_USE)
		return refuse_kind(f, l->db->where, s->kind, s->limit, l->claim);
	if (s->code == GRANTED)
		grant_lease(l, sent, g);
	if (s->code != DONE)
		return RC_OK;
	if (s->done.forgotten)
		l->asked = false;
	return s->done.recently
	    ? refuse_recent(f, &l->claim->job, s->done.age_ms * NS_PER_MS)
	    : refuse_done(
		  l->db->base.host, f, &l->claim->job, 0, s->done.began_ms, s->done.who);
}

/*
 * RC_DONE: the job's ID has ended otherwise than with 0, and that counts.  What is only to be shown
 * asks the same for nothing, so that where it cannot be kept is known in time.
 */
static enum rc
lease_find_ended(struct lease *l, instant until, struct fault *f)
{
	const struct job *job = &l->claim->job;
	const struct question q = LEASE_QUESTION(
	    "find_ended", ENDED_FIELDS, SQL_TEXT(l->claim->key), SQL_TEXT(job->once));
	struct answer a = {.db = NULL};
	char who[RECORD_BYTES];
	int64_t began, status;
	enum rc rc = sql_ask_created(l->db, &q, until, &a, f);

	if (rc != RC_OK)
		return rc;
	if (!job->no_retry || row_is_null(&a.row, ENDED_STATUS)) {
		answer_drop(&a);
		return RC_OK;
	}
	job_who(row_words(&a.row, ENDED_RECORD), who, sizeof who);
	rc = row_integer(&a.row, ENDED_STATUS, 0, UINT8_MAX, &status)
	    ? refuse_done(l->db->base.host, f, job, (int)status,
		  row_integer(&a.row, ENDED_BEGAN_MS, 0, INT64_MAX, &began) ? began : -1,
		  who)
	    : lease_refuse_answer(l, f);
	answer_drop(&a);
	return rc;
}

/* ---- asking ---- */

/* The first question of all: is there nobody?  Otherwise `among`, and nothing else. */
static enum rc
lease_take(struct lease *l, instant until, struct grant *g, struct fault *f)
{
	const struct question q = CLAIM_QUESTION(l, l->me, "take", TAKE_FIELDS,
	    OWN_SESSION_TAKE | OWN_WAKE | OWN_DEADLINE, SQL_TEXT(l->claim->record),
	    SQL_INT(ns_to_ms(l->claim->ttl)));
	struct answer a = {.db = NULL};
	enum rc rc = sql_ask_created(l->db, &q, until, &a, f);

	if (rc != RC_OK)
		return rc;
	lease_note_own(l, &a.row, TAKE_HAS_OWN);
	if (row_is_null(&a.row, 0))
		l->among = true;
	else if (lease_place_read_taken(&l->place, &a.row) &&
	    row_boolean(&a.row, TAKE_DIRECT, &l->is_direct))
		grant_lease(l, a.sent, g);
	else
		rc = lease_refuse_answer(l, f);
	answer_drop(&a);
	return rc;
}

/* What enter has brought. */
static bool
read_entered(struct lease *l, const struct row *r)
{
	const struct lease_driver *d = l->db->driver->lease;
	struct lease_place *s = &l->place;
	struct host *host = l->db->base.host;
	int64_t moment;

	if (!lease_place_read(s, l->claim, host, r, ENTER_DONE) ||
	    !row_text(r, ENTER_AHEAD, l->ahead, sizeof l->ahead) ||
	    !row_boolean(r, ENTER_DIRECT, &l->is_direct) ||
	    !row_boolean(r, ENTER_LISTENING, &l->is_listening) ||
	    !row_integer(r, ENTER_MOMENT, 0, INT64_MAX / 2, &moment))
		return false;
	l->is_listening = l->is_listening && d->is_notified;
	lease_note_own(l, r, ENTER_HAS_OWN);
	job_who(row_words(r, ENTER_RECORD), s->done.who, sizeof s->done.who);
	l->is_one_of_many = s->code == QUEUED && s->next &&
	    host->seen.holding.kind == KIND_LIMIT && l->claim->kind == KIND_LIMIT;
	if (d->set_clock)
		d->set_clock(l->db, moment);
	return true;
}

/* Asks for the lock, or for our place in the queue; `alive_ms` 0: do not queue. */
static enum rc
lease_enter(
    struct lease *l, int64_t alive_ms, instant until, struct grant *g, struct fault *f)
{
	const struct claim *claim = l->claim;
	const struct question q = CLAIM_QUESTION(l, l->me, "enter", ENTER_FIELDS,
	    OWN_SESSION | OWN_LOCK | OWN_DEADLINE, SQL_TEXT(claim->record),
	    SQL_INT(ns_to_ms(claim->ttl)), SQL_INT(alive_ms),
	    SQL_TEXT(kind_word(claim->kind)),
	    SQL_INT(claim->kind == KIND_LIMIT ? claim->limit : 0),
	    SQL_TEXT(claim->job.once), SQL_INT(ns_to_ms(claim->job.cooldown)));
	struct answer a = {.db = NULL};
	enum rc rc = sql_ask_created(l->db, &q, until, &a, f);

	if (rc != RC_OK)
		return rc;
	rc = read_entered(l, &a.row) ? judge_place(l, a.sent, g, f)
				     : lease_refuse_answer(l, f);
	answer_drop(&a);
	return rc;
}

/*
 * A job was granted: asks, under the lock, whether it has been done all the same.  Where several
 * servers write, a grant counts when it was named twice (lease.h, 7).
 */
static enum rc
confirm_job(
    struct lease *l, int64_t alive_ms, instant until, struct grant *g, struct fault *f)
{
	enum rc rc = RC_OK;
	int64_t named = 0;

	while (rc == RC_OK && l->place.code == GRANTED && l->place.token != named &&
	    sql_is_one_of_several(l->db)) {
		named = l->place.token;
		rc = lease_enter(l, alive_ms, until, g, f);
	}
	if (rc == RC_OK && l->place.code == GRANTED && l->claim->job.no_retry)
		rc = lease_find_ended(l, until, f);
	return rc;
}

/*
 * First whether there is nobody (unless `among`), then for a place; without `queue` only for
 * what can be had at once.
 */
static enum rc
lease_ask(struct lease *l, bool queue, instant until, struct grant *g, struct fault *f)
{
	const int64_t alive_ms = queue ? ALIVE_MS : 0;
	bool asked_before = l->asked;
	enum rc rc = l->among ? RC_OK : lease_take(l, until, g, f);

	if (rc == RC_OK && l->among)
		rc = lease_enter(l, alive_ms, until, g, f);
	if (rc == RC_OK && l->place.code == GRANTED && job_is_wanted(&l->claim->job)) {
		asked_before = true;
		rc = confirm_job(l, alive_ms, until, g, f);
		/* a failure leaves the next question to find that we hold it */
		l->held = rc == RC_OK && l->place.code == GRANTED;
		l->place.code = l->held ? GRANTED : QUEUED;
	}
	if (rc == RC_CONFIG && !asked_before && !l->db->again)
		l->asked = false; /* nothing was done there, nor will be */
	return rc;
}

/* ---- acquire ---- */

static enum rc renew_hold(struct sql *, instant until, struct grant *, struct fault *);

/* A grant that we have been told of becomes ours by a renewal.  *g is set if it did. */
static enum rc
confirm(struct lease *l, instant until, struct grant *g, struct fault *f)
{
	instant now = instant_now();
	enum rc rc;

	grant_lease(l, now, g);
	rc = renew_hold(l->db, retry_answer(now, ASK_PATIENCE, until), g, f);
	if (rc == RC_REVOKED)
		rc = RC_OK; /* the next renewal will say so again */
	l->place.code = rc == RC_OK ? GRANTED : QUEUED;
	l->held = rc == RC_OK;
	return rc == RC_LOST ? RC_OK : rc; /* it came too late: ask */
}

/* Waits for our turn; then confirms, or asks. */
static enum rc
wait_and_ask(struct lease *l, instant until, struct grant *g, struct fault *f)
{
	enum rc rc = RC_OK;

	l->place.token = 0;
	if (sql_is_connected(l->db))
		rc = lease_sleep(l, until, f);
	if (rc == RC_AGAIN && sql_is_failure(l->db, SQL_INTERRUPTED))
		rc = RC_OK; /* somebody has cancelled our sleep: ask */
	if (rc == RC_OK && l->place.token && !job_is_wanted(&l->claim->job))
		rc = confirm(l, until, g, f);
	if (rc == RC_OK && l->place.code != GRANTED)
		rc = lease_ask(
		    l, true, retry_answer(instant_now(), ASK_PATIENCE, until), g, f);
	return rc;
}

/*
 * We are in the queue.  When a connection has broken, so may have those of a thousand
 * others: no attempt before its turn.
 */
static enum rc
wait_for_lease(struct lease *l, instant until, struct grant *g, struct fault *f)
{
	enum rc rc = RC_OK;

	while (rc == RC_OK && l->place.code != GRANTED) {
		rc = wait_and_ask(l, until, g, f);
		if (rc == RC_OK)
			retry_end_outage(&l->db->retry);
		else
			rc = sql_try_again(l->db, rc, true, until);
	}
	return rc;
}

/* The server's clock names the period of a job. */
static enum rc
lease_name_period(struct lease *l, instant until, struct fault *f)
{
	const struct question q = {
	    .text = l->db->driver->lease->clock, .fields = 1, .harmless = true};
	const struct job *job = &l->claim->job;
	struct answer a = {.db = NULL};
	int64_t us;
	enum rc rc;

	if (!job->per || *job->per->id)
		return RC_OK;
	rc = sql_ask(l->db, &q, until, &a, f);
	if (rc != RC_OK)
		return rc;
	rc = row_integer(&a.row, 0, 0, INT64_MAX, &us)
	    ? job_name_period(job, us, l->db->where, f)
	    : lease_refuse_answer(l, f);
	answer_drop(&a);
	return rc;
}

static enum rc
ask_first(struct lease *l, bool queue, instant until, struct grant *g, struct fault *f)
{
	const struct job *job = &l->claim->job;
	enum rc rc = lease_name_period(l, until, f);

	/* who finds that out before it queues need not wait */
	if (rc == RC_OK && (job->no_retry || job->remember == REMEMBER_SURELY))
		rc = lease_find_ended(l, until, f);
	return rc == RC_OK ? lease_ask(l, queue, until, g, f) : rc;
}

static enum rc lease_release(struct sql *, struct outcome, instant until, struct fault *);

static enum rc
lease_acquire(struct sql *db, instant until, struct grant *g, struct fault *f)
{
	struct lease *l = lease_of(db);
	instant first_by = retry_first(&db->retry, until);
	struct fault unheard;
	enum rc rc;

	*l = (struct lease){.db = db, .claim = db->claim};
	write_me(l, db->driver->lease->hides_owner);
	l->among = !kind_is_exclusive(l->claim->kind) || job_is_wanted(&l->claim->job);
	do
		rc = ask_first(
		    l, until != 0, retry_attempt_by(&db->retry, first_by), g, f);
	while (retry_first_again(&db->retry, db->base.host, until, &rc));
	if (rc == RC_OK && l->place.code != GRANTED)
		rc = until ? wait_for_lease(l, until, g, f)
			   : fault_set(f, RC_BUSY, "%s: held", db->where);
	if (rc == RC_BUSY && !until)
		l->asked = false; /* who does not queue leaves nothing */
	if (rc == RC_DONE)
		/* it wants no lock; if this goes unheard, the caller's release says it again */
		(void)lease_release(
		    db, NO_OUTCOME, instant_now() + ASK_PATIENCE, &unheard);
	if (rc == RC_OK)
		sql_watch(db);
	return rc;
}

/* ---- renew and release ---- */

static enum rc
refuse_lost(const struct lease *l, struct fault *f)
{
	return fault_set(f, RC_LOST,
	    "%s no longer names us as the holder: the lock expired or was deleted, or the server lost its data",
	    l->db->where);
}

static enum rc
renew_hold(struct sql *db, instant until, struct grant *g, struct fault *f)
{
	struct lease *l = lease_of(db);
	const struct question q = CLAIM_QUESTION(l, l->me, "renew", RENEW_FIELDS,
	    OWN_SESSION_TAKE, SQL_INT((int64_t)l->token),
	    SQL_INT(ns_to_ms(l->claim->ttl)));
	struct answer a = {.db = NULL};
	const char *by;
	bool ours;
	enum rc rc;

	db->base.host->alert = -1;
	rc = sql_ask(db, &q, until, &a, f);
	if (rc != RC_OK && sql_is_failure(db, SQL_NO_TABLE))
		/* the tables are gone, and the lock with them */
		return refuse_lost(l, f);
	if (rc != RC_OK)
		return rc == RC_STOP ? RC_STOP : RC_AGAIN;
	lease_note_own(l, &a.row, RENEW_HAS_OWN);
	/* behind a pooler nothing is said of that */
	l->is_direct = l->is_direct || !row_is_null(&a.row, RENEW_HAS_OWN);
	by = row_words(&a.row, RENEW_WANTED_BY); /* or who has taken it away */
	if (!row_boolean(&a.row, RENEW_IS_OURS, &ours))
		rc = sql_makes_no_sense(db, RC_AGAIN, f);
	else if (by)
		rc = refuse_broken(
		    db->base.host, f, ours ? RC_REVOKED : RC_LOST, db->where, by);
	else if (!ours)
		rc = refuse_lost(l, f);
	if (rc == RC_OK || rc == RC_REVOKED) {
		g->sent = a.sent;
		g->lease = l->claim->ttl;
		sql_watch(db);
	}
	answer_drop(&a);
	return rc;
}

static bool
was_notified(struct sql *db)
{
	return db->driver->lease->is_notified && db->driver->lease->is_notified(db);
}

/* Is the server still to be asked for notifications on this connection? */
static bool
wants_to_hear(const struct lease *l)
{
	return l->db->driver->lease->listen && !l->hears_breaks && !l->is_deaf &&
	    l->is_direct && l->serial == l->db->serial;
}

/*
 * Asks to be notified of a break, once for each connection, after a renewal that has left time
 * for it: RC_OK, it is.  Where that is refused, renewals hear of it.  Where it comes too late, the
 * connection has ended for it, and no other is to end so.
 */
static enum rc
listen_for_break(struct lease *l, instant sent, instant until)
{
	const struct lease_driver *d = l->db->driver->lease;
	instant now = instant_now();
	char text[64];
	const struct question q = {.text = text, .harmless = true};
	struct fault unheard;
	enum rc rc;

	if (!wants_to_hear(l) || until - now < 2 * (now - sent))
		return RC_AGAIN;
	l->hears_breaks = true;
	snprintf(text, sizeof text, "%s%" PRIu64, d->listen, l->token);
	rc = sql_exec(l->db, &q, until, NULL, &unheard);
	l->is_deaf = !sql_is_connected(l->db);
	return rc;
}

/*
 * A notification that has come before is answered by this renewal.  One that came along with the
 * answer no longer makes the descriptor readable, and a break may have come between the answer
 * and our listening: then the next renewal is early.  So it is without our wake-up lock, on which
 * the next in the queue sleeps.
 */
static enum rc
lease_renew(struct sql *db, instant until, struct grant *g, struct fault *f)
{
	struct lease *l = lease_of(db);
	int64_t space = instant_first(alert_space(l->claim->ttl), l->claim->ttl / 3);
	enum rc rc, listening;
	bool early;

	db->base.host->alert = -1;
	(void)was_notified(db);
	rc = renew_hold(db, until, g, f);
	if (rc != RC_OK && rc != RC_REVOKED)
		return rc;
	listening = rc == RC_OK ? listen_for_break(l, g->sent, until) : RC_AGAIN;
	l->unheard = rc == RC_OK && wants_to_hear(l)
	    ? alert_unheard(l->claim->ttl, l->unheard)
	    : 0;
	early = listening == RC_OK || was_notified(db) || !sql_is_connected(db);
	g->soon = early ? space : l->unheard;
	if (l->is_direct && !l->has_own && kind_is_exclusive(l->claim->kind))
		g->soon = lease_own_space(l, space);
	sql_watch(db);
	return listening == RC_STOP ? RC_STOP : rc;
}

/*
 * What the answer to a release means: was there anything of ours?  If not, the server may know who
 * has taken it away, before our release.  Else, where the question may have been heard twice, the
 * first one may have given it back.
 */
static enum rc
judge_release(struct lease *l, bool was_ours, instant until, struct fault *f)
{
	bool lost = l->held && !was_ours;
	bool twice = l->db->again || l->unsure, known;
	struct grant unused;
	enum rc rc;

	if (!lost) {
		l->asked = l->held = false;
		return RC_OK;
	}
	rc = renew_hold(l->db, until, &unused, f);
	known = rc == RC_LOST && *l->db->base.host->breaker;
	if (twice && !known)
		return fault_set(f, RC_AGAIN,
		    "%s was asked twice, and has not said whether the first question did it",
		    l->db->where);
	l->asked = l->held = false;
	return rc == RC_LOST ? RC_LOST : refuse_lost(l, f);
}

/*
 * A session that is left over from a broken connection may keep a wake-up lock of ours, and
 * who sleeps on that would not be woken.
 */
static void
end_old_sessions(struct lease *l, instant until)
{
	const struct lease_driver *d = l->db->driver->lease;
	const struct question q = {.text = d->end_old_sessions,
	    .fields = d->end_old_fields,
	    SQL_VALUES(SQL_TEXT(l->me))};
	struct fault unheard;

	if (l->left_over)
		(void)sql_exec(l->db, &q, until, NULL, &unheard);
	l->has_own = l->left_over = false;
}

/* A run that is kept apart, and for what: "final", "shown"; NULL: it is not. */
static const char *
kept_for(const struct job *job, struct outcome o)
{
	if (o.status >= 0 && job_is_shown(job))
		return "shown";
	return o.status > 0 && o.ended && job->no_retry ? "final" : NULL;
}

/* values[2] and [3] are NULL: of no job that has run; [4] is NULL: it is not kept apart. */
static struct question
release_question(const struct lease *l, const struct sql_value values[5])
{
	bool apart = values[4].bytes,
	     alone = !apart && values[2].type != SQL_NUMBER && !l->among &&
	    l->db->driver->lease->releases_alone;

	return (struct question){.procedure = apart ? "release_run"
		: alone                             ? "release_alone"
						    : "release",
	    .fields = 1,
	    .values = values,
	    .n = apart  ? 5
		: alone ? 2
			: 4,
	    .more = lease_own_values,
	    .call = alone ? OWN_WAKE_GIVE : OWN_LOCK};
}

/* As an older schema would have it. */
static enum rc
release_unkept(struct sql *db, struct outcome o, instant until, struct fault *f)
{
	bool shown = job_is_shown(&db->claim->job);

	if (shown)
		job_note_unshown(db->base.host, &db->claim->job, db->where, o.status);
	else
		fault_set(&db->base.host->notice, RC_OK,
		    "%s could not record that this run has ended: the job may be run again, and --no-retry needs the schema of this dlock, and rights to it",
		    db->where);
	o.ended = false;
	return lease_release(db, shown ? NO_OUTCOME : o, until, f);
}

static enum rc
lease_release(struct sql *db, struct outcome o, instant until, struct fault *f)
{
	struct lease *l = lease_of(db);
	const struct job *job = &db->claim->job;
	const char *apart = kept_for(job, o);
	bool remembers = o.status >= 0 && (job_is_wanted(job) || apart);
	const struct sql_value values[] = {SQL_TEXT(db->claim->key),
	    SQL_TEXT(db->claim->owner), remembers ? SQL_INT(o.status) : SQL_TEXT(NULL),
	    SQL_TEXT(remembers ? job->once : NULL), SQL_TEXT(apart)};
	const struct question q = release_question(l, values);
	struct answer a = {.db = NULL};
	int64_t was;
	enum rc rc;

	db->base.host->alert = -1;
	if (!l->asked)
		return RC_OK;
	rc = sql_ask(db, &q, until, &a, f);
	/* a run that cannot be kept so keeps the lock for nobody */
	if (rc != RC_OK && apart &&
	    (sql_is_failure(db, SQL_NO_PROCEDURE) || sql_is_failure(db, SQL_NO_RIGHT)))
		return release_unkept(db, o, until, f);
	if (rc != RC_OK) {
		l->unsure = true;
		/* with the tables, the locks are gone */
		if (l->held)
			return sql_is_failure(db, SQL_NO_TABLE) ? refuse_lost(l, f) : rc;
		/* who only waits leaves nothing, whatever is missing */
		return sql_is_missing(db) ? RC_OK : rc;
	}
	rc = row_integer(&a.row, 0, WAS_NOT, WAS_QUEUED, &was) ? RC_OK : RC_AGAIN;
	answer_drop(&a);
	end_old_sessions(l, until);
	return rc == RC_OK ? judge_release(l, was != WAS_NOT, until, f)
			   : sql_makes_no_sense(db, RC_AGAIN, f);
}

const struct sql_mode lease_mode = {
    .name = "lease",
    .caps = CAP_FAIR | CAP_DURABLE | CAP_SHARED | CAP_LIMIT | CAP_JOB | CAP_REVOKE |
	CAP_FORCE | CAP_FREEZE,
    .bytes = sizeof(struct lease),
    .acquire = lease_acquire,
    .renew = lease_renew,
    .release = lease_release,
    .each = lease_each,
    .revoke = lease_revoke,
    .freeze = lease_freeze,
    .thaw = lease_thaw,
    .forget = lease_forget,
};
