/*
 * patience.h - how long a server that does not answer is asked again, and how often.
 *
 * One for each lock, owned by its backend.  There are two bounds, and --wait
 * replaces both when the user named it (want->persist):
 *
 *  1. Before the first answer: connect-timeout (5 s), also when the connection
 *     is refused, since a server that is being restarted refuses.  With `until`
 *     0 there is one attempt.
 *  2. In the queue: the ttl, from when the server was last heard.
 *
 * A thousand waiters lose their server in the same millisecond.  Those next in
 * line try again at once and often, for one of them is to run as soon as the
 * server is back; the others come at random times within the next four seconds,
 * so that some hundred of them are no burden.
 */
#ifndef DLOCK_PATIENCE_H
#define DLOCK_PATIENCE_H

#include "backend.h"

struct patience {
	int64_t first; /* the first bound, ns; a setting may change it */
	int64_t ttl;
	bool persist;
	instant since; /* of the outage; NEVER: the server answers */
	unsigned tries; /* in this outage */
	struct host *host; /* who was told of it; NULL: nobody */
	uint64_t jitter;
};

void patience_init(struct patience *, const struct want *);

/* Until when the first answer may be awaited; `until` as acquire has it. */
instant patience_first(const struct patience *, instant until);

/* The server has answered (host->seen.silent ends): the next failure begins an outage. */
void patience_end_outage(struct patience *);

/*
 * After an attempt that ended with RC_AGAIN and words in acquire's fault (another
 * rc is given back as it is): tells the host, sleeps until the next one is due.  RC_OK: try again.  RC_AGAIN: it has lasted
 * too long.  RC_STOP: as host->wait says.  `queued`: the server knows of us.
 */
enum rc patience_retry(struct patience *, struct host *, enum rc, bool queued, instant until);

#endif
