/*
 * pg.h - a store of the pg backend, and its three modes.
 *
 *	lease      a row with an end, which outlives connection and server
 *	           (sql/lease.h, lease.c, schema.sql)
 *	advisory   a session's advisory lock, as other programs take it (advisory.c)
 *	row        SELECT ... FOR UPDATE in an open transaction (row.c)
 *
 * Below them: driver.c (settings, schema, what sql/ is given), guard.h (whose functions may be
 * called), question.h (one statement), connection.h, connecting.h (a login, in a thread),
 * said.h (what errors mean), wire.h, lib.h.
 */
#ifndef DLOCK_PG_PG_H
#define DLOCK_PG_PG_H

#include "backends/sql/sql.h"
#include "lib.h"
#include "wire.h"

/* What a server has said last. */
struct said {
	/* of the last error or last words; "" where it was none of the server's */
	char sqlstate[6];
	/*
	 * the answer came before a standby had what it tells of: somebody cancelled that
	 * wait
	 */
	bool unreplicated;
};

struct connecting;

/* How far the functions of the schema dlock are known not to be foreign (guard.h). */
struct trust {
	bool full;    /* they may be called over this connection */
	bool asked;   /* the question that is out follows upon the guard */
	bool stopped; /* which has kept it from being run */
};

/* Where it goes, as the user has stated it. */
struct connection_site {
	const char *conninfo; /* URI or keywords; "" for libpq's defaults */
	bool is_default;      /* no host was stated: libpq says which one it takes */
};

struct connection {
	struct sql *db;
	const struct pq *pq;
	struct connection_site site;
	PGconn *pgconn;                /* NULL: not connected */
	struct connecting *connecting; /* one on its way */
	struct wire wire;
	struct said said;
	struct trust trust;
	struct pending {
		bool out;       /* a question is */
		PGresult *kept; /* what has come of its answer */
	} pending;
};

struct pg {
	struct sql db;
	const char *key, *derive; /* of mode=advisory; NULL: not stated */
	struct connection conn;
};

static inline struct pg *
pg_of(struct sql *db)
{
	return (struct pg *)db;
}

static inline const struct pg *
pg_const(const struct sql *db)
{
	return (const struct pg *)db;
}

extern const struct sql_mode advisory_mode;
extern const struct lease_driver pg_lease;
extern const struct row_driver pg_row;

/*
 * Creates the schema, or brings it up to date.
 */
enum rc pg_create_schema(struct sql *, instant until, struct fault *);

#endif
