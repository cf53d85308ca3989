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
#include "backends/kind.h"
#include "pg.h"
#include "backends/sighting.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define PAGE "500"

/* Who stands in a row, and in which order they are told. */
enum turn { TURN_HOLDER, TURN_WAITER, TURN_FREEZE, TURNS };

/* The columns of list_claims(). */
enum {
	KEY,
	TURN,
	NUMBER,
	KIND,
	ROOM,
	TOKEN,
	SLOT,
	SINCE,
	ENDS,
	MOMENT,
	IS_WANTED,
	RECORD,
	CLAIM_FIELDS
};

/* How far a look has come. */
struct survey {
	struct sighting seen;
	int64_t turn, number; /* of the last row, in its key */
};

/* ---- what is seen ---- */

static int64_t
read_time(const struct pq *pq, const PGresult *r, int row, int field)
{
	int64_t t;

	return field_integer_in(pq, r, row, field, 0, INT64_MAX, &t) ? t : EPOCH_NONE;
}

/* Which kind of lock it is, and what goes with that.  False: none that makes sense. */
static bool
read_lock(const struct pq *pq, const PGresult *r, int row, struct entry *e)
{
	const char *word = field_text_in(pq, r, row, KIND);
	int64_t room, token, slot;

	if (!word || !field_integer_in(pq, r, row, ROOM, 0, LIMIT_MAX, &room))
		return false;
	if (e->kind == ENTRY_FREEZE)
		return strcmp(word, KIND_WORD_FREEZE) == 0;
	if (!kind_of_word(word, &e->lock) || (e->lock == KIND_LIMIT) != (room > 0))
		return false;
	e->limit = room;
	if (e->kind == ENTRY_WAITER)
		return true;
	if (!field_integer_in(pq, r, row, TOKEN, 1, INT64_MAX, &token) ||
	    !field_integer_in(pq, r, row, SLOT, 0, room > 0 ? room - 1 : 0, &slot))
		return false;
	e->token = token;
	e->slot = room > 0 ? (int)slot : -1;
	return field_boolean_in(pq, r, row, IS_WANTED, &e->revoked);
}

static struct entry
read_claim(const struct pq *pq, const PGresult *r, int row, struct survey *s)
{
	static const enum entry_kind kinds[TURNS] = {
	    ENTRY_HOLDER, ENTRY_WAITER, ENTRY_FREEZE};
	struct entry e = {.kind = kinds[s->turn],
	    .key = s->seen.key,
	    .slot = -1,
	    .record = field_text_in(pq, r, row, RECORD),
	    .since = read_time(pq, r, row, SINCE),
	    .until = read_time(pq, r, row, ENDS)};

	if (!read_lock(pq, r, row, &e))
		e = (struct entry){.kind = ENTRY_UNKNOWN,
		    .key = s->seen.key,
		    .slot = -1,
		    .since = EPOCH_NONE,
		    .until = EPOCH_NONE,
		    .what = "a row of dlock.claims that no dlock has written"};
	return e;
}

/* Where a row stands.  False: a server that makes no sense, or goes back. */
static bool
read_position(const struct pq *pq, const PGresult *r, int row, struct survey *s)
{
	const char *key = field_text_in(pq, r, row, KEY);
	int64_t turn, number;
	int order;

	if (!key || strlen(key) >= sizeof s->seen.key ||
	    !field_integer_in(pq, r, row, TURN, 0, TURNS - 1, &turn) ||
	    !field_integer_in(pq, r, row, NUMBER, 0, INT64_MAX, &number) ||
	    !field_integer_in(pq, r, row, MOMENT, 0, INT64_MAX, &s->seen.now))
		return false;
	order = strcmp(key, s->seen.key);
	if (order == 0 && (turn < s->turn || (turn == s->turn && number <= s->number)))
		return false;
	sighting_key(&s->seen, key);
	if (turn > TURN_WAITER)
		sighting_tell_waiting(&s->seen);
	s->turn = turn;
	s->number = number;
	return true;
}

static void
see_claim(const struct pq *pq, const PGresult *r, int row, struct survey *s)
{
	struct entry e = read_claim(pq, r, row, s);

	sighting_tell_one(&s->seen, &e);
}

/* ---- each ---- */

/* The next page; *n: how many rows it had. */
static enum rc
see_claims(struct pg *pg, struct survey *s, int *n, struct fault *f)
{
	char turn[24], number[24];
	const char *values[] = {s->seen.look->key, s->seen.key, turn, number, PAGE};
	const struct question q = {
	    .sql = "SELECT * FROM dlock.list_claims($1, $2, $3, $4, $5)",
	    .n = sizeof values / sizeof *values,
	    .values = values,
	    .many = true};
	const struct pq *pq = pg->conn.pq;
	PGresult *r;
	enum rc rc;

	*n = 0;
	snprintf(turn, sizeof turn, "%" PRId64, s->turn);
	snprintf(number, sizeof number, "%" PRId64, s->number);
	rc = pg_ask_existing(pg, &q, CLAIM_FIELDS, s->seen.look->until, &r, f);
	if (rc != RC_OK || !r)
		return rc;
	*n = pq->ntuples(r);
	for (int row = 0; row < *n && rc == RC_OK && !s->seen.enough; row++)
		if (read_position(pq, r, row, s))
			see_claim(pq, r, row, s);
		else
			rc = pg_makes_no_sense(pg, RC_PROTOCOL, f);
	pq->clear(r);
	return rc;
}

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

static void
see_run(const struct pq *pq, const PGresult *r, struct survey *s)
{
	struct entry e = {.kind = ENTRY_LAST,
	    .key = s->seen.look->key,
	    .slot = -1,
	    .record = field_text_in(pq, r, 0, RUN_RECORD),
	    .since = read_time(pq, r, 0, RUN_BEGAN),
	    .until = read_time(pq, r, 0, RUN_ENDED),
	    .once = field_text_in(pq, r, 0, RUN_ID)};
	int64_t status, token;

	if (!field_integer(pq, r, RUN_MOMENT, 0, INT64_MAX, &s->seen.now) ||
	    !field_integer(pq, r, RUN_STATUS, 0, UINT8_MAX, &status))
		return;
	if (field_integer(pq, r, RUN_TOKEN, 1, INT64_MAX, &token))
		e.token = token;
	e.status = (int)status;
	sighting_tell(&s->seen, &e);
}

static enum rc
see_last_run(struct pg *pg, struct survey *s, struct fault *f)
{
	const struct question q = {.sql = "SELECT * FROM dlock.last_run($1)",
	    .n = 1,
	    .values = &s->seen.look->key,
	    .many = true};
	PGresult *r;
	enum rc rc = pg_ask_existing(pg, &q, RUN_FIELDS, s->seen.look->until, &r, f);

	if (rc != RC_OK || !r)
		return rc;
	if (pg->conn.pq->ntuples(r) > 0)
		see_run(pg->conn.pq, r, s);
	pg->conn.pq->clear(r);
	return rc;
}

static enum rc
lease_each(struct pg *pg, const struct look *look, struct fault *f)
{
	struct survey s = {.seen.look = look, .turn = -1};
	enum rc rc;
	int n;

	pg->conn.reads = true;
	snprintf(s.seen.key, sizeof s.seen.key, "%s", look->key ? look->key : "");
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
