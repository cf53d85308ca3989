/*
 * session.h - a session with a ZooKeeper ensemble.
 *
 * libzookeeper_mt has two threads of its own.  What they bring is copied, and
 * waited for through host->wait like everything else.  Only the library's asynchronous
 * functions are used (call.h), the others can hang for ever (ZOOKEEPER-2802).  What it
 * does not offer, and how dlock gets that all the same, is in library.h.
 */
#ifndef DLOCK_ZK_SESSION_H
#define DLOCK_ZK_SESSION_H

#include "backends/backend.h"
#include "credit.h"
#include "ensemble.h"

#include <zookeeper/zookeeper.h>

struct session;

/*
 * Begins a session of `timeout`; `where` and the ensemble must outlive it.  RC_OK:
 * *ret is ours until session_end; to be waited for with session_await.  RC_AGAIN:
 * the hosts' names were not found until `until`.  RC_SYSTEM.
 */
enum rc session_begin(struct session **ret, struct host *, const char *where,
    const struct ensemble *, int64_t timeout, instant until, struct fault *);

/*
 * Breaks a connection on which nobody answers: the library would stay with it for
 * two thirds of the timeout before it tries another server.
 */
void session_poison(struct session *);

/*
 * Ends it at the server too, if there is a connection, and waits for that, unless nothing `depends`
 * on it; may take for ever.  Accepts NULL.
 */
void session_end(struct session *, bool depends);

/* The same without waiting for it. */
void session_abandon(struct session *);

/* What is known of a session at one moment. */
struct session_view {
	bool connected; /* requests can be made */
	bool dead;      /* expired or refused; for good */
	bool called;    /* the node that is watched has ended or changed */
	bool alarmed;   /* our own is gone */
	int64_t id;     /* 0: there was no connection yet */
	struct credit credit;
	/* session.c's own: */
	int state;   /* as the library last told it */
	bool held;   /* the library waits (library.h) */
	bool shrunk; /* the timeout has become shorter */
	bool unfit;  /* the library connects in a way that we do not know */
	bool proven; /* a server has answered a request */
};

struct session_view session_look(struct session *);

/*
 * Waits for a connection.  If there is none, each server is tried once, and here only:
 * whoever calls decides how often that is.  RC_LOST: the session has expired or was
 * refused; there will be none.  RC_AGAIN: not until `until`, or nobody lets us in.
 * RC_PROTOCOL: that is no ZooKeeper.
 */
enum rc session_await(struct session *, instant until, struct fault *);

/* Has the last one found nobody who listens, on any server? */
bool session_is_refused(const struct session *);

/*
 * What a code means that says nothing of nodes (call_await()), and in which words; NULL: the
 * library's.
 */
enum rc session_meaning(int code, const char **words);

/* From now on, each answer is awaited no longer than so. */
void session_limit(struct session *, int64_t most);

/* Until when the answer to a request is awaited that shall be there by `until`. */
instant session_answer_by(const struct session *, instant until);

/*
 * The same until something happens: an answer, a watch, a connection or its end; RC_OK,
 * RC_STOP, RC_AGAIN at `until`.
 */
enum rc session_sleep(struct session *, instant until, struct fault *);

/*
 * Forgets an alarm, also the keeper's alert; to be followed by a look at what it was
 * about.
 */
void session_clear_alarm(struct session *);

/*
 * Copies, for people, what others have written: without our password in it, and cut to
 * size.
 */
void session_quote(const struct session *, char *out, size_t size, const char *text);

/* ---- for call.c: what a call has to do with its session ---- */

zhandle_t *session_handle(struct session *);

/* Nodes whose end is told. */
enum watched { WATCHED_AHEAD, WATCHED_OWN };

/* It is about to be watched; or it is gone: raises the keeper's alert, if it is our own. */
void session_note(struct session *, enum watched, bool gone);
void session_wake(struct session *);

/* A server has answered a request that was sent at `sent`. */
void session_answered(struct session *, instant sent);

/*
 * Sleeps until something happens, as session_sleep; RC_AGAIN also if the connection is
 * lost.  RC_PROTOCOL.
 */
enum rc session_await_answer(struct session *, instant until, struct fault *);

/* What became of a request whose answer says nothing about nodes. */
enum rc session_judge(struct session *, int code, struct fault *);

#endif
