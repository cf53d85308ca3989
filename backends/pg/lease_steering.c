/*
 * lease_steering.c - looks at the table of mode=lease, and steers it.
 *
 *  1. A look is a page at a time: one statement that cannot write, and reads on behind
 *     the last row of the page before.  It makes no schema, and takes a standby
 *     where there is no primary.
 *  2. A grant is named by its token, which no other of the database has.
 *  3. What is asked of a holder stands in its row, and dies with it.  What was taken away by
 *     force is remembered for a day: for its holder, and for who has to ask twice.
 *  4. A freeze is a row among those who hold (schema.sql): a key that has none costs
 *     nobody anything.
 */
#include "pg.h"

#include "backends/sql/lease_rows.h"

#include <inttypes.h>
#include <stdio.h>

#define PAGE "500"

/* ---- each ---- */

/* The next page; *n: how many rows it had. */
static enum rc
see_claims(struct pg *pg, struct lease_rows *s, int *n, struct fault *f)
{
	char turn[24], number[24];
	const char *values[] = {s->seen.look->key, s->seen.key, turn, number, PAGE};
	const struct question q = {
	    .sql = "SELECT * FROM dlock.list_claims($1, $2, $3, $4, $5)",
	    .n = sizeof values / sizeof *values,
	    .values = values,
	    .many = true};
	const struct pq *pq = pg->conn.pq;
	struct fields room;
	struct row row;
	PGresult *r;
	enum rc rc;

	*n = 0;
	snprintf(turn, sizeof turn, "%" PRId64, s->turn);
	snprintf(number, sizeof number, "%" PRId64, s->number);
	rc = pg_ask_existing(pg, &q, LEASE_ROW_FIELDS, s->seen.look->until, &r, f);
	if (rc != RC_OK || !r)
		return rc;
	*n = pq->ntuples(r);
	for (int i = 0; i < *n && rc == RC_OK && !s->seen.enough; i++) {
		row = field_row(pq, r, i, &room);
		if (!lease_rows_see(s, &row))
			rc = pg_makes_no_sense(pg, RC_PROTOCOL, f);
	}
	pq->clear(r);
	return rc;
}

static enum rc
see_last_run(struct pg *pg, struct lease_rows *s, struct fault *f)
{
	const struct question q = {.sql = "SELECT * FROM dlock.last_run($1)",
	    .n = 1,
	    .values = &s->seen.look->key,
	    .many = true};
	struct fields room;
	struct row row;
	PGresult *r;
	enum rc rc = pg_ask_existing(pg, &q, RUN_FIELDS, s->seen.look->until, &r, f);

	if (rc != RC_OK || !r)
		return rc;
	if (pg->conn.pq->ntuples(r) > 0) {
		row = field_row(pg->conn.pq, r, 0, &room);
		lease_rows_see_run(s, &row);
	}
	pg->conn.pq->clear(r);
	return rc;
}

static enum rc
lease_each(struct pg *pg, const struct look *look, struct fault *f)
{
	struct lease_rows s = {.any_order = true,
	    .damaged = "a row of dlock.claims that no dlock has written"};
	enum rc rc;
	int n;

	pg->conn.reads = true;
	lease_rows_begin(&s, look);
	do
		rc = see_claims(pg, &s, &n, f);
	while (rc == RC_OK && n > 0 && !s.seen.enough);
	if (rc == RC_OK)
		sighting_tell_waiting(&s.seen);
	if (rc == RC_OK && look->key && !s.seen.enough)
		rc = see_last_run(pg, &s, f);
	return rc;
}

/* ---- steering ---- */

/*
 * Asks for something that is done or, *done false, has nothing to be done to.
 */
static enum rc
ask_whether(
    struct pg *pg, const struct question *q, instant until, bool *done, struct fault *f)
{
	PGresult *r;
	enum rc rc;

	*done = false;
	pg->conn.reads = false;
	rc = pg_ask_existing(pg, q, 1, until, &r, f);
	if (rc == RC_OK && r && !field_boolean(pg->conn.pq, r, 0, done))
		rc = pg_makes_no_sense(pg, RC_PROTOCOL, f);
	pg->conn.pq->clear(r);
	return rc;
}

static enum rc
lease_revoke(struct pg *pg, const struct target *target, const char *record, bool force,
    instant until, struct fault *f)
{
	char token[24];
	const char *values[] = {target->key, token, target->owner, record};
	const struct question q = {.sql = force ? "SELECT dlock.take_away($1, $2, $3, $4)"
						: "SELECT dlock.ask_back($1, $2, $3, $4)",
	    .n = sizeof values / sizeof *values,
	    .values = values};
	bool done = false;
	enum rc rc = RC_OK;

	snprintf(token, sizeof token, "%" PRIu64, target->token);
	if (target->token > 0 && target->token <= INT64_MAX)
		rc = ask_whether(pg, &q, until, &done, f);
	if (rc == RC_OK && !done)
		rc = fault_set(
		    f, RC_LOST, "%s has no such grant (any more)", pg->conn.where);
	return rc;
}

static enum rc
lease_freeze(struct pg *pg, const char *key, const char *record, int64_t length,
    instant until, struct fault *f)
{
	char text[32];
	const char *values[] = {key, record, length == NEVER ? NULL : text};
	const struct question q = {.sql = "SELECT dlock.freeze($1, $2, $3)",
	    .n = sizeof values / sizeof *values,
	    .values = values};
	instant sent;

	pg->conn.reads = false;
	snprintf(text, sizeof text, "%" PRId64 " ms", ns_to_ms(length));
	return pg_ask(pg, &q, 1, until, &sent, NULL, f);
}

static enum rc
lease_thaw(struct pg *pg, const char *key, instant until, struct fault *f)
{
	const struct question q = {
	    .sql = "SELECT dlock.thaw($1)", .n = 1, .values = &key};
	bool done;
	enum rc rc = ask_whether(pg, &q, until, &done, f);

	if (rc != RC_OK || done)
		return rc;
	if (pg->conn.pending.again)
		return fault_set(f, RC_AGAIN,
		    "%s closed the connection before it answered", pg->conn.where);
	return fault_set(f, RC_LOST, "%s: it is not frozen", pg->conn.where);
}

const struct steering lease_steering = {
    .each = lease_each,
    .revoke = lease_revoke,
    .freeze = lease_freeze,
    .thaw = lease_thaw,
};
