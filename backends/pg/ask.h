/* ask.h - questions that may be asked again. */
#ifndef DLOCK_PG_ASK_H
#define DLOCK_PG_ASK_H

#include "question.h"

/*
 * Connects if need be, asks, and waits for the answer, for a statement that may
 * be run twice.  A connection found broken is opened anew, and one that breaks
 * under the question gets a second chance (pending.again); a transaction that has
 * lost a race (40001) gets as many as fit into 2 s, and one that was not waited
 * for on the standby all the time there is.  The rest as question_ask() has it.
 */
enum rc ask_server(struct connection *, const struct question *, int fields, instant until, instant *sent,
    PGresult **ret, struct fault *);

/* The same on the connection there is: a mode that lives in its session never wants another one unasked. */
enum rc ask_here(struct connection *, const struct question *, int fields, instant until, instant *sent,
    PGresult **ret, struct fault *);

/* Runs a script of several statements, connecting if need be; rolls back what has failed. */
enum rc ask_script(struct connection *, const char *script, instant until, struct fault *);

#endif
