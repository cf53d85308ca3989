/*
 * pg.h - what the three modes of the pg backend share.
 *
 *	lease      a row with an end, which outlives connection and server (lease.c)
 *	advisory   a session's advisory lock, as other programs take it (advisory.c)
 *	row        SELECT ... FOR UPDATE in an open transaction (row.c)
 */
#ifndef DLOCK_PG_PG_H
#define DLOCK_PG_PG_H

#include "session.h"

#define ASK_PATIENCE (3 * NS_PER_S) /* for an answer while in the queue */
#define ASK_LEAST NS_PER_S	    /* even if --wait is shorter, a server may take so long */

struct pg;

/* What a mode does of struct backend. */
struct mode {
	const char *name;
	enum rc (*acquire)(struct pg *, instant until, struct grant *, struct fault *);
	enum rc (*renew)(struct pg *, instant until, struct grant *, struct fault *);
	enum rc (*release)(struct pg *, instant until, struct fault *);
};

extern const struct mode lease_mode;

struct pg {
	struct lock base;
	const struct want *want;
	const struct mode *mode;
	struct session session;
	int64_t connect_patience;
	char lease_ms[24], weight[16], capacity[16]; /* of want, as parameters */

	/* ---- lease mode ---- */
	bool asked;	 /* the server may know of us */
	bool held;	 /* it has said that we hold */
	bool unsure;	 /* a release went unanswered: it may be done */
	uint64_t token;
	unsigned serial; /* of the session that these are about: */
	char pid[16];	 /* its server process, as we were told */
	bool direct;	 /* no pooler in between */
	bool rings;	 /* it has our bell */
	char rung[2];	 /* the same as a parameter, "t" or "f" */
	bool abandoned;	 /* a session that had it may live on, at the server alone */
	unsigned beats;	 /* for their jitter */
};

/* How long the first answer may take, seen from now. */
instant pg_patience(const struct pg *, instant until);

/*
 * session_ask(), and where the schema dlock or one of its functions is missing,
 * creates it and asks again.
 */
enum rc pg_ask(struct pg *, const struct question *, int fields, instant until, instant *sent, PGresult **ret,
    struct fault *);

/* While queued, a server may be away for as long as the lease; `since`: when it left, 0 if it has not. */
enum rc pg_bear_outage(struct pg *, enum rc, instant until, instant *since);

#endif
