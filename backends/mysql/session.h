/*
 * session.h - one session at a MySQL or MariaDB server, and what is asked in it.
 *
 * libmariadb's waiting is never used, for it knows no deadlines: connecting happens in a
 * thread that may come too late (dial.h), and everything afterwards is
 * non-blocking and waits in host->wait.
 *
 *  1. What goes to the server is SQL without a word of the user's in it but as
 *     hexadecimal literals (statement.h).
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

#include "errors.h"
#include "lib.h"
#include "login.h"
#include "statement.h"

struct dial;

/* What a session has found out about its server. */
struct server_facts {
	bool is_mariadb;
	unsigned version; /* 101100 is 10.11, 80036 is 8.0.36 */
	bool is_galera;   /* a node of a cluster (wsrep_on) */
	bool is_unfit;    /* as unfit_sql says */
	bool is_mighty;   /* our user has rights beyond the database (rights.h) */
	/* nobody is in between: the server's number of this session is ours */
	bool is_direct;
	/* its clock, when ours was `seen`: microseconds since 1970 */
	int64_t clock_us;
	instant seen;
};

struct session {
	struct sql *db;
	const struct libmariadb *my;
	struct login login;
	/* it ends when it has been idle for so long, in whole seconds; 0: the ttl and a bit */
	unsigned idle_s;
	const char *unfit_sql;   /* is something amiss, in SQL; NULL: do not ask */
	MYSQL *mysql;            /* NULL: not connected */
	struct dial *connecting; /* one on its way */
	struct server_facts server;
	unsigned said;              /* the number of the last error; 0: there was none */
	struct statement statement; /* what was asked last */
	struct pending {
		enum stage { STAGE_NONE, STAGE_QUERY, STAGE_STORE, STAGE_NEXT } stage;
		int status;      /* what libmariadb waits for; 0: nothing */
		int error;       /* of the stage that has ended */
		MYSQL_RES *kept; /* the first result; */
		MYSQL_RES *came; /* and the one just read */
		unsigned results;
		size_t left; /* so many bytes the answer may still have */
	} pending;
};

/*
 * Reads URL and session settings, which are in s->login already, and loads the library;
 * connects to nothing.  `database` is for a URL that names none.  RC_USAGE; as
 * libmariadb_load().
 */
enum rc session_init(struct session *, struct sql *, const char *url,
    const char *database, struct fault *);

/*
 * Connects and sets up, if need be.  A connection that is late is waited for again by the
 * next call.
 */
enum rc session_open(struct session *, instant until, struct fault *);

/* Is it there, and has nothing come unasked?  Closes one that has ended. */
bool session_is_open(struct session *);

/* Readable, or broken, when something has happened to it; -1: not connected. */
int session_fd(const struct session *);

/* The server's number of it: CONNECTION_ID(), as the greeting had it. */
uint64_t session_number(const struct session *);

/* It has turned out to be read-only: says so (RC_CONFIG). */
enum rc session_read_only(struct session *, struct fault *);

/* The server has said what time it was, in an answer that has just come. */
void session_set_clock(struct session *, int64_t us);

/* What the server's clock shows when ours shows `until`. */
int64_t session_server_time(const struct session *, instant until);

/*
 * Sends a question on the open session.  RC_OK: it is on its way, and session_is_busy()
 * until session_receive() has had the answer.
 */
enum rc session_send(
    struct session *, const struct question *, instant until, struct fault *);

/* Is an answer still awaited? */
bool session_is_busy(const struct session *);

/*
 * Waits for the answer: one result as it was asked for, read to its end, and no error behind
 * it.  NULL: nobody wants it.  Late is RC_AGAIN, and it may be waited for again;
 * RC_PROTOCOL: it looks otherwise, and the session is closed.
 */
enum rc session_receive(struct session *, const struct question *, instant until,
    struct answer *, struct fault *);

/*
 * Both, on the session there is (RC_AGAIN if there is none).  An answer that is late is not
 * waited for again.
 */
enum rc session_exec(struct session *, const struct question *, instant until,
    struct answer *, struct fault *);

/* Is this what the last error says? */
bool session_is_failure(const struct session *, enum sql_failure);

/* It has broken, or makes no sense any more: closes it, and says so (RC_AGAIN). */
enum rc session_broken(struct session *, struct fault *);

/* Closes it, without waiting; another may be opened. */
void session_close(struct session *);

/* Frees all. */
void session_free(struct session *);

#endif
