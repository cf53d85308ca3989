/*
 * errors.h - what an error of a server or of libmariadb means for a lock.
 *
 * An error's number decides: from 2000 on it is libmariadb's, and from 5000 on; from 3000
 * on, and what is below or above these, is the server's.
 */
#ifndef DLOCK_MYSQL_ERRORS_H
#define DLOCK_MYSQL_ERRORS_H

#include "connect.h"

#include "mysql.h"

/* Those by which something is decided. */
#define ERROR_NO_DATABASE "1046" /* none is chosen */
#define ERROR_DUPLICATE "1062"   /* a key that is there */
#define ERROR_TIMEOUT "1205" /* a lock was not given in time; the statement is undone */
/* InnoDB's; and MariaDB's of GET_LOCK; all is undone, or (Galera) done by a replay */
#define ERROR_DEADLOCK "1213"
/* of a node of Galera, without words: another one was faster; the same is true */
#define ERROR_OVERTAKEN "0"
#define ERROR_READ_ONLY "1290"
#define ERROR_EXISTS "1304" /* the procedure is there */
#define ERROR_NO_PROCEDURE "1305"
#define ERROR_INTERRUPTED "1317" /* KILL QUERY */
#define ERROR_TOO_LONG "1969"    /* MariaDB's: max_statement_time is over */
#define ERROR_LATE "3024" /* MySQL's, of a statement; and that of dlock's procedures */
#define ERROR_LOCK_DEADLOCK "3058" /* MySQL's, of GET_LOCK */
#define ERROR_NOWAIT "3572"        /* MySQL's: NOWAIT was in vain */

/* As struct sql_driver has them. */
extern const char *const errors_failures[SQL_FAILURES];
extern const struct sql_meaning errors_meanings[];

/* What one of libmariadb's own numbers means. */
enum rc errors_of_library(unsigned number);

/*
 * The last error of the session's connection as the outcome of a statement; db->error is its
 * number, if it is the server's.
 */
enum rc errors_of_statement(struct session *, struct fault *);

/* Why there is no connection, by an attempt that has ended so and left this (NULL: no memory). */
enum rc errors_at_login(struct session *, MYSQL *, enum connected, struct fault *);

#endif
