/*
 * lease_rows.h - what the tables of a database's mode=lease tell of leases, row by row.
 *
 * A look reads them a page at a time, and each page on behind the last row of the one
 * before (seen.key, turn, number).
 */
#ifndef DLOCK_LEASE_ROWS_H
#define DLOCK_LEASE_ROWS_H

#include "row.h"
#include "sighting.h"

/* The columns of a page. */
enum {
	LEASE_KEY,
	LEASE_TURN, /* 0 holds, 1 waits, 2 is a freeze: the order in which they are told */
	LEASE_NUMBER, /* and those of one turn by this; unique */
	LEASE_KIND,   /* as kind.h has it */
	LEASE_ROOM,   /* of a limit, else 0 */
	LEASE_TOKEN,
	LEASE_SLOT,
	LEASE_SINCE, /* this and the next: microseconds since 1970; NULL: none */
	LEASE_ENDS,
	LEASE_MOMENT, /* the server's clock */
	LEASE_IS_WANTED,
	LEASE_RECORD,
	LEASE_ROW_FIELDS
};

/* And of a job's last run. */
enum {
	RUN_ID,
	RUN_BEGAN,
	RUN_ENDED,
	RUN_STATUS,
	RUN_TOKEN,
	RUN_MOMENT,
	RUN_RECORD,
	RUN_FIELDS
};

/* How far a look has come. */
struct lease_rows {
	struct sighting seen;
	int64_t turn, number; /* of the last row, below its key */
	bool any_order;      /* of keys: the database's need not be that of their bytes */
	const char *damaged; /* what to call a row that no dlock has written */
};

/* Before the first row. */
void lease_rows_begin(struct lease_rows *, const struct look *);

/* Tells of the next row.  False: a server that makes no sense, or goes back. */
bool lease_rows_see(struct lease_rows *, const struct row *);

/* Tells of the last run, if its row makes sense. */
void lease_rows_see_run(struct lease_rows *, const struct row *);

#endif
