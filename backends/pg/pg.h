/*
 * pg.h - a store of the pg backend, its three modes, and its connection.
 *
 *	lease      a row with an end, which outlives connection and server
 *	           (sql/lease.h, driver.c, schema.sql)
 *	advisory   a session's advisory lock, as other programs take it (advisory.c)
 *	row        SELECT ... FOR UPDATE in an open transaction (row.c)
 *
 * Below them: driver.c (settings, schema, what sql/ is given), exec.h (one statement, and whose
 * functions it may call), connection.c, login.h (a login, in a thread), errors.h (what errors
 * mean), bounds.h.
 */
#ifndef DLOCK_PG_PG_H
#define DLOCK_PG_PG_H

#include "backends/sql/sql.h"
#include "bounds.h"

#include <libpq-fe.h>

/* ---- libpq, when it is needed and not before ---- */

/*
 * Linking it would cost every start of dlock, on whatever backend, 3 to 5 ms
 * (it brings OpenSSL, Kerberos and LDAP along).  So it is loaded (dl.h) when a
 * pg lock is opened, and called through a table: pq->finish(conn) is
 * PQfinish(conn).
 */
#define PQ_FUNCTIONS(X) \
	X(backendPID) \
	X(clear) \
	X(connectPoll) \
	X(connectStartParams) \
	X(connectionNeedsPassword) \
	X(conninfo) \
	X(conninfoFree) \
	X(conninfoParse) \
	X(consumeInput) \
	X(db) \
	X(errorMessage) \
	X(finish) \
	X(flush) \
	X(freemem) \
	X(getResult) \
	X(getisnull) \
	X(getlength) \
	X(getvalue) \
	X(host) \
	X(isBusy) \
	X(nfields) \
	X(notifies) \
	X(ntuples) \
	X(parameterStatus) \
	X(pass) \
	X(port) \
	X(resultErrorField) \
	X(resultStatus) \
	X(sendQuery) \
	X(sendQueryParams) \
	X(serverVersion) \
	X(setErrorVerbosity) \
	X(setNoticeReceiver) \
	X(setnonblocking) \
	X(socket) \
	X(status)

/* These came with libpq 14; NULL where it is older. */
#define PQ_PIPELINE_FUNCTIONS(X) \
	X(enterPipelineMode) \
	X(exitPipelineMode) \
	X(pipelineSync)

struct pq {
#define X(name) __typeof__(&PQ##name) name;
	PQ_FUNCTIONS(X)
	PQ_PIPELINE_FUNCTIONS(X)
#undef X
};

/* ---- one connection to a server at a time ---- */

/*
 * libpq's own waiting is never used, for it has no deadlines: connecting
 * (names, service files, TLS) happens in a thread that may come too late
 * (login.h), and everything afterwards is non-blocking and waits in
 * host->wait (exec.h).
 *
 *  1. What the user has stated, in the URL or conninfo, a service or PG*
 *     variables, stands.  Where nothing is stated: no Kerberos encryption,
 *     application name "dlock", and dead peers are noticed within the ttl.
 *     Of several hosts the primary is taken, and a standby is refused.
 *  2. A connection that breaks is closed; nothing is set up in the session but
 *     by whoever sees db->serial change.
 *  3. What a server, or libpq, has to say appears as its first line; a password
 *     never does (errors.h).
 */
struct connection {
	struct sql *db;
	const struct pq *pq;
	const char *conninfo; /* URI or keywords; "" for libpq's defaults */
	bool is_default;      /* no host was stated: libpq says which one it takes */
	PGconn *pgconn;       /* NULL: not connected */
	struct login *login;  /* one on its way */
	struct bounds bounds;
	struct last {
		/* of the last error or last words; "" where it was none of the server's */
		char sqlstate[6];
		/*
		 * the answer came before a standby had what it tells of: somebody cancelled
		 * that wait
		 */
		bool unreplicated;
	} last;
	/* How far the functions of the schema dlock are known not to be foreign (exec.h). */
	struct trust {
		bool full;    /* they may be called over this connection */
		bool asked;   /* the question that is out follows upon the guard */
		bool stopped; /* which has kept it from being run */
	} trust;
	struct pending {
		bool out;       /* a question is */
		PGresult *kept; /* what has come of its answer */
	} pending;
};

/* Reads conninfo and names the server; no connection yet.  RC_USAGE; RC_CONFIG: no libpq. */
enum rc connection_init(
    struct connection *, struct sql *, const char *conninfo, struct fault *);

/* What is stated: in the words that were parsed, else in libpq's variable.  NULL: nothing. */
const char *connection_option(const PQconninfoOption *, const char *keyword);

/* To whom it would connect, and as whom, as libpq resolves that: for identify(). */
enum rc connection_identify(const struct connection *, struct identity *, struct fault *);

/*
 * Connects if need be.  A connection that is late is waited for again by the next call.
 */
enum rc connection_open(struct sql *, instant until, struct fault *);

/*
 * Is the connection there, and nothing known against it?  Reads what has come
 * unasked; closes a connection that has ended.
 */
bool connection_is_open(struct sql *);

/*
 * Has a notification come since the last call?  Reads like connection_is_open(): it may
 * have come along with an answer, and will then not make the socket readable.
 */
bool connection_was_notified(struct sql *);

/*
 * It has broken, or what comes over it makes no sense any more: closes it, and says so
 * (RC_AGAIN).
 */
enum rc connection_broken(struct connection *, struct fault *);

/* Closes the connection; another may be opened. */
void connection_close(struct sql *);

/* Waits for `events` at one of its descriptors.  RC_AGAIN: in vain. */
enum rc connection_wait(
    struct connection *, int fd, short events, instant until, struct fault *);

/* Its socket; -1: not connected. */
int connection_descriptor(const struct sql *);

/* Frees all. */
void connection_free(struct connection *);

/* ---- the store ---- */

struct pg {
	struct sql db;
	const char *key, *derive; /* of mode=advisory; NULL: not stated */
	struct connection conn;
};

static inline struct pg *
pg_of(struct sql *db)
{
	return (struct pg *)db;
}

static inline const struct pg *
pg_const(const struct sql *db)
{
	return (const struct pg *)db;
}

extern const struct sql_mode advisory_mode;
extern const struct row_driver pg_row;

/*
 * Creates the schema, or brings it up to date.
 */
enum rc pg_create_schema(struct sql *, instant until, struct fault *);

/* For doctor: check.c. */
enum rc pg_check(struct sql *, struct checkup *, struct fault *);

#endif
