/*
 * said.h - what a server or libpq has said, and what that means for a lock.
 *
 * An SQLSTATE decides wherever there is one.
 */
#ifndef DLOCK_PG_SAID_H
#define DLOCK_PG_SAID_H

#include "pg.h"

#define READ_ONLY "25006" /* a standby, or a role or database that is read-only */
#define NO_FUNCTION "42883"

/* Was the last error this one?  "42501", or a class: "53". */
bool said_state(const struct connection *, const char *sqlstate);

/* The same, as a driver says it. */
bool said_is_failure(const struct sql *, enum sql_failure);

/* Remembers an SQLSTATE as that of the last error; what is none counts as "". */
void said_set(struct connection *, const char *sqlstate);

/*
 * A notice receiver; its argument is the connection: a warning, or the last words before
 * the server hangs up.
 */
void said_notice(void *connection, const PGresult *);

/* The server's error as the outcome of a question. */
enum rc said_error(struct connection *, const PGresult *, struct fault *);

/* Why libpq could not connect; `foreign`: some server spoke another language. */
enum rc said_at_login(struct connection *, bool foreign, struct fault *);

#endif
