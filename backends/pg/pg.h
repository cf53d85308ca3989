/*
 * pg.h - a store of the pg backend, and its three modes.
 *
 *	lease      a row with an end, which outlives connection and server (sql/lease.h)
 *	advisory   a session's advisory lock, as other programs take it (advisory.c)
 *	row        SELECT ... FOR UPDATE in an open transaction (row.c)
 */
#ifndef DLOCK_PG_PG_H
#define DLOCK_PG_PG_H

#include "question.h"

#include "backends/sql/lease.h"

extern const struct sql_mode advisory_mode, row_mode;
extern const struct lease_driver pg_lease;

/* mode=lease's own: what a connection has of us ends with it. */
struct pg_wake {
	unsigned serial; /* of that connection */
	char pid[16];    /* its server process, as we were told */
	bool is_direct;  /* no pooler in between */
	bool rehearsed;  /* await() has done so */
	bool
	    abandoned; /* a session that had our wake-up lock may live on, at the server alone */
	/* that lock's number: where it is to be taken, or given back; else "0" */
	char take[24], give[24];
	char lease[32]; /* of the claim, as an interval */
};

struct pg {
	struct sql db;
	const char *key, *derive; /* of mode=advisory; NULL: not stated */
	struct connection conn;
	struct pg_wake wake;
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

/*
 * Creates the schema, or brings it up to date.
 */
enum rc pg_create_schema(struct sql *, instant until, struct fault *);

#endif
