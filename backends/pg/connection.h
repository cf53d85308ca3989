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

#include "pg.h"

/* Reads conninfo and names the server; no connection yet.  RC_USAGE; as pq_load(). */
enum rc connection_init(
    struct connection *, struct sql *, const char *conninfo, struct fault *);

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

/* Its socket; -1: not connected. */
int connection_descriptor(const struct sql *);

/* Frees all. */
void connection_free(struct connection *);

#endif
