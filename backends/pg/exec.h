/*
 * exec.h - one statement, its answer, the time for both, and whose functions it may call.
 *
 * A function of the schema dlock can do, in the name of whoever calls it, all
 * that this one may.  Whoever owns a database can make that schema.  So a role
 * that has rights beyond its databases (a superuser, BYPASSRLS, CREATEROLE,
 * REPLICATION, a member of one that has, or of pg_execute_server_program and the
 * like) calls nothing of a schema in which anything belongs to others than a
 * superuser or itself, or where others may put things.
 *
 * An ordinary role pays no round trip for that: the guard goes before the
 * first question of each connection in the same packet, and where it fails the
 * server does not even look at the question.
 */
#ifndef DLOCK_PG_EXEC_H
#define DLOCK_PG_EXEC_H

#include "pg.h"

/* The version of schema.sql that goes with this client, and what a schema has that serves it. */
#define SCHEMA_VERSION 6
#define SCHEMA_SERVES "serves_6"

/*
 * As struct sql_driver has them.  On the open connection: a question that uses the schema dlock
 * is only asked once that is known to be harmless.
 */
enum rc exec_question(struct sql *, const struct question *, instant until,
    struct answer *, struct fault *);
enum rc exec_send(struct sql *, const struct question *, instant until, struct fault *);
enum rc exec_receive(struct sql *, const struct question *, instant until,
    struct answer *, struct fault *);
bool exec_is_pending(const struct sql *);
bool exec_read_row(struct answer *, int n);
void exec_drop(struct answer *);

#endif
