/*
 * redis_queue.h - our place in a lock's queue, and when to ask whether it is our turn.
 *
 * A waiter asks again when it is told to, and in any case often enough to count as alive,
 * and when a lease or a freeze ends that it may be next after.
 */
#ifndef DLOCK_REDIS_REDIS_QUEUE_H
#define DLOCK_REDIS_REDIS_QUEUE_H

#include "client.h"
#include "listener.h"

struct redis_queue {
	struct listener listener;
	instant listen_due; /* not to be begun again before */
	uint64_t ticket;    /* the place, as the server dealt it; 0: none yet */
	unsigned beats;     /* for their jitter */
};

/* so long, a waiter that asked counts as alive: two beats may be lost */
#define QUEUE_ALIVE (9 * NS_PER_S)
/* for an answer while in the queue */
#define QUEUE_PATIENCE (3 * NS_PER_S)

/*
 * Sleeps until there is reason to ask again: a message, a beat, or a subscription just
 * begun, since a message may have gone out before.  Without a subscription (the
 * server has no room for a second connection) beats must do; it is tried again now and
 * then.  RC_BUSY, without words, at `until`; else as listener_begin() and listener_await().
 */
enum rc redis_queue_wait(struct redis_queue *, const struct client *,
    const struct answer *, instant until, struct fault *);

#endif
