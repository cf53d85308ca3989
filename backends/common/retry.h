/*
 * retry.h - decides how long, and how often, a server that does not answer is asked again.
 *
 * Each lock has a struct retry, which its backend owns.  There are two bounds; where the user
 * says --wait (claim->persist), that replaces both:
 *
 *  1. Before the first answer: connect-timeout (5 s) from the beginning, also
 *     when the connection is refused, since a server that is being restarted
 *     refuses.  It also bounds each single attempt, whatever --wait says.  With
 *     `until` 0 there is one attempt.
 *  2. In the queue: the ttl, from when the server was last heard.
 *
 * A thousand waiters may lose their server in the same millisecond.  Those next in line try again
 * at once and often, so that one of them runs as soon as the server is back.  Each of the others
 * tries at a random moment of the next three seconds, and then every three seconds.  So five
 * hundred of them make at most two hundred attempts in any second, and all are back in time.
 */
#ifndef DLOCK_RETRY_H
#define DLOCK_RETRY_H

#include "backends/backend.h"

/* ---- jitter: random pauses keep many waiters from asking in step ---- */

/*
 * Makes a state of a text (FNV-1a), such as a claim's owner; never 0.  It is only as random as
 * the text, so make nothing secret of it.
 */
static inline uint64_t
jitter_of(const char *text)
{
	uint64_t jitter = 1469598103934665603ULL;

	for (; *text; text++)
		jitter = (jitter ^ (unsigned char)*text) * 1099511628211ULL;
	return jitter ? jitter : 1;
}

/* A random number from 0 to below - 1. */
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
 * A waiter that has lost its connection is back so long after its server's return: the longest
 * pause between two attempts is RETRY_FAR_PAUSE and a sixteenth.  A server that drops silent
 * waiters must wait longer.
 */
#define RETRY_RETURN (RETRY_FAR_PAUSE + NS_PER_S)

struct retry {
	int64_t first; /* the first bound, ns; a setting may change it */
	int64_t ttl;
	bool persist;
	/* when the silence began: the server was last heard, or first asked; NEVER: it answers */
	instant since;
	unsigned tries;    /* of this outage */
	struct host *host; /* the host that was told of it; NULL: none */
	uint64_t jitter;
};

/* Sets the default of the first bound, which a setting may replace. */
void retry_init(struct retry *);

/* Called once, when acquire begins: the first bound counts from now. */
void retry_begin(struct retry *, const struct claim *);

/* Until when to wait for the first answer; `until` is acquire's. */
instant retry_first(const struct retry *, instant until);

/* Until when a single attempt may last that begins now. */
instant retry_attempt(const struct retry *, instant until);

/*
 * Until when to wait in the queue for an answer that is due at `wake`: `most` longer.  Where
 * --wait ends earlier, a server that hangs gets one second beyond `until`, as before the first
 * answer.
 */
instant retry_answer(instant wake, int64_t most, instant until);

/* The server has answered (host->seen.silent ends): the next failure begins an outage. */
void retry_end_outage(struct retry *);

/* Is there an outage: no answer since retry_begin(), or since an attempt has failed? */
bool retry_is_outage(const struct retry *);

/*
 * Until when an attempt may last that wants its answer by `first_by` (retry_first(), or NEVER):
 * at least a second, so that it can still learn why it fails.
 */
instant retry_attempt_by(const struct retry *, instant first_by);

/*
 * Called after an attempt that ended with RC_AGAIN, with the reason in acquire's fault: tells the
 * host, and sleeps until the next attempt is due.  RC_OK: try again.  RC_AGAIN: it has lasted too
 * long.  RC_STOP: as host->wait says.  Any other rc is given back as it is.  `queued`: the server
 * knows of us.
 */
enum rc retry_wait(struct retry *, struct host *, enum rc, bool queued, instant until);

/*
 * Called after each attempt at a first answer, which ended with *rc.  True: the next attempt is
 * due.  False: *rc is the result of all attempts, and the outage has ended.
 *
 *	do
 *		rc = ask(..., retry_attempt_by(p, retry_first(p, until)), ...);
 *	while (retry_first_again(p, host, until, &rc));
 */
bool retry_first_again(struct retry *, struct host *, instant until, enum rc *);

#endif
