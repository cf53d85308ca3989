/*
 * lease.c - mode=lease in PostgreSQL: the calls of schema.sql's functions, and wake-up locks.
 *
 *  1. A waiter on a direct connection sleeps in the server, on the wake-up lock (an advisory
 *     lock) of who is next before it, in chunks: a sleeping statement keeps a snapshot, for
 *     which CREATE INDEX CONCURRENTLY waits.  A release wakes those whom it grants, whoever
 *     else there is.  The first in line behind holders that are not exclusive sleeps in the
 *     client, for a notification: it cannot know which of them will make room.
 *  2. Behind a pooler (our server process is not the one that we were told of) nothing is
 *     kept in a session: every waiter asks now and then.
 *  3. What a confirmation writes is on disk before it is answered, together with the grant.
 *
 * Why locks, and not LISTEN and NOTIFY: a NOTIFY makes every listening session of
 * the database run, so its cost grows with the queue, and commits that notify take
 * turns in the cluster.
 */
#include "pg.h"

#include "backends/sql/lease.h"
#include "connection.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

/* The first half of the owner. */
static int64_t
number_of_wake_lock(const struct claim *claim)
{
	char first_half[17];

	snprintf(first_half, sizeof first_half, "%.16s", claim->owner);
	return (int64_t)strtoull(first_half, NULL, 16);
}

/*
 * Our wake-up lock is for as long as we wait and, with an exclusive lock, hold:
 * what comes behind another holder waits for no single one of them.
 */
static bool
wants_wake_lock(const struct sql *db)
{
	return kind_is_exclusive(db->claim->kind) || !lease_of(db)->held;
}

/* The connection may be another one than we asked on before. */
static void
note_connection(struct pg *pg)
{
	struct lease *l = lease_of(&pg->db);
	struct pg_wake *w = &pg->wake;

	if (w->serial != pg->db.serial) {
		w->abandoned = w->abandoned || l->has_own;
		l->has_own = w->is_direct = w->rehearsed = false;
		w->serial = pg->db.serial;
	}
	snprintf(w->pid, sizeof w->pid, "%d", pg->conn.pq->backendPID(pg->conn.pgconn));
	snprintf(w->take, sizeof w->take, "0");
	snprintf(w->give, sizeof w->give, "0");
	if (l->has_own || wants_wake_lock(&pg->db))
		snprintf(l->has_own ? w->give : w->take, sizeof w->give, "%" PRId64,
		    number_of_wake_lock(pg->db.claim));
}

static size_t
pg_values(struct sql *db, enum lease_call call, instant until, struct sql_value *values)
{
	struct pg_wake *w = &pg_of(db)->wake;

	(void)until;
	note_connection(pg_of(db));
	switch (call) {
	case LEASE_TAKE:
		snprintf(w->lease, sizeof w->lease, "%" PRId64 " ms",
		    ns_to_ms(db->claim->ttl));
		values[0] = SQL_TEXT(w->lease);
		values[1] = SQL_TEXT(w->pid);
		values[2] = SQL_TEXT(w->take);
		return 3;
	case LEASE_AWAIT:
		values[0] = SQL_TEXT(w->take);
		values[1] = SQL_TEXT(w->rehearsed ? "f" : "t");
		return 2;
	case LEASE_RELEASE:
		values[0] = SQL_TEXT(w->give);
		return 1;
	default:
		values[0] = SQL_TEXT(w->pid);
		values[1] = SQL_TEXT(w->take);
		return 2;
	}
}

/* Has the session got its wake-up lock?  NULL: it was not to take it. */
static void
note_wake_lock(struct lease *l, const struct row *r, int field)
{
	bool has;

	if (row_boolean(r, field, &has))
		l->has_own = l->has_own || has;
}

/*
 * What the server has given back of a session that was granted: if not exclusive, its
 * wake-up lock; and it listens no more.
 */
static void
note_given_back(struct lease *l)
{
	if (!kind_is_exclusive(l->claim->kind))
		l->has_own = false;
	l->is_listening = false;
}

enum { ENTER_WHO, ENTER_DIRECT, ENTER_WAKES, ENTER_LISTENING };

static bool
heard_place(struct pg *pg, struct lease *l, const struct row *r, int first)
{
	struct standing *s = &l->standing;

	if (!row_boolean(r, first + ENTER_DIRECT, &pg->wake.is_direct) ||
	    (s->code == QUEUED &&
		!row_boolean(r, first + ENTER_LISTENING, &l->is_listening)))
		return false;
	note_wake_lock(l, r, first + ENTER_WAKES);
	if (s->code == GRANTED)
		note_given_back(l);
	if (!row_text(r, first + ENTER_WHO, s->done.who, sizeof s->done.who))
		s->done.who[0] = '\0';
	return true;
}

static bool
pg_heard(struct sql *db, enum lease_call call, const struct row *r, int first)
{
	struct lease *l = lease_of(db);
	struct pg *pg = pg_of(db);

	switch (call) {
	case LEASE_TAKE:
		note_wake_lock(l, r, first + 1);
		return row_boolean(r, first, &pg->wake.is_direct);
	case LEASE_ENTER:
		return heard_place(pg, l, r, first);
	case LEASE_AWAIT:
		pg->wake.rehearsed = true;
		note_wake_lock(l, r, first);
		if (l->standing.token)
			note_given_back(l);
		return true;
	default:
		note_wake_lock(l, r, first);
		return true;
	}
}

static bool
pg_has_wake_lock(const struct sql *db)
{
	return pg_const(db)->wake.is_direct;
}

/* Only a rehearsed await() is quick. */
static const char *
pg_own_wake_lock(struct sql *db)
{
	struct pg_wake *w = &pg_of(db)->wake;

	if (w->serial != db->serial || !lease_of(db)->has_own || !w->rehearsed)
		return NULL;
	snprintf(w->give, sizeof w->give, "%" PRId64, number_of_wake_lock(db->claim));
	return w->give;
}

/*
 * Ends sessions that are left over from a broken connection and keep our wake-up lock: who
 * waits for it would wait for nobody.
 */
static void
pg_released(struct sql *db, instant until)
{
	const struct question q = {.text = "SELECT dlock.end_old_sessions($1)",
	    SQL_VALUES(SQL_TEXT(db->claim->owner)),
	    .fields = 1};
	struct fault unheard;

	lease_of(db)->has_own = false;
	if (pg_of(db)->wake.abandoned)
		(void)sql_exec(db, &q, until, NULL, &unheard);
	pg_of(db)->wake.abandoned = false;
}

const struct lease_driver pg_lease = {
    .texts =
	{
	    [LEASE_TAKE] =
		{"SELECT granted, direct, wakes FROM dlock.take_unclaimed($1, $2, $3, $4, $5, $6)",
		    3},
	    [LEASE_ENTER] =
		{"SELECT code, granted, slot, place, left_ms, held_ms, holder, holders, held_kind, held_room, next, "
		 "ahead, done_by, began_ms, age_ms, who, direct, wakes, listening "
		 "FROM dlock.enter_queue($1, $2, $3, $4, $5, $6, $7, $10, $11, $8, $9)",
		    19},
	    [LEASE_AWAIT] = {"SELECT * FROM dlock.await($1, $2, $3, $4, $5, $6)", 12},
	    [LEASE_RENEW] =
		{"SELECT code, wanted_by, wakes FROM dlock.renew($1, $2, $3, $4, $5, $6)",
		    3},
	    [LEASE_RELEASE] = {"SELECT dlock.release($1, $2, $3)", 1},
	    [LEASE_LIST] = {"SELECT * FROM dlock.list_claims($1, $2, $3, $4, $5)", 12},
	    [LEASE_LAST_RUN] = {"SELECT * FROM dlock.last_run($1)", 7},
	    [LEASE_ASK_BACK] = {"SELECT dlock.ask_back($1, $2, $3, $4)", 1},
	    [LEASE_TAKE_AWAY] = {"SELECT dlock.take_away($1, $2, $3, $4)", 1},
	    [LEASE_FREEZE] =
		{"SELECT dlock.freeze($1, $2, $3::pg_catalog.float8 OPERATOR(pg_catalog.*) "
		 "'1 ms'::pg_catalog.interval)",
		    1},
	    [LEASE_THAW] = {"SELECT dlock.thaw($1)", 1},
	},
    .release_among = "SELECT dlock.release_among($1, $2, $3)",
    .release_of_job = "SELECT dlock.release_among($1, $2, $5, $3, $4)",
    .any_order = true,
    .damaged = "a row of dlock.claims that no dlock has written",
    .values = pg_values,
    .heard = pg_heard,
    .has_wake_lock = pg_has_wake_lock,
    .released = pg_released,
    .is_notified = connection_was_notified,
    .own_wake_lock = pg_own_wake_lock,
};
