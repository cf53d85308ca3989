/*
 * question.h - one statement, its answer, and the time for both.
 *
 * A question whose answer is overdue poisons the connection: it is closed, for
 * the answer might be taken for that to the next one.  Only a question sent with
 * question_send() may be waited for again.
 */
#ifndef DLOCK_PG_QUESTION_H
#define DLOCK_PG_QUESTION_H

#include "pg.h"

/* ---- before the first question of a connection ---- */

/*
 * An error (GUARD_STOPS, a division by zero) where the role has such rights; otherwise
 * no row.  An error of a missing function (or schema) where the schema does not serve this
 * version: a look at its name, behind that, for nothing of it may be called yet.
 */
extern const char guard_first[];
#define GUARD_STOPS "22012"

/* ---- one question ---- */

/*
 * On the open connection.  Where the functions are not trusted yet, the guard goes first, in
 * the same packet.  A statement without values goes the simple way, which leaves nothing
 * open in a transaction (a portal keeps a snapshot).
 */
enum rc question_send(
    struct sql *, const struct question *, instant until, struct fault *);

/*
 * Waits for the answer (NULL: nobody wants it).  Late (RC_AGAIN, pending.out): it may be
 * waited for again.
 */
enum rc question_receive(struct sql *, const struct question *, instant until,
    struct answer *, struct fault *);

/* Both.  An answer that is late is not waited for again. */
enum rc question_ask(struct connection *, const struct question *, instant until,
    struct answer *, struct fault *);

/*
 * Runs a script of several statements, connecting if need be; rolls back what has
 * failed.
 */
enum rc question_script(struct sql *, const char *script, instant until, struct fault *);

/* As struct sql_driver has them. */
bool question_is_pending(const struct sql *);
bool question_read_row(struct answer *, int n);
void question_drop(struct answer *);

#endif
