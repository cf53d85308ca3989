/*
 * session.h - a session with a ZooKeeper ensemble, and requests made in it.
 *
 * libzookeeper_mt has two threads of its own.  What they bring is copied and
 * rung for: a request is a `struct call`, its answer is waited for through
 * host->wait like everything else.  Only the library's asynchronous functions
 * are used, the others can hang for ever (ZOOKEEPER-2802).  Its log goes
 * nowhere; the last reason why a connection failed is kept for our own words.
 *
 * A call has two owners, whoever made it and the library; the last one frees
 * it.  So an answer that comes when nobody waits any more does no harm.
 *
 * How long the lock is ours: the session's timeout T counts from when the
 * LEADER last heard of it.  A follower passes on a client's writes at once, but
 * a write is not what the leader goes by: it is told who is alive by the
 * follower's answers to its own pings, every half tickTime (3.8: Learner.ping,
 * LearnerHandler, SessionTrackerImpl.checkSession does not touch).  When a
 * write has succeeded, then an EARLIER request of ours has reached the leader
 * that way, if it was answered at least half a tick before the write was sent:
 * the pings travel on the same connection as the writes.  A session lasts at
 * least two ticks unless minSessionTimeout was lowered by hand, so half a tick
 * is at most T/4; CARRY allows for a late ping.  session_lease() counts so.
 *
 * A server that is no member of an ensemble has no leader but itself: there the
 * whole T counts from when the write was sent.  Such a server has an empty
 * /zookeeper/config, which is asked for with each connection; members have
 * written theirs into it before they serve anybody (3.8: Learner.syncWithLeader,
 * Leader.startZkServer).
 */
#ifndef DLOCK_ZK_SESSION_H
#define DLOCK_ZK_SESSION_H

#include "backends/backend.h"
#include "ensemble.h"

#include <zookeeper/zookeeper.h>

struct session;
struct call;

/*
 * Begins a session of `timeout`.  RC_OK: *ret is ours until session_end; to be
 * waited for with session_await.  RC_AGAIN: the hosts' names were not found until
 * `until`.  RC_CONFIG: TLS is wanted, and the library has none.  RC_SYSTEM.
 */
enum rc session_begin(struct session **ret, struct host *, const char *where, const struct ensemble *,
    int64_t timeout, instant until, struct fault *);

/*
 * Breaks a connection on which nobody answers: the library would stay with it for
 * two thirds of the timeout before it tries another server.
 */
void session_poison(struct session *);

/* Ends it at the server too, if there is a connection; may take for ever.  Accepts NULL. */
void session_end(struct session *);

/* The same without waiting for it. */
void session_abandon(struct session *);

/*
 * Waits for a connection.  If there is none, each server is tried once, and here only:
 * whoever calls decides how often that is.  RC_LOST: the session has expired or was
 * refused; there will be none.  RC_AGAIN: not until `until`, or nobody lets us in.
 * RC_PROTOCOL: that is no ZooKeeper.
 */
enum rc session_await(struct session *, instant until, struct fault *);

/* The same until something happens: an answer, a watch, a connection or its end; RC_OK, RC_STOP, RC_AGAIN at `until`. */
enum rc session_sleep(struct session *, instant until, struct fault *);

bool session_is_connected(struct session *);
bool session_is_dead(struct session *); /* expired or refused; for good */
int64_t session_id(struct session *);

/* Silences the house's alert; to be followed by a look at what it was about. */
void session_heed_alarm(struct session *);

/*
 * What is left of the lease that a write has earned which was sent at `sent`
 * and has succeeded; never more than session_steady(), which requests every
 * session_pace() can keep up.
 */
int64_t session_lease(struct session *, instant sent);
int64_t session_steady(struct session *);
int64_t session_pace(struct session *);

/* How often whoever waits has to be heard of, so that its first lease is a steady one. */
int64_t session_life(struct session *);

/* ---- requests: never NULL-checked by their users, session.c copes ---- */

/* Makes a node; mode as in zookeeper.h. */
struct call *session_create(struct session *, const char *path, const char *data, int mode, bool open);
struct call *session_list(struct session *, const char *path); /* and what is known of the path */
struct call *session_look(struct session *, const char *path); /* the latter alone */
struct call *session_get(struct session *, const char *path);
struct call *session_set(struct session *, const char *path, const char *data, int version);
struct call *session_delete(struct session *, const char *path, int version); /* -1: any */

/* Lets this server catch up with the leader: what is read after the answer is not older than the request. */
struct call *session_sync(struct session *, const char *path);

/*
 * Notes when a node is gone: session_was_called() then.  It is done by asking for
 * the node's children, of which it has none: a watch on data would be set off by
 * each renewal of its owner, one on its existence would outlive it.
 */
struct call *session_watch(struct session *, const char *path);
bool session_was_called(struct session *);

/* The same for our own node, and for the house: raises its alert.  True once for each alarm. */
struct call *session_guard(struct session *, const char *path);
bool session_was_alarmed(struct session *);

/*
 * The answer, waited for until `until`.  RC_OK: *code is ZOK, or one of the
 * answers that say something about nodes: ZNONODE, ZNODEEXISTS, ZBADVERSION,
 * ZUNIMPLEMENTED, ZNOCHILDRENFOREPHEMERALS.  RC_AGAIN: no connection, or no
 * answer in time.  RC_LOST: no session any more.
 */
enum rc call_await(struct call *, instant until, int *code, struct fault *);

/* When it was sent; what was answered.  Valid from call_await's RC_OK to call_drop. */
instant call_sent(const struct call *);
const struct Stat *call_stat(const struct call *);
const char *call_text(const struct call *); /* a node's name, or the beginning of its data */
const char *const *call_names(const struct call *, size_t *n);

/* To be called once for each call, answered or not. */
void call_drop(struct call *);

#endif
