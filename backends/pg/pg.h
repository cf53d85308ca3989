/*
 * pg.h - a store of the pg backend, its three modes, and its connection.
 *
 *	lease      a row with an end, which outlives connection and server
 *	           (sql/lease.h, driver.c, schema.sql)
 *	advisory   a session's advisory lock, as other programs take it (advisory.c)
 *	row        SELECT ... FOR UPDATE in an open transaction (row.c)
 *
 * Below them: driver.c (settings, schema, what sql/ is given), exec.c (one statement, and whose
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
 * libpq's own waiting is never used, for it has no deadlines: a thread connects, which may come
 * too late (login.h), and every later call is non-blocking and waits in host->wait.
 *
 * What the user has stated, in the URL or conninfo, a service or PG* variables, stands.  Where
 * nothing is stated: no Kerberos encryption, application name "dlock", and dead peers are
 * noticed within the ttl.  Of several hosts the primary is taken, and a standby is refused.
 */
struct connection {
	struct sql *db;
	const struct pq *pq;
	const char *conninfo; /* URI or keywords; "" for libpq's defaults */
	bool is_default;      /* no host was stated: libpq says which one it takes */
	PGconn *pgconn;       /* NULL: not connected */
	struct bounds bounds;
	const char *stranger; /* what a login has met; NULL: nothing strange */
	char secret[512];     /* the password that it has told; "": none */
	/* How far the functions of the schema dlock are known not to be foreign (exec.c). */
	struct trust {
		bool full;    /* they may be called over this connection */
		bool asked;   /* the question that is out follows upon the guard */
		bool failed;  /* the guard: nothing is known of them */
		bool stopped; /* it has kept the question from being run */
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

/* All options of a connection as libpq resolves them, to be freed; connects to nobody.  NULL: no memory. */
PQconninfoOption *connection_resolve(const struct pq *, const char *conninfo);

/* To whom it would connect, and as whom, as libpq resolves that: for identify(). */
enum rc connection_identify(const struct connection *, struct identity *, struct fault *);

/* As struct sql_driver has them. */
struct task *connection_login(struct sql *);
enum rc connection_adopt(struct sql *, struct task *, instant until, struct fault *);
bool connection_is_open(struct sql *);
int connection_descriptor(const struct sql *);
void connection_close(struct sql *);

/*
 * Has a notification come since the last call?  Reads like connection_is_open(): it may
 * have come along with an answer, and will then not make the socket readable.
 */
bool connection_was_notified(struct sql *);

/* It has broken, or the server never stops talking: closes it, and says so (RC_AGAIN). */
enum rc connection_broken(struct connection *, struct fault *);

/* ---- questions (exec.c) ---- */

/* The version of schema.sql that goes with this client, and what a schema has that serves it. */
#define SCHEMA_VERSION 11
#define SCHEMA_SERVES "serves_6"

/* As struct sql_driver has them. */
enum rc exec_question(struct sql *, const struct question *, instant until,
    struct answer *, struct fault *);
enum rc exec_send(struct sql *, const struct question *, instant until, struct fault *);
enum rc exec_receive(struct sql *, const struct question *, instant until,
    struct answer *, struct fault *);
bool exec_is_pending(const struct sql *);
bool exec_read_row(struct answer *, int n);
void exec_drop(struct answer *);

/* ---- the store ---- */

struct pg {
	struct sql db;
	/* of mode=advisory; NULL: not stated */
	const char *key, *name, *derive;
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

extern const struct sql_mode advisory_mode, pg_row_mode;
extern const struct row_driver pg_row;

/* As struct sql_driver has it. */
enum rc pg_create_schema(struct sql *, instant until, struct fault *);

/* For doctor: check.c. */
enum rc pg_check(struct sql *, struct checkup *, struct fault *);

#endif
