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
 * How long the lock is ours, T being the session's timeout, after a write that
 * was sent at t and has succeeded (session_lease; Java names are the server's, 3.5
 * to 3.9):
 *
 *  1. T counts from when the LEADER last heard of the session.  A new leader, or a
 *     server that starts, counts from its own beginning (SessionTrackerImpl), which
 *     is after t: whoever follows it no longer agrees to an older one's writes.
 *  2. A leader has heard of a client that is connected to it at t or later, since
 *     each request counts (ZooKeeperServer.submitRequestNow): the lease is T.
 *  3. A follower passes on a client's writes at once, but a write is not what its
 *     leader goes by: it is told who is alive by the follower's answers to its own
 *     pings, every half tickTime (Learner.ping, LearnerHandler;
 *     SessionTrackerImpl.checkSession does not touch).  A write that has succeeded
 *     proves that an EARLIER request of ours has reached the leader that way, if that
 *     was answered at least half a tick before t: the pings travel on the same
 *     connection as the writes.  A session lasts at least two ticks unless
 *     minSessionTimeout was lowered by hand, so half a tick is at most T/4; CARRY
 *     (0.3 T) allows for a late ping.  The lease is T from when the newest such
 *     request was sent; with one each PACE (T/12) that is 0.53 T at the least.
 *  4. The case of 2 is known by an empty /zookeeper/config, which is asked for with
 *     each connection.  It is empty at a server that is no member of an ensemble.
 *     Followers and observers have written theirs into it before they serve
 *     anybody (Learner.syncWithLeader).  A leader may not have, if its data are
 *     those of a server that was alone once: 2 is true of it.  Not known, not
 *     readable, or an older server that has no such node: it is taken for a follower.
 *  5. No connection has the answer of another.  It is forgotten when a connection
 *     begins or ends, and the library brings the session's events and all answers,
 *     also "lost", in one thread and in the order in which they happened (one
 *     queue, completions_to_process; cleanup() in 3.8 to 3.9).  If the
 *     question itself went out on the next connection, that is answered.  A write that a
 *     follower passed on may be judged when we have come to a leader as in 4: that has
 *     heard of us when we came, after t (ZooKeeperServer.revalidateSession).
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

/* Clears the keeper's alert; to be followed by a look at what it was about. */
void session_clear_alarm(struct session *);

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

/* The same for our own node, and for the keeper: raises its alert.  True once for each alarm. */
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
