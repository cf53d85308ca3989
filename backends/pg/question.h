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
 * On the open connection.  Where the functions are not trusted yet, the guard goes first, in
 * the same packet.  A statement without values goes the simple way, which leaves nothing
 * open in a transaction (a portal keeps a snapshot).
 */
enum rc question_send(
    struct connection *, const struct question *, instant until, struct fault *);

/*
 * Waits for the answer (NULL: nobody wants it).  Late (RC_AGAIN, pending.out): it may be
 * waited for again.
 */
enum rc question_receive(struct connection *, const struct question *, instant until,
    struct answer *, struct fault *);

/* Both.  An answer that is late is not waited for again. */
enum rc question_ask(struct connection *, const struct question *, instant until,
    struct answer *, struct fault *);

/*
 * The same, as a driver's exec() does it: a question that uses the schema dlock is only
 * asked once that is known to be harmless (guard.h).
 */
enum rc question_exec(struct connection *, const struct question *, instant until,
    struct answer *, struct fault *);

/*
 * Runs a script of several statements, connecting if need be; rolls back what has
 * failed.
 */
enum rc question_script(
    struct connection *, const char *script, instant until, struct fault *);

/* The n-th row of a result. */
bool question_read_row(struct answer *, const struct pq *, int n);

#endif
