/*
 * question.h - one statement, its answer, and the time for both.
 *
 * A question whose answer is overdue poisons the connection: it is closed, for
 * the answer might be taken for that to the next one.  Only a question sent with
 * question_send() may be waited for again.
 */
#ifndef DLOCK_PG_QUESTION_H
#define DLOCK_PG_QUESTION_H

#include "connection.h"

/*
 * A statement and its parameters, text or NULL.  Without any it goes the simple
 * way, which leaves nothing open in a transaction (a portal keeps a snapshot).
 */
struct question {
	const char *sql;
	int n;
	const char *const *values;
	/* it calls no function of the schema dlock, and so needs no guard (guard.h) */
	bool harmless;
	/* the answer is any number of rows, not one */
	bool many;
	/* if not NULL: called on each connection before it is asked */
	void (*prepare)(void *ctx);
	void *ctx;
};

/*
 * On the open connection.  Where the functions are not trusted yet, the guard goes
 * first, in the same packet.
 */
enum rc question_send(
    struct connection *, const struct question *, instant until, struct fault *);

/*
 * Waits for the one row (or rows) of `fields` fields (clear() it; ret NULL: nobody wants it); 0
 * fields: for its being done.  Late (RC_AGAIN, pending.out): it may be waited for again.
 */
enum rc question_receive(
    struct connection *, int fields, instant until, PGresult **ret, struct fault *);

/*
 * Both; *sent: just before the question left.  An answer that is late is not waited for
 * again.
 */
enum rc question_ask(struct connection *, const struct question *, int fields,
    instant until, instant *sent, PGresult **ret, struct fault *);

#endif
