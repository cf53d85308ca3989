/*
 * session.h - one connection to a PostgreSQL server.
 *
 * libpq's own waiting is never used, for it has no deadlines: connecting
 * (names, service files, TLS) happens in a thread that may come too late, and
 * everything afterwards is non-blocking and waits in host->wait.
 *
 *  1. What the user has stated, in the URL or conninfo, a service or PG*
 *     variables, stands.  Where nothing is stated: a primary is wanted, no
 *     Kerberos encryption, application name "dlock", and dead peers are
 *     noticed within the ttl.
 *  2. A question whose answer is overdue poisons the connection: it is closed,
 *     for the answer might be taken for that to the next one.  Only a question
 *     sent with session_send() may be waited for again.
 *  3. A connection that breaks is closed; nothing is set up in the session but
 *     by whoever sees `serial` change.
 *  4. What a server, or libpq, has to say appears as its first line; a password
 *     never does.
 */
#ifndef DLOCK_PG_SESSION_H
#define DLOCK_PG_SESSION_H

#include "backends/backend.h"
#include "lib.h"

struct connecting;

struct session {
	struct host *host;
	const struct pq *pq;
	const char *conninfo; /* URI or keywords; "" for libpq's defaults */
	int64_t ttl;
	char where[WHERE_BYTES];
	bool is_default;   /* no host was stated: libpq says which one it takes */
	PGconn *conn;      /* NULL: not connected */
	struct connecting *connecting; /* a connection on its way */
	bool met_another;  /* than a PostgreSQL, at the last attempt to connect */
	bool left_a_host;  /* that attempt left a host that did not answer */
	unsigned serial;   /* of the connection: counts them */
	bool trusted;      /* functions of the schema dlock may be called here: see guard.h */
	bool guarded;      /* the question that is out follows upon the guard */
	bool stopped;      /* the guard has kept it from being run */
	bool pending;      /* a question is out */
	PGresult *kept;    /* what has come of its answer */
	bool repeated;     /* session_ask() had to ask twice: the first may have been heard */
	bool
	    unreplicated; /* the answer came before a standby had what it tells of: somebody cancelled that wait */
	char sqlstate[6];     /* of the last error or last words; "" where it was none of the server's */
	char last_words[160]; /* what the server said unasked, such as why it hangs up */
};

/* Reads conninfo and names the server; no connection yet.  RC_USAGE; as pq_load(). */
enum rc session_init(struct session *, struct host *, const char *conninfo, struct fault *);

/* Connects if need be.  A connection that is late is waited for again by the next call. */
enum rc session_connect(struct session *, instant until, struct fault *);

/*
 * Is the connection there, and nothing known against it?  Reads what has come
 * unasked; closes a connection that has ended.
 */
bool session_is_open(struct session *);

/*
 * A statement and its parameters, text or NULL.  Without any it goes the simple
 * way, which leaves nothing open in a transaction (a portal keeps a snapshot).
 */
struct question {
	const char *sql;
	int n;
	const char *const *values;
	void (*prepare)(void *ctx); /* if not NULL: called on each connection before it is asked */
	void *ctx;
};

/*
 * Connects if need be, asks, and waits for the one row of `fields` fields
 * (clear() it); 0 fields: for its being done.  *sent: just before the question left.  With `again`, which
 * takes a statement that may be run twice, a connection found broken is opened
 * anew, and one that breaks under the question gets a second chance; a transaction
 * that has lost a race (40001) gets as many as fit into 2 s, and one that was
 * not waited for on the standby all the time there is.
 */
enum rc session_ask(struct session *, const struct question *, bool again, int fields, instant until,
    instant *sent, PGresult **ret, struct fault *);

/* The same on the connection there is: a mode that lives in its session never wants another one unasked. */
enum rc session_ask_here(struct session *, const struct question *, int fields, instant until,
    instant *sent, PGresult **ret, struct fault *);

/* The same in two steps, on the open connection; an answer that is late (RC_AGAIN, `pending`) may be waited for again. */
enum rc session_send(struct session *, const struct question *, instant until, struct fault *);
enum rc session_receive(struct session *, int fields, instant until, PGresult **ret, struct fault *);

/*
 * Connects if need be, and looks whether functions of the schema dlock may be
 * called (guard.h).  For those that ask first within a transaction of their own:
 * elsewhere this is part of the first question.
 */
enum rc session_vet(struct session *, instant until, struct fault *);

/* Runs a script of several statements, connecting if need be; rolls back what has failed. */
enum rc session_run(struct session *, const char *script, instant until, struct fault *);

/* Closes the connection; another may be opened. */
void session_close(struct session *);

/* Frees all. */
void session_free(struct session *);

/* Was the last error this one?  "42501", or a class: "53". */
bool session_said(const struct session *, const char *sqlstate);

/* Fields, checked: an integer from `low` to `high`; a boolean; text that fits. */
bool field_integer(
    const struct session *, const PGresult *, int field, int64_t low, int64_t high, int64_t *ret);
bool field_boolean(const struct session *, const PGresult *, int field, bool *ret);
bool field_text(const struct session *, const PGresult *, int field, char *out, size_t size);

#endif
