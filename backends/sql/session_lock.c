/*
 * session_lock.c - asks for a lock that ends with its connection, and keeps it.
 */
#include "session_lock.h"

#define CHUNK (3 * NS_PER_S) /* one wait in the server */

/* ---- who is there ---- */

bool
session_lock_read_queue(struct host *host, const struct row *r, int first)
{
	int64_t waiting, holders = 0;

	if (!row_integer(r, first, 0, INT64_MAX, &waiting))
		return false;
	host->seen.position = waiting < 1000000 ? waiting + 1 : 0;
	host->seen.holding.held = -1;
	if (!row_text(r, first + 1, host->seen.holding.record,
		sizeof host->seen.holding.record))
		host->seen.holding.record[0] = '\0';
	if (!row_integer(r, first + 2, 0, INT32_MAX, &holders))
		holders = 0;
	host->seen.holding.holders = holders;
	host->seen.holding.kind = row_is(r, first + 3) ? KIND_SHARED : KIND_EXCLUSIVE;
	return true;
}

/* ---- acquire ---- */

/*
 * Chunk after chunk, and between them a look at who is there.  Only what an attempt has just
 * brought counts: one that was granted and then broke off has lost it again.
 */
static enum rc
wait_in_server(struct sql *db, instant until, struct grant *g, struct fault *f)
{
	const struct session_lock_way *way = db->mode->way;
	bool got = false;
	enum rc rc;

	do {
		instant now = instant_now(), wake = instant_first(now + CHUNK, until);

		rc = way->wait(
		    db, wake > now ? ns_to_ms(wake - now) : 1, until, &got, g, f);
		if (rc == RC_OK && !got && instant_now() >= until)
			return fault_set(f, RC_BUSY, "%s: still held", db->where);
		if (rc == RC_OK && !got && !way->wait_looks)
			rc = way->ask(db,
			    retry_answer(instant_now(), ASK_PATIENCE, until), &got, g, f);
		if (rc == RC_OK) {
			retry_end_outage(&db->retry);
		} else {
			got = false;
			rc = sql_try_again(db, rc, true, until);
		}
	} while (rc == RC_OK && !got);
	return rc;
}

enum rc
session_lock_acquire(struct sql *db, instant until, struct grant *g, struct fault *f)
{
	struct retry *p = &db->retry;
	instant first_by = retry_first(p, until);
	bool got = false;
	enum rc rc;

	if (db->names_nobodys)
		fault_set(&db->base.host->notice, RC_OK,
		    "mode=%s without name= or derive=: no other program takes this lock (say derive=dlock if that is meant)",
		    db->mode->name);
	do
		rc = db->mode->way->ask(db, retry_attempt_by(p, first_by), &got, g, f);
	while (retry_first_again(p, db->base.host, until, &rc));

	if (rc == RC_OK && !got)
		rc = until ? wait_in_server(db, until, g, f)
			   : fault_set(f, RC_BUSY, "%s: held", db->where);
	if (rc != RC_OK)
		db->driver->close(db); /* whatever it may have got */
	return rc;
}

void
session_lock_granted(struct sql *db, uint64_t token, instant sent, struct grant *g)
{
	session_lock_of(db)->held = true;
	sql_watch(db);
	*g = (struct grant){.token = token,
	    .sent = sent,
	    .lease = db->claim->ttl,
	    .anchor = db->driver->descriptor(db)};
}

/* ---- renew and release ---- */

/* The hold ended with its connection. */
static enum rc
refuse_ended(const struct sql *db, struct fault *f)
{
	return fault_set(f, RC_LOST,
	    "the session at %s has ended, and the lock with it%s%s", db->where,
	    *db->last_words ? ": " : "", db->last_words);
}

/* One boolean, "still ours"; NULL: another server may give the lock to others. */
static enum rc
read_ours(const struct sql *db, struct answer *a, struct fault *f)
{
	bool ours, fine = row_boolean(&a->row, 0, &ours),
		   is_null = row_is_null(&a->row, 0);

	answer_drop(a);
	if (is_null)
		return fault_set(f, RC_LOST,
		    "%s has become read-only, perhaps a replica, and excludes nobody",
		    db->where);
	if (!fine)
		return sql_makes_no_sense(db, RC_AGAIN, f);
	return ours
	    ? RC_OK
	    : fault_set(f, RC_LOST, "%s no longer names us as the holder", db->where);
}

/* The heartbeat that is out is the one we wait for; otherwise there goes one. */
static enum rc
send_beat(struct sql *db, struct session_lock *l, const struct question *q, instant until,
    struct answer *a, struct fault *f)
{
	enum rc rc = RC_OK;

	if (!db->driver->is_open(db))
		return RC_AGAIN;
	if (!db->driver->is_pending(db)) {
		l->beat_sent = instant_now();
		rc = db->driver->send(db, q, until, f);
	}
	if (rc == RC_OK)
		rc = db->driver->receive(db, q, until, a, f);
	(void)answer_next(a);
	return rc;
}

enum rc
session_lock_renew(struct sql *db, instant until, struct grant *g, struct fault *f)
{
	const struct session_lock_way *way = db->mode->way;
	struct session_lock *l = session_lock_of(db);
	char text[STILL_BYTES];
	const struct question q = way->still(db, false, text);
	struct answer a = {.db = NULL};
	enum rc rc;

	db->base.host->alert = -1;
	rc = send_beat(db, l, &q, until, &a, f);
	if (rc == RC_OK)
		rc = read_ours(db, &a, f);
	else if (rc != RC_STOP && !sql_is_connected(db))
		rc = refuse_ended(db, f);
	else if (rc != RC_STOP && way->errors_end && *db->error)
		rc = RC_LOST; /* with the server's own words */
	else if (rc != RC_STOP)
		rc = RC_AGAIN; /* the answer may be heard later */
	if (rc == RC_OK) {
		g->sent = l->beat_sent;
		g->lease = db->claim->ttl;
	}
	if (rc != RC_LOST)
		sql_watch(db);
	return rc;
}

/*
 * The connection as it must be for a release: open, and no question out.  An answer that is
 * still out is read first; what it says is of the past.
 */
static enum rc
settle(struct sql *db, instant until, struct fault *f)
{
	static const struct question beat = {.fields = 1};
	struct answer a = {.db = NULL};
	enum rc rc = RC_OK;

	if (!db->driver->is_open(db))
		return refuse_ended(db, f);
	if (db->driver->is_pending(db))
		rc = db->driver->receive(db, &beat, until, &a, f);
	answer_drop(&a);
	if (!sql_is_connected(db))
		return refuse_ended(db, f);
	return db->driver->is_pending(db) ? rc : RC_OK;
}

enum rc
session_lock_release(struct sql *db, struct outcome o, instant until, struct fault *f)
{
	const struct session_lock_way *way = db->mode->way;
	char text[STILL_BYTES];
	const struct question q = way->still(db, true, text);
	struct answer a = {.db = NULL};
	enum rc rc;

	(void)o;
	if (!session_lock_of(db)->held)
		return RC_OK;
	db->base.host->alert = -1;
	rc = settle(db, until, f);
	if (rc == RC_OK)
		rc = sql_exec(db, &q, until, &a, f);
	if (rc == RC_OK)
		rc = read_ours(db, &a, f);
	if (rc == RC_OK && way->last)
		rc = sql_exec(db, way->last, until, NULL, f);
	session_lock_of(db)->held = false;
	db->driver->close(db); /* if nothing else, this gives it back */
	return rc;
}
