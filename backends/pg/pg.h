/*
 * pg.h - what the three modes of the pg backend share.
 *
 *	lease      a row with an end, which outlives connection and server (lease.c)
 *	advisory   a session's advisory lock, as other programs take it (advisory.c)
 *	row        SELECT ... FOR UPDATE in an open transaction (row.c)
 */
#ifndef DLOCK_PG_PG_H
#define DLOCK_PG_PG_H

#include "backends/patience.h"
#include "session.h"

#define ASK_PATIENCE (5 * NS_PER_S) /* for an answer while in the queue */
#define ASK_LEAST NS_PER_S          /* for one that comes late, after a sleep in the server */

struct pg;

/* What a mode does of struct lock_ops. */
struct mode {
	const char *name;
	unsigned caps;
	enum rc (*acquire)(struct pg *, instant until, struct grant *, struct fault *);
	enum rc (*renew)(struct pg *, instant until, struct grant *, struct fault *);
	enum rc (*release)(struct pg *, instant until, struct fault *);
};

extern const struct mode lease_mode, advisory_mode, row_mode;

struct pg {
	struct store base;
	const struct claim *claim;
	const struct mode *mode;
	struct session session;
	struct patience patience;
	char lease_ms[24]; /* of the claim, as a parameter */

	bool asked; /* the server may know of us; a mode bound to its session: we have queued */
	bool held;  /* it has said that we hold */

	/* ---- lease mode ---- */
	bool unsure; /* a release went unanswered: it may be done */
	uint64_t token;
	unsigned serial; /* of the session that these are about: */
	char pid[16];    /* its server process, as we were told */
	bool direct;     /* no pooler in between */
	bool wakes;      /* it has our wake-up lock */
	char take[24],
	    give[24];       /* that lock as a parameter: where it is to be taken, or given back; else "0" */
	bool among;         /* somebody else has to do with the key: queue(), not take() */
	unsigned rehearsed; /* the session in which await() has done so */
	bool abandoned; /* a session that had it may live on, at the server alone */
	unsigned jitter; /* counts what must not be done in step with others */

	/* ---- modes advisory and row, bound to their session (bound.h) ---- */
	instant beat_sent;   /* the heartbeat that is out, or was answered last */
	const char *key_is;  /* -O key= */
	const char *derive;  /* -O derive= */
	char lock_args[80];  /* the advisory lock in SQL: as the functions take it, */
	char lock_is[256];   /* and as a condition on pg_locks l */
	bool no_schema;      /* there is none, and we may not make it */
	int64_t transaction; /* in which the row is locked */
};

/*
 * session_ask(), and where the schema dlock or one of its functions is missing,
 * creates it and asks again.
 */
enum rc pg_ask(struct pg *, const struct question *, int fields, instant until, instant *sent,
    PGresult **ret, struct fault *);

/* Is the schema, or something in it, missing: says the last error. */
bool pg_is_missing(const struct pg *);

/* Creates the schema. */
enum rc pg_create_schema(struct pg *, instant until, struct fault *);

/* Where the right to it is missing (42501): who has it, and what to do. */
enum rc pg_explain_denial(struct pg *, enum rc, struct fault *);

/* How long one attempt at a first answer may take, which shall be there by `first_by`: long enough to learn why it fails. */
instant pg_attempt_ends(const struct pg *, instant first_by);

/*
 * After an attempt that has failed: RC_OK, and what has passed by itself may be
 * tried again.  `queued`: the server knows of us; then a standby is one that will
 * be promoted.
 */
enum rc pg_try_again(struct pg *, enum rc, bool queued, instant until);

#endif
