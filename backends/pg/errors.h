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
#define CANCELLED "57014" /* by somebody, or by statement_timeout */
#define LOCK_TIMEOUT "55P03"

/* As struct sql_driver has them. */
extern const char *const error_failures[SQL_FAILURES];
extern const struct sql_meaning error_meanings[];

/* Remembers an SQLSTATE as that of the last error; what is none counts as "". */
void error_set(struct sql *, const char *sqlstate);

/*
 * A notice receiver; its argument is the connection: a warning, or the last words before
 * the server hangs up.
 */
void error_notice(void *connection, const PGresult *);

/* The server's error as the outcome of a question. */
enum rc error_of_result(struct connection *, const PGresult *, struct fault *);

/* Why libpq could not connect.  `left`: hosts that were left before, as login.h has it. */
enum rc error_of_login(struct connection *, const char *left, struct fault *);

#endif
