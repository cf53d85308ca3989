/*
 * retry.h - how long a server that does not answer is asked again, and how often.
 *
 * One for each lock, owned by its backend.  There are two bounds, and --wait
 * replaces both when the user named it (claim->persist):
 *
 *  1. Before the first answer: connect-timeout (5 s) from the beginning, also
 *     when the connection is refused, since a server that is being restarted
 *     refuses.  It bounds a single attempt, too, whatever --wait says.  With
 *     `until` 0 there is one attempt.
 *  2. In the queue: the ttl, from when the server was last heard.
 *
 * A thousand waiters lose their server in the same millisecond.  Those next in
 * line try again at once and often, for one of them is to run as soon as the
 * server is back; each of the others comes at a random moment of the next three
 * seconds and then once in so long, so that five hundred of them are no more
 * than two hundred attempts in any second, and all are back in time.
 */
#ifndef DLOCK_RETRY_H
#define DLOCK_RETRY_H

#include "backends/backend.h"

/* ---- jitter: random pauses keep many waiters from asking in step ---- */

/*
 * A state that differs with the text (FNV-1a), such as a claim's owner; never 0.  It is as
 * random as the text, and no more: make nothing secret of it.
 */
static inline uint64_t
jitter_of(const char *text)
{
	uint64_t jitter = 1469598103934665603ULL;

	for (; *text; text++)
		jitter = (jitter ^ (unsigned char)*text) * 1099511628211ULL;
	return jitter ? jitter : 1;
}

/* From 0 to below - 1. */
static inline int64_t
jitter_below(uint64_t *jitter, int64_t below)
{
	*jitter ^= *jitter << 13; /* xorshift64, Marsaglia 2003 */
	*jitter ^= *jitter >> 7;
	*jitter ^= *jitter << 17;
	return (int64_t)(*jitter % (uint64_t)below);
}

/* ---- asking again ---- */

#define RETRY_FAR_PAUSE (3 * NS_PER_S)

/*
 * A waiter that has lost its connection is back by then, counted from its server's return: the
 * longest pause between two attempts is RETRY_FAR_PAUSE and a sixteenth.  Whoever takes
 * a waiter for dead waits longer.
 */
#define RETRY_RETURN (RETRY_FAR_PAUSE + NS_PER_S)

struct retry {
	int64_t first; /* the first bound, ns; a setting may change it */
	int64_t ttl;
	bool persist;
	/* when the server was last heard, or first asked; NEVER: it answers */
	instant since;
	unsigned tries;    /* in this outage */
	struct host *host; /* who was told of it; NULL: nobody */
	uint64_t jitter;
};

/* With the default of the first bound, which a setting may replace. */
void retry_init(struct retry *);

/* Once, when acquire begins: the first bound counts from now. */
void retry_begin(struct retry *, const struct claim *);

/* Until when the first answer may be awaited; `until` as acquire has it. */
instant retry_first(const struct retry *, instant until);

/* The same for a single attempt that begins now. */
instant retry_attempt(const struct retry *, instant until);

/*
 * Until when an answer is awaited that is due at `wake`, in the queue: `most` longer.  But
 * who waits no longer than `until` (--wait) gives a server that hangs a second more, as he
 * does before the first answer.
 */
instant retry_answer(instant wake, int64_t most, instant until);

/* The server has answered (host->seen.silent ends): the next failure begins an outage. */
void retry_end_outage(struct retry *);

/* Has it not answered since retry_begin(), or since an attempt failed? */
bool retry_is_outage(const struct retry *);

/*
 * Until when one that shall have an answer by `first_by` (retry_first(), or NEVER) may
 * last, where also why it fails is an answer worth waiting for: at least a second.
 */
instant retry_attempt_by(const struct retry *, instant first_by);

/*
 * After an attempt that ended with RC_AGAIN and words in acquire's fault (another
 * rc is given back as it is): tells the host, and sleeps until the next one is
 * due.  RC_OK: try again.  RC_AGAIN: it has lasted too long.  RC_STOP: as
 * host->wait says.  `queued`: the server knows of us.
 */
enum rc retry_wait(struct retry *, struct host *, enum rc, bool queued, instant until);

/*
 * After each attempt at a first answer, which ended with *rc: true when the next one is
 * due; otherwise *rc is what became of them all, and the outage has ended.
 *
 *	do
 *		rc = ask(..., retry_attempt_by(p, retry_first(p, until)), ...);
 *	while (retry_first_again(p, host, until, &rc));
 */
bool retry_first_again(struct retry *, struct host *, instant until, enum rc *);

#endif
