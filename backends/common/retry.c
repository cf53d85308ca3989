/* retry.c - how long and how often a silent server is asked again. */
#include "retry.h"

#define FIRST_ANSWER (5 * NS_PER_S)
#define LEAST NS_PER_S /* a server has so long to answer, even if --wait is shorter */
#define SOON (100 * NS_PER_MS)
#define NEAR_PAUSE (500 * NS_PER_MS)

#define LAST (100 * NS_PER_MS) /* no attempt begins with less time left */

enum { NEAR = 4 }; /* the first so many of the queue ask again soon */

void
retry_init(struct retry *p)
{
	*p = (struct retry){.first = FIRST_ANSWER, .since = NEVER};
}

void
retry_begin(struct retry *p, const struct claim *claim)
{
	p->ttl = claim->ttl;
	p->persist = claim->persist;
	p->since = instant_now();
	p->jitter = jitter_of(claim->owner);
}

instant
retry_first(const struct retry *p, instant until)
{
	instant began = p->since == NEVER ? instant_now() : p->since,
		least = began + LEAST;
	instant ends = p->persist && until ? NEVER : instant_after(began, p->first);

	return until ? instant_first(ends, until > least ? until : least) : ends;
}

instant
retry_attempt(const struct retry *p, instant until)
{
	return instant_first(
	    retry_first(p, until), instant_after(instant_now(), p->first));
}

instant
retry_attempt_by(const struct retry *p, instant first_by)
{
	instant now = instant_now(), least = now + instant_first(LEAST, p->first);

	return first_by < least ? least
				: instant_first(first_by, instant_after(now, p->first));
}

instant
retry_answer(instant wake, int64_t most, instant until)
{
	return instant_first(
	    instant_after(wake, most), instant_after(until > wake ? until : wake, LEAST));
}

void
retry_end_outage(struct retry *p)
{
	p->since = NEVER;
	p->tries = 0;
	if (p->host)
		p->host->seen.silent = false;
}

bool
retry_is_outage(const struct retry *p)
{
	return p->since != NEVER;
}

/*
 * The pause before the next attempt.  Waiters far back ask in steps of equal length after a
 * random first one, since steps of random length would meet in waves.  A new run begins with the
 * short pauses of a waiter that is near, and slows down, for it may be one of a thousand.
 */
static int64_t
pause_before_retry(struct retry *p, unsigned position, bool queued)
{
	/* the server may drop our place after the ttl */
	int64_t far = instant_first(RETRY_FAR_PAUSE, p->ttl / 4);
	int64_t pause = SOON << (p->tries < 5 ? p->tries : 5);

	if (queued && (position == 0 || position > NEAR))
		return p->tries == 0 ? jitter_below(&p->jitter, far)
				     : far - far / 16 + jitter_below(&p->jitter, far / 8);
	pause = instant_first(pause, queued ? NEAR_PAUSE : far);
	return pause / 2 + jitter_below(&p->jitter, pause);
}

enum rc
retry_wait(struct retry *p, struct host *host, enum rc rc, bool queued, instant until)
{
	instant now = instant_now(), ends, next;

	if (rc != RC_AGAIN)
		return rc;
	if (p->since == NEVER)
		p->since = now;
	ends = until;
	if (!p->persist)
		ends = instant_first(
		    until, instant_after(p->since, queued ? p->ttl : p->first));
	if (now >= ends)
		return RC_AGAIN;
	next = instant_first(
	    now + pause_before_retry(p, host->seen.position, queued), ends - LAST);
	/*
	 * too late for another attempt, too early to say that we have tried for so long
	 */
	if (now >= ends - LAST)
		next = ends;
	p->tries++;
	p->host = host;
	host->seen.silent = true;
	if (host->wait(host, -1, 0, next) == WOKE_STOP)
		return RC_STOP;
	return next == ends ? RC_AGAIN : RC_OK;
}

bool
retry_first_again(struct retry *p, struct host *host, instant until, enum rc *rc)
{
	enum rc next = until ? retry_wait(p, host, *rc, false, retry_first(p, until))
			     : *rc;

	if (*rc == RC_AGAIN && next == RC_OK)
		return true;
	*rc = next;
	retry_end_outage(p);
	return false;
}
