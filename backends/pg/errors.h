/*
 * errors.h - what a server's errors, or libpq's words, mean for a lock.
 *
 * An SQLSTATE decides wherever there is one.
 */
#ifndef DLOCK_PG_ERRORS_H
#define DLOCK_PG_ERRORS_H

#include "pg.h"

#define READ_ONLY "25006" /* a standby, or a role or database that is read-only */
#define NO_FUNCTION "42883"
#define NO_RIGHT "42501"
#define CANCELLED "57014" /* by somebody, or by statement_timeout */
#define LOCK_TIMEOUT "55P03"

/* Was the last error this one?  An SQLSTATE, or a class: "53". */
bool error_is(const struct connection *, const char *sqlstate);

/* The same, as a driver says it. */
bool error_is_failure(const struct sql *, enum sql_failure);

/* Remembers an SQLSTATE as that of the last error; what is none counts as "". */
void error_set(struct connection *, const char *sqlstate);

/*
 * A notice receiver; its argument is the connection: a warning, or the last words before
 * the server hangs up.
 */
void error_notice(void *connection, const PGresult *);

/* The server's error as the outcome of a question. */
enum rc error_of_result(struct connection *, const PGresult *, struct fault *);

/* Why libpq could not connect. */
enum rc error_of_login(struct connection *, struct fault *);

#endif
