/*
 * connection.h - one connection to a PostgreSQL server at a time.
 *
 * libpq's own waiting is never used, for it has no deadlines: connecting
 * (names, service files, TLS) happens in a thread that may come too late
 * (connecting.h), and everything afterwards is non-blocking and waits in
 * host->wait (question.h).
 *
 *  1. What the user has stated, in the URL or conninfo, a service or PG*
 *     variables, stands.  Where nothing is stated: no Kerberos encryption,
 *     application name "dlock", and dead peers are noticed within the ttl.
 *     Of several hosts the primary is taken, and a standby is refused.
 *  2. A connection that breaks is closed; nothing is set up in the session but
 *     by whoever sees db->serial change.
 *  3. What a server, or libpq, has to say appears as its first line; a password
 *     never does (said.h).
 */
#ifndef DLOCK_PG_CONNECTION_H
#define DLOCK_PG_CONNECTION_H

#include "backends/sql/sql.h"
#include "lib.h"
#include "said.h"
#include "wire.h"

struct connecting;

/* How far the functions of the schema dlock are known not to be foreign (guard.h). */
struct trust {
	bool full;    /* they may be called over this connection */
	bool asked;   /* the question that is out follows upon the guard */
	bool stopped; /* which has kept it from being run */
};

/* Where it goes, as the user has stated it. */
struct connection_site {
	const char *conninfo; /* URI or keywords; "" for libpq's defaults */
	bool is_default;      /* no host was stated: libpq says which one it takes */
};

struct connection {
	struct sql *db;
	const struct pq *pq;
	struct connection_site site;
	PGconn *pgconn;                /* NULL: not connected */
	struct connecting *connecting; /* one on its way */
	struct wire wire;
	struct said said;
	struct trust trust;
	struct pending {
		bool out;       /* a question is */
		PGresult *kept; /* what has come of its answer */
	} pending;
};

/* Reads conninfo and names the server; no connection yet.  RC_USAGE; as pq_load(). */
enum rc connection_init(
    struct connection *, struct sql *, const char *conninfo, struct fault *);

/* To whom it would connect, and as whom, as libpq resolves that: for identify(). */
enum rc connection_identify(const struct connection *, struct identity *, struct fault *);

/*
 * Connects if need be.  A connection that is late is waited for again by the next call.
 */
enum rc connection_open(struct connection *, instant until, struct fault *);

/*
 * Is the connection there, and nothing known against it?  Reads what has come
 * unasked; closes a connection that has ended.
 */
bool connection_is_open(struct connection *);

/*
 * Has a notification come since the last call?  Reads like connection_is_open(): it may
 * have come along with an answer, and will then not make the socket readable.
 */
bool connection_was_notified(struct connection *);

/*
 * It has broken, or what comes over it makes no sense any more: closes it, and says so
 * (RC_AGAIN).
 */
enum rc connection_broken(struct connection *, struct fault *);

/* Closes the connection; another may be opened. */
void connection_close(struct connection *);

/* Frees all. */
void connection_free(struct connection *);

#endif
