/*
 * mysql.h - a store of the mysql backend, its session at the server, and its three modes.
 *
 *	lease   a row with an end, which outlives connection and server
 *		(sql/lease.h, driver.c, schema.sql)
 *	row     SELECT ... FOR UPDATE in an open transaction (row.c)
 *	named   a session's GET_LOCK, as other programs take it (named.c)
 *
 * Below them: driver.c (settings, schema, what sql/ is given), session.c (one session, statements
 * with deadlines), rights.c (whether they may be asked), errors.h (what errors mean), connect.h
 * (connecting, in a thread), login.h, lib.h.
 */
#ifndef DLOCK_MYSQL_MYSQL_H
#define DLOCK_MYSQL_MYSQL_H

#include "lib.h"
#include "login.h"

#include "backends/sql/sql.h"

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
	MYSQL *mysql; /* NULL: not connected */
	char
	    secret[512]; /* the password that it has told, perhaps an option file's; "" */
	struct server_facts server;
	/* how the server calls the login's, whatever case was typed; "": it has not said it */
	char database[65 * 4];
	char statement[STATEMENT_BYTES]; /* what was asked last */
	struct pending {
		enum stage { STAGE_NONE, STAGE_QUERY, STAGE_STORE, STAGE_NEXT } stage;
		int status;      /* what libmariadb waits for; 0: nothing */
		int error;       /* of the stage that has ended; 0: none */
		MYSQL_RES *kept; /* the first result; */
		MYSQL_RES *came; /* and the one just read */
		unsigned results;
		size_t left; /* so many bytes the answer may still have */
	} pending;
};

struct mysql {
	struct sql db;
	/* of mode=named, as stated; NULL: a key has a name */
	const char *name;
	const char *
	    derive; /* and the program whose name it has; NULL: dlock's own, which may be meant */
	bool derives_own;
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

extern const struct sql_mode mysql_named_mode, mysql_row_mode;
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
 *  1. A new session is set up in one packet: READ COMMITTED, every statement its own
 *     transaction unless it says otherwise, UTC, short waits for rows; and it learns
 *     what the server is.  A server that is read-only, and so perhaps a replica, is
 *     refused there (RC_CONFIG): on a replica a lock excludes nobody.  So is a database
 *     where others could use the rights that we have beyond it (rights.c).
 *  2. An error of the server's ends nothing but the statement; a transaction that it may
 *     have left open is rolled back at once.  1205 undoes the statement only.
 *  3. Of a session that breaks the server may keep what it held (GET_LOCK, open transactions)
 *     until it notices.
 *  4. A result lives without its session.
 */

/* As struct sql_driver has them. */
struct task *session_login(struct sql *);
enum rc session_adopt(struct sql *, struct task *, instant until, struct fault *);
bool session_is_open(struct sql *);
int session_fd(const struct sql *);
enum rc session_exec(struct sql *, const struct question *, instant until,
    struct answer *, struct fault *);
enum rc session_send(
    struct sql *, const struct question *, instant until, struct fault *);
enum rc session_receive(struct sql *, const struct question *, instant until,
    struct answer *, struct fault *);
bool session_is_busy(const struct sql *);
void session_close(struct sql *);
bool session_read_row(struct answer *, int n);
void session_drop(struct answer *);

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

/* ---- rights.c ---- */

/* A statement that goes before; and an expression: has our user rights beyond the database? */
extern const char rights_who[], rights_is_needed[];
#define RIGHTS_IS_ME "CAST(grantee AS BINARY) = @dlock_me" /* behind rights_who */

/* If so, asks on the session there is.  RC_CONFIG: nothing in the database may be used. */
enum rc rights_check(struct sql *, instant until, struct fault *);

#endif
