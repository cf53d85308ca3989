/*
 * mysql.h - a store of the mysql backend, its session at the server, and its three modes.
 *
 *	lease   a row with an end, which outlives connection and server
 *		(sql/lease.h, lease.c, schema.sql)
 *	row     SELECT ... FOR UPDATE in an open transaction (row.c)
 *	named   a session's GET_LOCK, as other programs take it (named.c)
 *
 * Below them: driver.c (settings, schema, what sql/ is given), session.c (one session, statements
 * with deadlines), rights.h (whether they may be asked), statement.c (how they are written),
 * errors.h (what errors mean), connect.h (connecting, in a thread), login.h, lib.h.
 */
#ifndef DLOCK_MYSQL_MYSQL_H
#define DLOCK_MYSQL_MYSQL_H

#include "lib.h"
#include "login.h"

#include "backends/sql/sql.h"

struct connecting;
enum { STATEMENT_BYTES = 12288 }; /* a key, and some records, twice over */

/* Expressions: the server's clock in microseconds, when it is evaluated; may all write there? */
#define SERVER_CLOCK "CAST(UNIX_TIMESTAMP(SYSDATE(6)) * 1000000 AS SIGNED)"
#define SERVER_IS_PRIMARY "(@@global.read_only IN ('0', 'OFF'))"

/* What a session has found out about its server. */
struct server_facts {
	bool is_mariadb;
	bool is_galera; /* a node of a cluster (wsrep_on) */
	bool is_unfit;  /* as unfit_sql says */
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
	/*
	 * For a lock that the session keeps: is something amiss, in SQL.  It ends then when it has
	 * been idle for the ttl.  NULL: do not ask; it ends some time after that.
	 */
	const char *unfit_sql;
	MYSQL *mysql;                  /* NULL: not connected */
	struct connecting *connecting; /* one on its way */
	struct server_facts server;
	unsigned last_error;             /* its number; 0: there was none */
	char statement[STATEMENT_BYTES]; /* what was asked last */
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

struct mysql {
	struct sql db;
	const char *name; /* of mode=named, as stated; NULL: a key has one */
	struct session session;
};

static inline struct mysql *
mysql_of(struct sql *db)
{
	return (struct mysql *)db;
}

static inline const struct mysql *
mysql_const(const struct sql *db)
{
	return (const struct mysql *)db;
}

extern const struct sql_mode mysql_named_mode;
extern const struct lease_driver mysql_lease;
extern const struct row_driver mysql_row;

/* For doctor: check.c. */
enum rc mysql_check(struct sql *, struct checkup *, struct fault *);

/* ---- session.c ---- */

/*
 * A session at the server, and what is asked in it.
 *
 * libmariadb's own waiting knows no deadlines: so a thread connects, which may come too late
 * (connect.h), and every later call is non-blocking and waits in host->wait.
 *
 *  1. Words of the user's stand in a statement as hexadecimal literals alone (statement.c).
 *  2. A new session is set up in one packet: READ COMMITTED, every statement its own
 *     transaction unless it says otherwise, UTC, short waits for rows; and it learns
 *     what the server is.  A server that is read-only, and so perhaps a replica, is
 *     refused there (RC_CONFIG): on a replica a lock excludes nobody.  So is a database
 *     where others could use the rights that we have beyond it (rights.h).
 *  3. A session whose answer is overdue is closed: the answer might be taken for that to the
 *     next statement.  Only the answer to session_send() may be waited for again.
 *  4. An error of the server's ends nothing but the statement; a transaction that it may
 *     have left open is rolled back at once.  1205 undoes the statement only.
 *  5. A session that breaks is closed, and db->serial counts the next one, which has nothing
 *     of it.  The server may keep what it held (GET_LOCK, open transactions) until it notices.
 *  6. A quotation is one line, without the password (errors.c).
 *
 * A result lives without its session.
 */

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

/* The server has turned out to be read-only: says so (RC_CONFIG). */
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
