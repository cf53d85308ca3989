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

#include "session.h"

/* An error (GUARD_STOPS, a division by zero) where the role has such rights; otherwise no row. */
extern const char guard_first[];
#define GUARD_STOPS "22012"

/* One boolean: may such a role call what is there now?  NULL: there is no schema. */
extern const char guard_last[];

#endif
