/*
 * wait.h - the queue for a lock: whose turn it is, and what a waiter does until it is ours.
 *
 *  1. A waiter watches the one node ahead of it, so a release wakes one.  It
 *     then lists anew, for the node may have been a waiter's that gave up, and
 *     in the same breath writes its own node: that earns the lease.
 *  2. What it does besides costs the same however long the queue is: a few
 *     times a session it asks for the directory's counts, which tell how many have
 *     left, and whereby the leader hears of it.  It lists only when it may have come
 *     near the head, and else after a second for each place: all names are sent with
 *     a list, so whoever joins has one for all who stand there.
 *  3. What is watched stays watched through all connections of a session (the library
 *     sees to that).  So a waiter that had lost its connection asks for the counts at
 *     once, and goes on: a thousand that come back at once, each with a list of all,
 *     would keep the server busy for longer than their sessions last.
 *  4. A waiter says in its node that it is one (data.h).  Those near the head delete the
 *     first node if it stays a waiter's for IDLE_PATIENCE: its owner has died.
 */
#ifndef DLOCK_ZK_WAIT_H
#define DLOCK_ZK_WAIT_H

#include "backends/patience.h"
#include "node.h"
#include "queue.h"

/* How many had left the directory when we saw our place. */
struct census {
	uint32_t departed; /* twice as many */
	instant taken;
};

/* The first node, where it is a waiter's. */
struct idler {
	int64_t czxid; /* 0: it is none's */
	instant since; /* when we first saw that */
};

/* Our turn, and what we know of the queue.  The first four are set by its owner. */
struct turn {
	struct node *node;
	struct host *host; /* is told what is seen of the queue */
	struct patience *patience;
	int64_t ttl;
	instant over;	   /* until then we must have earned a lease; NEVER: it is not our turn */
	bool queued;	   /* we have seen our place */
	bool watching;	   /* the node that was ahead of us then, and still is, as far as we know */
	struct call *list; /* the queue as it was then, */
	struct place place;
	struct census census;
	struct idler idler;
};

/*
 * We are in the queue, which `list` shows (it is ours from now on; while we are watching, it
 * may be NULL): waits for our turn until `until`, and earns a lease, if *g is none that lasts.
 * `until` 0: RC_BUSY at once, where others are ahead.  RC_LOST: our place is.  RC_AGAIN: to
 * be called again when there is a connection.
 */
enum rc turn_await(struct turn *, struct call *list, instant until, struct grant *g, struct fault *);

/* Our place is gone, or not needed any more. */
void turn_forget(struct turn *);

#endif
