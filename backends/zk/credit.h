/*
 * credit.h - what the leader of an ensemble knows of us, and so how long a lease is ours.
 *
 * T being the session's timeout, after a write that was sent at t and has succeeded
 * (credit_lease; Java names are the server's, 3.5 to 3.9):
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
 *
 * Pure: instants in, lengths of time out.  Whoever keeps one locks it (session.c).
 */
#ifndef DLOCK_ZK_CREDIT_H
#define DLOCK_ZK_CREDIT_H

#include "backends/common/instant.h"

#include <stdbool.h>
#include <stddef.h>

enum { PASTS = 24 };

/* One request that was answered. */
struct past {
	instant sent, answered;
};

struct credit {
	int64_t asked;   /* the timeout we wished for */
	int64_t granted; /* as a server granted it; 0: none has yet, */
	int64_t timeout; /* and as we believe it */
	instant began;   /* just before the session was asked for */
	bool alone;      /* the server of this connection follows nobody: 4 */
	struct past pasts[PASTS];
	size_t npasts;
};

void credit_begin(struct credit *, int64_t asked, instant now);

/*
 * The timeout that a server grants with a connection.  Another one, after the
 * connection to the first was lost, may grant less (its maxSessionTimeout differs);
 * then the session may end before the time that we have promised.  False: that is so.
 */
bool credit_grant(struct credit *, int64_t timeout);

/*
 * What the server of this connection says of itself (4); false when a connection begins
 * or ends (5).
 */
void credit_set_alone(struct credit *, bool alone);

/* A request was answered by a server. */
void credit_answer(struct credit *, instant sent, instant answered);

/*
 * What is left of the lease, counted from `sent`, that a write has earned which was
 * sent then and has succeeded; never more than credit_steady(), which requests every
 * credit_pace() can keep up.
 */
int64_t credit_lease(const struct credit *, instant sent);
int64_t credit_steady(const struct credit *);
int64_t credit_pace(const struct credit *);

/* How often whoever waits has to be heard of, so that its first lease is a steady one. */
int64_t credit_life(const struct credit *);

#endif
