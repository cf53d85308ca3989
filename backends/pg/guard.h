/*
 * guard.h - whose functions a session may call.
 *
 * A function of the schema dlock can do, in the name of whoever calls it, all
 * that this one may.  Whoever owns a database can make that schema.  So a role
 * that has rights beyond its databases (a superuser, BYPASSRLS, CREATEROLE,
 * REPLICATION, a member of one that has, or of pg_execute_server_program and the
 * like) calls nothing of a schema in which anything belongs to others than a
 * superuser or itself, or where others may put things.
 *
 * An ordinary role pays no round trip for that: guard_first goes before the
 * first question of each connection in the same packet, and where it fails the
 * server does not even look at the question.
 */
#ifndef DLOCK_PG_GUARD_H
#define DLOCK_PG_GUARD_H

#include "question.h"

/* The version of schema.sql that goes with this client, and what a schema has that serves it. */
#define SCHEMA_VERSION 6
#define SCHEMA_SERVES "serves_6"

/*
 * A driver's exec(): a question that uses the schema dlock is only
 * asked once that is known to be harmless.
 */
enum rc guard_exec(struct sql *, const struct question *, instant until, struct answer *,
    struct fault *);

/*
 * Connects if need be, and looks whether the functions may be called.  For those
 * that ask first within a transaction of their own: elsewhere this is part of the
 * first question.
 */
enum rc guard_pass(struct connection *, instant until, struct fault *);

#endif
