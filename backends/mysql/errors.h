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
enum {
	ERROR_NO_DATABASE = 1046, /* none is chosen */
	ERROR_DUPLICATE = 1062,   /* a key that is there */
	ERROR_NO_TABLE = 1146,
	ERROR_TIMEOUT = 1205,  /* a lock was not given in time; the statement is undone */
	ERROR_DEADLOCK = 1213, /* InnoDB's; and MariaDB's of GET_LOCK; all is undone */
	ERROR_READ_ONLY = 1290,
	ERROR_EXISTS = 1304, /* the procedure is there */
	ERROR_NO_PROCEDURE = 1305,
	ERROR_INTERRUPTED = 1317, /* KILL QUERY */
	ERROR_LATE = 3024, /* MySQL's, of a statement; and that of dlock's procedures */
	ERROR_LOCK_DEADLOCK = 3058, /* MySQL's, of GET_LOCK */
};

/*
 * The last error of the session's connection as the outcome of a statement; its number
 * is in session->last_error.
 */
enum rc errors_of_statement(struct session *, struct fault *);

/* Why there is no connection, by an attempt that has ended so and left this (NULL: no memory). */
enum rc errors_at_login(struct session *, MYSQL *, enum connected, struct fault *);

/* Is it an error of libmariadb's, or the end of the connection, and no refusal of the server? */
bool errors_end_connection(unsigned number);

#endif
