/*
 * mysql.h - a store of the mysql backend, and its three modes.
 *
 *	lease   a row with an end, which outlives connection and server
 *		(sql/lease.h, lease.c, schema.sql)
 *	row     SELECT ... FOR UPDATE in an open transaction (row.c)
 *	named   a session's GET_LOCK, as other programs take it (named.c)
 *
 * Below them: mysql.c (settings, schema, driver), session.h (one session, statements
 * with deadlines), errors.h (what errors mean), statement.h (statements), dial.h (the login,
 * in a thread), login.h, lib.h.
 */
#ifndef DLOCK_MYSQL_MYSQL_H
#define DLOCK_MYSQL_MYSQL_H

#include "session.h"

#include "backends/sql/lease.h"

extern const struct sql_mode mysql_row_mode, mysql_named_mode;
extern const struct lease_driver mysql_lease;

struct mysql {
	struct sql db;
	const char *name; /* of mode=named, as stated; NULL: a key has one */
	struct session session;
};

static inline struct mysql *
mysql_of(struct sql *db)
{
	return (struct mysql *)db;
}

static inline const struct mysql *
mysql_const(const struct sql *db)
{
	return (const struct mysql *)db;
}

/* session_exec() on its session. */
enum rc mysql_exec(struct sql *, const struct question *, instant until, struct answer *,
    struct fault *);

#endif
