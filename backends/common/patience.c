/* patience.c - how long and how often a silent server is asked again. */
#include "patience.h"

#include "dice.h"

#define FIRST_ANSWER (5 * NS_PER_S)
#define LEAST NS_PER_S /* even if --wait is shorter, a server may take so long */
#define SOON (100 * NS_PER_MS)
#define NEAR_PAUSE (500 * NS_PER_MS)
/* or a quarter of the ttl, for one whose place ends with it */
#define FAR_PAUSE (3 * NS_PER_S)

#define LAST (100 * NS_PER_MS) /* what is left for an attempt is more than this */

enum { NEAR = 4 }; /* so many at the head of the queue come soon */

void
patience_init(struct patience *p)
{
	*p = (struct patience){.first = FIRST_ANSWER, .since = NEVER};
}

void
patience_begin(struct patience *p, const struct claim *claim)
{
	p->ttl = claim->ttl;
	p->persist = claim->persist;
	p->since = instant_now();
	p->jitter = dice_of(claim->owner);
}

instant
patience_first(const struct patience *p, instant until)
{
	instant began = p->since == NEVER ? instant_now() : p->since,
		least = began + LEAST;
	instant ends = p->persist && until ? NEVER : instant_after(began, p->first);

	return until ? instant_first(ends, until > least ? until : least) : ends;
}

instant
patience_attempt(const struct patience *p, instant until)
{
	return instant_first(
	    patience_first(p, until), instant_after(instant_now(), p->first));
}

instant
patience_attempt_by(const struct patience *p, instant first_by)
{
	instant now = instant_now(), least = now + instant_first(LEAST, p->first);

	return first_by < least ? least
				: instant_first(first_by, instant_after(now, p->first));
}

instant
patience_answer(instant wake, int64_t most, instant until)
{
	return instant_first(
	    instant_after(wake, most), instant_after(until > wake ? until : wake, LEAST));
}

void
patience_end_outage(struct patience *p)
{
	p->since = NEVER;
	p->tries = 0;
	if (p->host)
		p->host->seen.silent = false;
}

bool
patience_is_outage(const struct patience *p)
{
	return p->since != NEVER;
}

/*
 * Many come in steps of equal length after a random first one: steps of random
 * length would meet in waves.  A new run begins like one that is near and slows
 * down, for it may be one of a thousand.
 */
static int64_t
pause_before_retry(struct patience *p, unsigned position, bool queued)
{
	int64_t far = instant_first(FAR_PAUSE, p->ttl / 4);
	int64_t pause = SOON << (p->tries < 5 ? p->tries : 5);

	if (queued && (position == 0 || position > NEAR))
		return p->tries == 0 ? dice_roll(&p->jitter, far)
				     : far - far / 16 + dice_roll(&p->jitter, far / 8);
	pause = instant_first(pause, queued ? NEAR_PAUSE : far);
	return pause / 2 + dice_roll(&p->jitter, pause);
}

static instant
retry_ends(const struct patience *p, bool queued, instant until)
{
	if (p->persist)
		return until;
	return instant_first(until, instant_after(p->since, queued ? p->ttl : p->first));
}

enum rc
patience_retry(
    struct patience *p, struct host *host, enum rc rc, bool queued, instant until)
{
	instant now = instant_now(), ends, next;

	if (rc != RC_AGAIN)
		return rc;
	if (p->since == NEVER)
		p->since = now;
	ends = retry_ends(p, queued, until);
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
patience_first_again(struct patience *p, struct host *host, instant until, enum rc *rc)
{
	enum rc next = until
	    ? patience_retry(p, host, *rc, false, patience_first(p, until))
	    : *rc;

	if (*rc == RC_AGAIN && next == RC_OK)
		return true;
	*rc = next;
	patience_end_outage(p);
	return false;
}
