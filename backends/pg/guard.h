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
#define SCHEMA_VERSION 5
#define SCHEMA_SERVES "serves_5"

/*
 * An error (GUARD_STOPS, a division by zero) where the role has such rights; otherwise
 * no row.  An error of a missing function (or schema) where the schema does not serve this
 * version: a look at its name, behind that, for nothing of it may be called yet.
 */
extern const char guard_first[];
#define GUARD_STOPS "22012"

/* Is it known without a question that the role has such rights (or may have them)? */
bool guard_is_needed(const struct connection *);

/*
 * For a role that has them: trusts the functions, if that may be.  RC_CONFIG: it may
 * not, and the connection is closed; or there is no schema (3F000).
 */
enum rc guard_inspect(struct connection *, instant until, struct fault *);

/*
 * Connects if need be, and looks whether the functions may be called.  For those
 * that ask first within a transaction of their own: elsewhere this is part of the
 * first question.
 */
enum rc guard_pass(struct connection *, instant until, struct fault *);

#endif
