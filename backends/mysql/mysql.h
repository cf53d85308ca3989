/*
 * mysql.h - a store of the mysql backend, and its three modes.
 *
 *	lease   a row with an end, which outlives connection and server
 *		(sql/lease.h, lease.c, schema.sql)
 *	row     SELECT ... FOR UPDATE in an open transaction (row.c)
 *	named   a session's GET_LOCK, as other programs take it (named.c)
 *
 * Below them: driver.c (settings, schema, what sql/ is given), session.h (one session, statements
 * with deadlines), rights.h (whether they may be asked), statement.c (how they are written),
 * errors.h (what errors mean), connect.h (connecting, in a thread), login.h, lib.h.
 */
#ifndef DLOCK_MYSQL_MYSQL_H
#define DLOCK_MYSQL_MYSQL_H

#include "lib.h"
#include "login.h"

#include "backends/sql/sql.h"

struct connecting;
enum { STATEMENT_BYTES = 12288 }; /* a key, and some records, twice over */

/* What a session has found out about its server. */
struct server_facts {
	bool is_mariadb;
	bool is_galera; /* a node of a cluster (wsrep_on) */
	bool is_unfit;  /* as unfit_sql says */
	/* nobody is in between: the server's number of this session is ours */
	bool is_direct;
	/* its clock, when ours was `seen`: microseconds since 1970 */
	int64_t clock_us;
	instant seen;
};

struct session {
	struct sql *db;
	const struct libmariadb *my;
	struct login login;
	/*
	 * For a lock that the session keeps: is something amiss, in SQL.  It ends then when it has
	 * been idle for the ttl.  NULL: do not ask; it ends some time after that.
	 */
	const char *unfit_sql;
	MYSQL *mysql;                  /* NULL: not connected */
	struct connecting *connecting; /* one on its way */
	struct server_facts server;
	unsigned last_error;             /* its number; 0: there was none */
	char statement[STATEMENT_BYTES]; /* what was asked last */
	struct pending {
		enum stage { STAGE_NONE, STAGE_QUERY, STAGE_STORE, STAGE_NEXT } stage;
		int status;      /* what libmariadb waits for; 0: nothing */
		int error;       /* of the stage that has ended */
		MYSQL_RES *kept; /* the first result; */
		MYSQL_RES *came; /* and the one just read */
		unsigned results;
		size_t left; /* so many bytes the answer may still have */
	} pending;
};

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

extern const struct sql_mode mysql_named_mode;
extern const struct lease_driver mysql_lease;
extern const struct row_driver mysql_row;

#endif
