/*
 * session.h - one session at a MySQL or MariaDB server, and what is asked in it.
 *
 * libmariadb's waiting is never used, for it knows no deadlines: connecting happens in a
 * thread that may come too late (connect.h), and everything afterwards is
 * non-blocking and waits in host->wait.
 *
 *  1. What goes to the server is SQL without a word of the user's in it but as
 *     hexadecimal literals (statement.c).
 *  2. A new session is set up in one packet: READ COMMITTED, every statement its own
 *     transaction unless it says otherwise, UTC, short waits for rows; and it learns
 *     what the server is.  A server that is read-only, and so perhaps a replica, is
 *     refused there (RC_CONFIG): on a replica a lock excludes nobody.  So is a database
 *     where others could use the rights that we have beyond it (rights.h).
 *  3. A statement whose answer is overdue poisons the session: it is closed, for the
 *     answer might be taken for that to the next one.  Only a statement sent with
 *     session_send() may be waited for again.
 *  4. An error of the server's ends nothing but the statement; a transaction that it may
 *     have left open is rolled back at once.  1205 undoes the statement only.
 *  5. A session that breaks is closed; nothing of it is taken up again but by whoever
 *     sees db->serial change.  What a broken session held (GET_LOCK, open transactions)
 *     the server may keep until it notices.
 *  6. What is quoted is one line, without the password (errors.h).
 *
 * A result lives without its session.
 */
#ifndef DLOCK_MYSQL_SESSION_H
#define DLOCK_MYSQL_SESSION_H

#include "mysql.h"

/*
 * Reads the URL, behind the settings that are in the session's login already, and loads the
 * library; connects to nothing.  `database` is for a URL that names none.  RC_USAGE; as
 * libmariadb_load().
 */
enum rc session_init(struct sql *, const char *url, const char *database, struct fault *);

/*
 * Connects and sets up, if need be.  A connection that is late is waited for again by the
 * next call.
 */
enum rc session_open(struct sql *, instant until, struct fault *);

/* Is it there, and has nothing come unasked?  Closes one that has ended. */
bool session_is_open(struct sql *);

/* Readable, or broken, when something has happened to it; -1: not connected. */
int session_fd(const struct sql *);

/*
 * The server's number of it: CONNECTION_ID(), as the greeting had it, which has 32 bits of it.
 * 0: not connected.
 */
uint32_t session_number(const struct sql *);

/* It has turned out to be read-only: says so (RC_CONFIG). */
enum rc session_read_only(struct sql *, struct fault *);

/* The server has said what time it was, in an answer that has just come. */
void session_set_clock(struct sql *, int64_t us);

/* What the server's clock shows when ours shows `until`. */
int64_t session_server_time(const struct sql *, instant until);

/*
 * Sends a question on the open session.  RC_OK: it is on its way, and session_is_busy()
 * until session_receive() has had the answer.
 */
enum rc session_send(
    struct sql *, const struct question *, instant until, struct fault *);

/* Is an answer still awaited? */
bool session_is_busy(const struct sql *);

/*
 * Waits for the answer: one result as it was asked for, read to its end, and no error behind
 * it.  NULL: nobody wants it.  Late is RC_AGAIN, and it may be waited for again;
 * RC_PROTOCOL: it looks otherwise, and the session is closed.
 */
enum rc session_receive(struct sql *, const struct question *, instant until,
    struct answer *, struct fault *);

/*
 * Both, on the session there is (RC_AGAIN if there is none).  An answer that is late is not
 * waited for again.
 */
enum rc session_exec(struct sql *, const struct question *, instant until,
    struct answer *, struct fault *);

/* Is this what the last error says? */
bool session_is_failure(const struct sql *, enum sql_failure);

/* As struct sql_driver has them. */
bool session_read_row(struct answer *, int n);
void session_drop(struct answer *);

/* It has broken, or makes no sense any more: closes it, and says so (RC_AGAIN). */
enum rc session_broken(struct sql *, struct fault *);

/* Closes it, without waiting; another may be opened. */
void session_close(struct sql *);

/* Frees all. */
void session_free(struct sql *);

/* ---- statement.c ---- */

/* The text of a question with its values in place of $1 and so on.  False: it does not fit. */
bool statement_write(char out[STATEMENT_BYTES], const struct question *);

#endif
