/*
 * lease.c - mode=lease in PostgreSQL: what its schema.sql needs besides.
 *
 *  1. A waiter on a direct connection sleeps in the server, on the wake-up lock (an advisory
 *     lock) of the claim that is next before it, in chunks: a sleeping statement keeps a
 *     snapshot, for which CREATE INDEX CONCURRENTLY waits.  A release wakes those whom it
 *     grants, whoever else there is.  The first in line behind holders that are not exclusive
 *     sleeps in the client, for a notification: it cannot know which of them will make room.
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

#include <stdio.h>
#include <stdlib.h>

static int64_t
server_process(const struct sql *db)
{
	const struct connection *c = &pg_const(db)->conn;

	return c->pq->backendPID(c->pgconn);
}

/* The first half of the owner. */
static int64_t
number_of_wake_lock(const struct sql *db)
{
	char first_half[17];

	snprintf(first_half, sizeof first_half, "%.16s", db->claim->owner);
	return (int64_t)strtoull(first_half, NULL, 16);
}

const struct lease_driver pg_lease = {
    .any_order = true,
    .releases_alone = true,
    .damaged = "a row of dlock.claims that no dlock has written",
    .freeze =
	"SELECT dlock.freeze($1, $2, $3::pg_catalog.float8 OPERATOR(pg_catalog.*) '1 ms'::pg_catalog.interval)",
    .end_old_sessions = "SELECT dlock.end_old_sessions($1)",
    .end_old_fields = 1,
    .session_number = server_process,
    .wake_number = number_of_wake_lock,
    .is_notified = connection_was_notified,
};
