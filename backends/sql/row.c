/* row.c - locks a key's row in a transaction, and keeps that open. */
#include "row.h"

#include <inttypes.h>
#include <stdio.h>

/* ---- acquire ---- */

/* A key without a row gets one, and a database without tables as well. */
static enum rc
ask_row(struct sql *db, instant until, bool *got, struct grant *g, struct fault *f)
{
	const struct row_driver *d = db->driver->row;
	const struct question add = {.text = d->add,
	    SQL_VALUES(SQL_TEXT(db->claim->key)),
	    .fields = d->add_fields};
	enum row_found found = ROW_HELD;
	enum rc rc = d->attempt(db, 0, until, &found, g, f);

	if (rc == RC_OK ? found == ROW_MISSING : sql_is_missing(db)) {
		/* it must be there, and seen by all, before it can be locked */
		rc = sql_ask_created(db, &add, until, NULL, f);
		if (rc == RC_OK)
			rc = d->attempt(db, 0, until, &found, g, f);
	}
	*got = rc == RC_OK && found == ROW_OURS;
	if (rc == RC_OK && !*got && d->see)
		rc = d->see(db, db->claim->key, until, f);
	return sql_explain_denial(db, rc, f);
}

static enum rc
wait_row(struct sql *db, int64_t ms, instant until, bool *got, struct grant *g,
    struct fault *f)
{
	enum row_found found = ROW_HELD;
	enum rc rc = db->driver->row->attempt(db, ms, until, &found, g, f);

	*got = rc == RC_OK && found == ROW_OURS;
	return rc;
}

static enum rc
row_acquire(struct sql *db, instant until, struct grant *g, struct fault *f)
{
	static const struct session_lock_way way = {ask_row, wait_row, false};

	return session_lock_acquire(db, &way, until, g, f);
}

/* ---- the hold ---- */

enum { STILL_BYTES = 256 };

/* The heartbeat's question, in `text`. */
static struct question
still_question(const struct sql *db, const char *end, char *text)
{
	const struct row_driver *d = db->driver->row;

	snprintf(
	    text, STILL_BYTES, "%s%" PRId64 "%s", d->still, row_lock_of(db)->number, end);
	return (struct question){.text = text, .fields = 1, .harmless = d->harmless};
}

enum rc
row_renew(struct sql *db, instant until, struct grant *g, struct fault *f)
{
	char text[STILL_BYTES];
	const struct question q = still_question(db, db->driver->row->still_end, text);

	return session_lock_renew(
	    db, &row_lock_of(db)->lock, &q, db->driver->row->errors_end, until, g, f);
}

static enum rc
row_release(struct sql *db, int status, instant until, struct fault *f)
{
	char text[STILL_BYTES];
	const struct question q = still_question(db, db->driver->row->release_end, text);

	(void)status;
	return session_lock_release(
	    db, &row_lock_of(db)->lock, &q, db->driver->row->last, until, f);
}

/* ---- looking and steering ---- */

static enum rc
row_each(struct sql *db, const struct look *look, struct fault *f)
{
	return db->driver->row->each(db, look, f);
}

/* Ends the session that has locked it, and its transaction with it. */
static enum rc
row_revoke(struct sql *db, const struct target *target, const char *record, bool force,
    instant until, struct fault *f)
{
	return db->driver->row->revoke(db, target, record, force, until, f);
}

const struct sql_mode row_mode = {
    .name = "row",
    .caps = CAP_SHARED | CAP_FORCE,
    .bytes = sizeof(struct row_lock),
    .acquire = row_acquire,
    .renew = row_renew,
    .release = row_release,
    .each = row_each,
    .revoke = row_revoke,
};
