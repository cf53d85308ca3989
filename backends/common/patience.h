/*
 * patience.h - how long a server that does not answer is asked again, and how often.
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
#ifndef DLOCK_PATIENCE_H
#define DLOCK_PATIENCE_H

#include "backends/backend.h"

struct patience {
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
void patience_init(struct patience *);

/* Once, when acquire begins: the first bound counts from now. */
void patience_begin(struct patience *, const struct claim *);

/* Until when the first answer may be awaited; `until` as acquire has it. */
instant patience_first(const struct patience *, instant until);

/* The same for a single attempt that begins now. */
instant patience_attempt(const struct patience *, instant until);

/*
 * Until when an answer is awaited that is due at `wake`, in the queue: `most` longer.  But
 * who waits no longer than `until` (--wait) gives a server that hangs a second more, as he
 * does before the first answer.
 */
instant patience_answer(instant wake, int64_t most, instant until);

/* The server has answered (host->seen.silent ends): the next failure begins an outage. */
void patience_end_outage(struct patience *);

/* Has it not answered since patience_begin(), or since an attempt failed? */
bool patience_is_outage(const struct patience *);

/*
 * Until when one that shall have an answer by `first_by` (patience_first(), or NEVER) may
 * last, where also why it fails is an answer worth waiting for: at least a second.
 */
instant patience_attempt_by(const struct patience *, instant first_by);

/*
 * After an attempt that ended with RC_AGAIN and words in acquire's fault (another
 * rc is given back as it is): tells the host, and sleeps until the next one is
 * due.  RC_OK: try again.  RC_AGAIN: it has lasted too long.  RC_STOP: as
 * host->wait says.  `queued`: the server knows of us.
 */
enum rc patience_retry(
    struct patience *, struct host *, enum rc, bool queued, instant until);

/*
 * After each attempt at a first answer, which ended with *rc: true when the next one is
 * due; otherwise *rc is what became of them all, and the outage has ended.
 *
 *	do
 *		rc = ask(..., patience_attempt_by(p, patience_first(p, until)), ...);
 *	while (patience_first_again(p, host, until, &rc));
 */
bool patience_first_again(struct patience *, struct host *, instant until, enum rc *);

#endif
