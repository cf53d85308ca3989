/*
 * listener.h - a second connection, on which a waiter is told that it may ask again.
 *
 * It is subscribed to one channel, at the server that has the lock.  What a message says
 * does not matter: each is reason to ask.
 */
#ifndef DLOCK_REDIS_LISTENER_H
#define DLOCK_REDIS_LISTENER_H

#include "dialect.h"
#include "server.h"
#include "topology.h"

struct listener {
	struct server server;
	const struct topology *topology;
	unsigned moves; /* of the topology, when it was begun */
};

/* Where the topology says; neither is copied. */
void listener_init(
    struct listener *, struct host *, const struct address *, const struct topology *);

/* Has it been begun, and not ended since? */
bool listener_is_open(const struct listener *);

/* Ends it if the lock has moved to another server. */
void listener_follow(struct listener *);

/*
 * From its RC_OK on, a message to the names' channel arrives.  RC_AGAIN: the server has no
 * room for it, or does not answer; else as server_ask().
 */
enum rc listener_begin(
    struct listener *, const struct names *, instant until, struct fault *);

/*
 * Sleeps until a message comes (RC_OK), or `until` (RC_BUSY, without words), which it
 * does while it is not open, too.  RC_AGAIN: it is gone.  RC_STOP.
 */
enum rc listener_await(struct listener *, instant until, struct fault *);

void listener_close(struct listener *);

#endif
