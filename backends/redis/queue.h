/*
 * queue.h - our place in a lock's queue, and when to ask whether it is our turn.
 *
 * A waiter asks again when it is told to, on a second connection that is subscribed to one
 * channel at the server that has the lock (what a message says does not matter); in any case
 * often enough to count as alive; and when a lease or a freeze ends behind which it may be
 * next.
 */
#ifndef DLOCK_REDIS_QUEUE_H
#define DLOCK_REDIS_QUEUE_H

#include "dialects.h"
#include "route.h"

struct queue {
	struct server listener;
	const struct route *route; /* where the lock is */
	unsigned moves;            /* of the route, when the listener was opened */
	instant listen_due;        /* not to be opened again before */
	uint64_t ticket;           /* the place, as the server dealt it; 0: none yet */
	unsigned beats;            /* for their jitter */
};

/* so long, a waiter that asked counts as alive: two beats may be lost */
#define QUEUE_ALIVE (9 * NS_PER_S)
/* for an answer while in the queue */
#define QUEUE_PATIENCE (3 * NS_PER_S)

/* It is all 0. */
void queue_init(struct queue *, const struct route *);

/* Is a message to the channel heard?  Not if the lock has moved to another server. */
bool queue_is_subscribed(struct queue *);

/*
 * Sleeps until there is reason to ask again: a message, a beat, or a subscription just
 * begun, since a message may have gone out before.  Without a subscription (the
 * server has no room for a second connection) beats must do; it is tried again now and
 * then.  RC_OK; RC_BUSY, without words, at `until`; RC_AGAIN: the subscription has ended;
 * else as server_ask().
 */
enum rc queue_wait(struct queue *, const struct names *, const char *owner,
    const struct answer *, instant until, struct fault *);

#endif
