/* redis_queue.c - our place in a lock's queue, and when to ask whether it is our turn. */
#include "redis_queue.h"

/* a waiter asks at least so often, and half a second later at most */
#define BEAT (3300 * NS_PER_MS)
/* well within the grace of a grant nobody tells us of */
#define UNSUBSCRIBED_BEAT NS_PER_S
/* where nobody is told of a release: so often, and up to four times as long */
#define POLL (75 * NS_PER_MS)

/*
 * Behind who stands first, so many ask, each so much later than the one before, when a
 * freeze ends: who is to do that may be dead.
 */
#define NEAR_LATER (250 * NS_PER_MS)
enum { NEAR = 3 };

/* ms; a server that says less again and again is asked no more often */
enum { LEFT_LEAST = 50 };

/* The end of a lease if we are first, or of a freeze if we are near; or NEVER. */
static instant
end_of_wait(const struct answer *a)
{
	int64_t left = a->waiting.left_ms < LEFT_LEAST ? LEFT_LEAST
						       : a->waiting.left_ms + 5;

	if (a->waiting.left_ms <= 0 || a->waiting.place > (a->waiting.frozen ? NEAR : 1))
		return NEVER;
	return instant_now() + left * NS_PER_MS +
	    (a->waiting.place > 1 ? (a->waiting.place - 1) * NEAR_LATER : 0);
}

/* When to ask again although no message came. */
static instant
next_beat(struct redis_queue *q, const struct client *c, const struct answer *a)
{
	/*
	 * A few bits of the owner and a counter: enough to keep a thousand waiters from
	 * asking in step.
	 */
	int64_t jitter = (c->claim->owner[q->beats++ % OWNER_CHARS] % 16) * 30 *
	    NS_PER_MS;
	instant now = instant_now(), beat = now + BEAT + jitter;

	if (!*c->names.channel)
		return now + POLL + jitter / 2;
	if (!listener_is_open(&q->listener))
		beat = now + UNSUBSCRIBED_BEAT;
	return instant_first(beat, end_of_wait(a));
}

enum rc
redis_queue_wait(struct redis_queue *q, const struct client *c, const struct answer *a,
    instant until, struct fault *f)
{
	instant now = instant_now();
	enum rc rc;

	if (*c->names.channel && !listener_is_open(&q->listener) &&
	    now >= q->listen_due) {
		q->listen_due = now + UNSUBSCRIBED_BEAT;
		rc = listener_begin(&q->listener, &c->names, now + QUEUE_PATIENCE, f);
		if (rc != RC_AGAIN)
			return rc;
	}
	rc = listener_await(&q->listener, instant_first(next_beat(q, c, a), until), f);
	return rc == RC_BUSY && instant_now() < until ? RC_OK : rc;
}
