/*
 * row.c - what a session lock asks where the lock is a row.
 */
#include "row.h"

#include <inttypes.h>
#include <stdio.h>

/* A key without a row gets one, and a database without tables as well. */
static enum rc
try_row(struct sql *db, instant until, enum row_found *found, struct grant *g,
    struct fault *f)
{
	const struct row_driver *d = db->driver->row;
	const struct question add = {.text = d->add,
	    SQL_VALUES(SQL_TEXT(db->claim->key)),
	    .fields = d->add_fields};
	enum rc rc = d->attempt(db, 0, until, found, g, f);

	if (rc == RC_OK ? *found == ROW_MISSING : sql_is_missing(db)) {
		/* it must be there, and seen by all, before it can be locked */
		rc = sql_ask_created(db, &add, until, NULL, f);
		if (rc == RC_OK)
			rc = d->attempt(db, 0, until, found, g, f);
	}
	return rc;
}

/* Another run may be making the tables: ours is there then, and what is told of locks is not. */
enum rc
row_ask(struct sql *db, instant until, bool *got, struct grant *g, struct fault *f)
{
	const struct row_driver *d = db->driver->row;
	enum row_found found = ROW_HELD;
	enum rc rc = try_row(db, until, &found, g, f);

	if (rc != RC_OK && rc != RC_STOP && sql_is_missing(db)) {
		rc = db->driver->create(db, until, f);
		if (rc == RC_OK)
			rc = d->attempt(db, 0, until, &found, g, f);
	}
	*got = rc == RC_OK && found == ROW_OURS;
	if (rc == RC_OK && !*got && d->see)
		rc = d->see(db, db->claim->key, until, f);
	return sql_explain_denial(db, rc, f);
}

enum rc
row_wait(struct sql *db, int64_t ms, instant until, bool *got, struct grant *g,
    struct fault *f)
{
	enum row_found found = ROW_HELD;
	enum rc rc = db->driver->row->attempt(db, ms, until, &found, g, f);

	*got = rc == RC_OK && found == ROW_OURS;
	return rc;
}

struct question
row_still(const struct sql *db, bool ends, char *text)
{
	const struct row_driver *d = db->driver->row;

	snprintf(text, STILL_BYTES, "%s%" PRId64 "%s", d->still, row_lock_of(db)->number,
	    ends ? d->release_end : d->still_end);
	return (struct question){.text = text, .fields = 1, .harmless = d->harmless};
}
