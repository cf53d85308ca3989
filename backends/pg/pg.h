/*
 * pg.h - what the three modes of the pg backend share.
 *
 *	lease      a row with an end, which outlives connection and server (lease.c)
 *	advisory   a session's advisory lock, as other programs take it (advisory.c)
 *	row        SELECT ... FOR UPDATE in an open transaction (row.c)
 */
#ifndef DLOCK_PG_PG_H
#define DLOCK_PG_PG_H

#include "ask.h"
#include "field.h"

#include "backends/sql/lease.h"

struct pg;

/* What a mode does of struct admin_ops; NULL: nothing, it lacks the capability. */
struct steering {
	enum rc (*each)(struct pg *, const struct look *, struct fault *);
	enum rc (*revoke)(struct pg *, const struct target *, const char *record,
	    bool force, instant until, struct fault *);
	enum rc (*freeze)(struct pg *, const char *key, const char *record,
	    int64_t length, instant until, struct fault *);
	enum rc (*thaw)(struct pg *, const char *key, instant until, struct fault *);
};

extern const struct steering lease_steering, advisory_steering, row_steering;

/* What a mode does of struct lock_ops. */
struct mode {
	const char *name;
	unsigned caps;
	size_t bytes; /* of its own struct, which begins as zeros */
	enum rc (*acquire)(struct pg *, instant until, struct grant *, struct fault *);
	enum rc (*renew)(struct pg *, instant until, struct grant *, struct fault *);
	enum rc (*release)(struct pg *, int status, instant until, struct fault *);
	const struct steering *steering;
};

extern const struct mode lease_mode, advisory_mode, row_mode;

struct pg {
	struct store base;
	struct stated {
		const struct mode *mode;
		const char *key, *derive; /* of mode=advisory; NULL: not stated */
	} stated;
	void *own; /* the mode's: pg_own() */
	struct connection conn;
	struct retry patience;
	const struct claim *claim;
	char lease_ms[24]; /* of the claim, as a parameter */
};

extern const struct backend pg_backend;

static inline struct pg *
pg_of(struct store *s)
{
	return (struct pg *)store_of(s, &pg_backend);
}

/* The struct that belongs to `mode`; checked: another mode's is a mistake of ours. */
static inline void *
pg_own(const struct pg *pg, const struct mode *mode)
{
	if (pg->stated.mode != mode)
		abort();
	return pg->own;
}

/*
 * ask_server(), and where the schema dlock or one of its functions is missing,
 * creates it and asks again.
 */
enum rc pg_ask(struct pg *, const struct question *, int fields, instant until,
    instant *sent, PGresult **ret, struct fault *);

/*
 * ask_server(), and where there is no schema dlock, RC_OK without an answer (*ret NULL):
 * nothing is held, and nothing is made.  RC_CONFIG: the schema is another version's.
 */
enum rc pg_ask_existing(struct pg *, const struct question *, int fields, instant until,
    PGresult **ret, struct fault *);

/* Is the schema, or something in it, missing: says the last error. */
bool pg_is_missing(const struct pg *);

/*
 * Is a table, or the schema, missing: says the last error.  With it, the locks are gone;
 * without a function they may all be there, and nobody can be granted one.
 */
bool pg_lacks_table(const struct pg *);

/* Creates the schema. */
enum rc pg_create_schema(struct pg *, instant until, struct fault *);

/* Where the right to it is missing (42501): who has it, and what to do. */
enum rc pg_explain_denial(struct pg *, enum rc, struct fault *);

/* What the server has sent is no answer to what was asked. */
enum rc pg_makes_no_sense(const struct pg *, enum rc, struct fault *);

/*
 * After an attempt that has failed: RC_OK, and what has passed by itself may be
 * tried again.  `queued`: the server knows of us; then a standby is one that will
 * be promoted.
 */
enum rc pg_try_again(struct pg *, enum rc, bool queued, instant until);

#endif
