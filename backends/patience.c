/* patience.c - how long and how often a silent server is asked again. */
#include "patience.h"

#define FIRST_ANSWER (5 * NS_PER_S)
#define LEAST NS_PER_S /* even if --wait is shorter, a server may take so long */
#define SOON (100 * NS_PER_MS)
#define NEAR_PAUSE (500 * NS_PER_MS)
#define FAR_LEAST (1400 * NS_PER_MS) /* or an eighth of the ttl, for one whose place ends with it */

enum { NEAR = 4 }; /* so many at the head of the queue come soon */

void
patience_init(struct patience *p, const struct want *want)
{
	*p = (struct patience){
	    .first = FIRST_ANSWER,
	    .ttl = want->ttl,
	    .persist = want->persist,
	    .since = NEVER,
	    .jitter = 1469598103934665603ULL,
	};
	for (const char *c = want->owner; *c; c++) /* FNV-1a: as random as the owner is */
		p->jitter = (p->jitter ^ (unsigned char)*c) * 1099511628211ULL;
}

instant
patience_first(const struct patience *p, instant until)
{
	instant now = instant_now(), least = instant_after(now, LEAST);

	if (p->persist && until)
		return until > least ? until : least;
	if (until && until < instant_after(now, p->first))
		return until > least ? until : least;
	return instant_after(now, p->first);
}

void
patience_end_outage(struct patience *p)
{
	p->since = NEVER;
	p->tries = 0;
}

/* From 0 to n - 1. */
static int64_t
random_below(struct patience *p, int64_t n)
{
	p->jitter ^= p->jitter << 13; /* xorshift64, Marsaglia 2003 */
	p->jitter ^= p->jitter >> 7;
	p->jitter ^= p->jitter << 17;
	return p->jitter % (uint64_t)n;
}

/* A new run begins like one that is near and slows down, for it may be one of a thousand. */
static int64_t
pause_before_retry(struct patience *p, unsigned position, bool queued)
{
	int64_t least = instant_first(FAR_LEAST, p->ttl / 8), far = least + random_below(p, 2 * least);
	int64_t pause = SOON << (p->tries < 5 ? p->tries : 5);

	if (queued && (position == 0 || position > NEAR))
		return far;
	pause = instant_first(pause, queued ? NEAR_PAUSE : far);
	return pause / 2 + random_below(p, pause);
}

static instant
retry_ends(const struct patience *p, bool queued, instant until)
{
	if (p->persist)
		return until;
	return instant_first(until, instant_after(p->since, queued ? p->ttl : p->first));
}

enum rc
patience_retry(struct patience *p, struct host *host, enum rc rc, bool queued, instant until)
{
	instant now = instant_now(), ends, next;

	if (rc != RC_AGAIN)
		return rc;
	if (p->since == NEVER)
		p->since = now;
	ends = retry_ends(p, queued, until);
	if (now >= ends)
		return RC_AGAIN;
	next = instant_first(now + pause_before_retry(p, host->seen.position, queued), ends);
	p->tries++;
	return host->wait(host, -1, 0, next) == WOKE_STOP ? RC_STOP : RC_OK;
}
