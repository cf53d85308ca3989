/*
 * queue.c - our place in a lock's queue, and when to ask whether it is our turn.
 *
 * A waiter asks again when a message comes on its channel (what it says does not matter), often
 * enough to count as alive, and when a lease or a freeze ends behind which it may be next.
 * A holder hears on the same channel that it is to ask, which is to renew: of a break.
 */
#include "redis.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* a waiter asks at least so often, and half a second later at most */
#define BEAT (3300 * NS_PER_MS)
/* well within the grace of a grant nobody tells us of */
#define UNSUBSCRIBED_BEAT NS_PER_S
/* where nobody is told of a release: so often, and up to four times as long */
#define POLL (75 * NS_PER_MS)

/* of the time for a renewal: one of so many parts, to begin to listen once it is done */
enum { HEAR_SHARE = 4 };
/* are read at once: others may send them without end */
enum { MESSAGES = 16 };

/*
 * Behind who stands first, so many ask, each so much later than the one before, when a
 * freeze ends: who is to do that may be dead.
 */
#define NEAR_LATER (250 * NS_PER_MS)
enum { NEAR = 3 };

/* ms; a server that says less again and again is asked no more often */
enum { LEFT_LEAST = 50 };

/* ---- the subscription ---- */

bool
queue_is_subscribed(struct queue *q)
{
	if (q->moves != q->route->moves) {
		server_go(&q->listener, &q->route->server.peer.at);
		q->moves = q->route->moves;
		q->deaf = false;
	}
	return q->listener.peer.stream.fd >= 0;
}

/*
 * From its RC_OK on, a message arrives.  RC_AGAIN: the server has no room, or is silent.  With
 * sharded names, what stays in the channel's slot is heard, too: the answer to that comes as
 * if it were a message, one more reason to ask, also where it says that the server has no such
 * thing.
 */
static enum rc
queue_subscribe(
    struct queue *q, const struct names *names, instant until, struct fault *f)
{
	struct question question = {.subscribes = true};
	const resp_words commands[] = {
	    {"SUBSCRIBE", names->channel}, {"SSUBSCRIBE", names->channel}};
	char *command = resp_write(commands, names->sharded ? 2 : 1);
	redisReply *reply = NULL;
	enum rc rc;

	if (!command)
		return fault_set(f, RC_SYSTEM, "out of memory");
	question.command = command;
	rc = server_ask(&q->listener, &question, until, &reply, f);
	free(command);
	if (rc != RC_OK)
		return rc;
	if (reply->type == REDIS_REPLY_ERROR)
		rc = peer_refuses(
		    &q->listener.peer, false, names->keys[0], reply->str, f);
	else if (reply->type != REDIS_REPLY_ARRAY)
		rc = fault_set(f, RC_PROTOCOL, "%s gave a wrong answer to SUBSCRIBE",
		    q->listener.peer.where);
	freeReplyObject(reply);
	if (rc != RC_OK)
		server_close(&q->listener);
	return rc;
}

/* ---- while the lock is held ---- */

void
queue_forget_messages(struct queue *q)
{
	redisReply *reply = NULL;
	struct fault ignored;

	for (int i = 0; i < MESSAGES && queue_is_subscribed(q); i++) {
		if (peer_receive(&q->listener.peer, &reply, &ignored) != RC_OK || !reply)
			return;
		freeReplyObject(reply);
	}
}

bool
queue_hear(struct queue *q, const struct names *names, instant until)
{
	instant now = instant_now();
	struct fault ignored;
	enum rc rc;

	if (q->deaf || queue_is_subscribed(q) || now < q->listen_due)
		return false;
	/* an early renewal comes that much after this one was sent, not after its answer */
	q->listen_due = now + UNSUBSCRIBED_BEAT / 2;
	rc = queue_subscribe(q, names, now + (until - now) / HEAR_SHARE, &ignored);
	q->deaf = rc == RC_DENIED || rc == RC_PROTOCOL;
	return rc == RC_OK;
}

/* ---- while it is waited for ---- */

/* Until a message comes (RC_OK) or `until` (RC_BUSY), which it does without a subscription, too. */
static enum rc
queue_listen(struct queue *q, instant until, struct fault *f)
{
	struct peer *p = &q->listener.peer;
	struct host *host = q->route->host;
	redisReply *reply = NULL;
	enum woke woke;
	enum rc rc;

	do {
		rc = p->stream.fd >= 0 ? peer_receive(p, &reply, f) : RC_OK;
		if (rc != RC_OK || reply) {
			freeReplyObject(reply);
			return rc == RC_PROTOCOL ? RC_OK : rc;
		}
		woke = host->wait(host, p->stream.fd, p->stream.wants, until);
	} while (woke == WOKE_READY && instant_now() < until);
	return woke == WOKE_STOP ? RC_STOP : RC_BUSY;
}

/* ---- when to ask ---- */

/*
 * When to ask again although no message came: at the latest at the end of a lease if we are
 * first, or of a freeze if we are near.
 */
static instant
next_beat(
    struct queue *q, const struct names *names, const char *owner, const struct answer *a)
{
	/* enough to keep a thousand waiters from asking in step */
	int64_t jitter = (owner[q->beats++ % OWNER_CHARS] % 16) * 30 * NS_PER_MS;
	int64_t left = a->left_ms < LEFT_LEAST ? LEFT_LEAST : a->left_ms + 5;
	instant now = instant_now(), beat = now + BEAT + jitter;

	if (!*names->channel)
		return now + POLL + jitter / 2;
	if (q->listener.peer.stream.fd < 0)
		beat = now + UNSUBSCRIBED_BEAT;
	if (a->left_ms <= 0 || a->place > (a->holding.frozen ? NEAR : 1))
		return beat;
	left *= NS_PER_MS;
	return instant_first(
	    beat, now + left + (a->place > 1 ? (a->place - 1) * NEAR_LATER : 0));
}

enum rc
queue_wait(struct queue *q, const struct names *names, const char *owner,
    const struct answer *a, instant until, struct fault *f)
{
	instant now = instant_now();
	enum rc rc;

	if (*names->channel && !queue_is_subscribed(q) && now >= q->listen_due) {
		q->listen_due = now + UNSUBSCRIBED_BEAT;
		rc = queue_subscribe(q, names, now + QUEUE_PATIENCE, f);
		if (rc != RC_AGAIN)
			return rc;
	}
	rc = queue_listen(q, instant_first(next_beat(q, names, owner, a), until), f);
	return rc == RC_BUSY && instant_now() < until ? RC_OK : rc;
}
