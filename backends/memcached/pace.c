/* pace.c - how often a waiter asks. */
#include "pace.h"

#include "backends/common/retry.h"

#define POLL (200 * NS_PER_MS)
#define POLL_JITTER (100 * NS_PER_MS)
#define POLL_UNREADY NS_PER_S

void
pace_begin(struct pace *p, const struct claim *claim)
{
	p->dice = jitter_of(claim->owner);
	retry_begin(&p->patience, claim);
}

enum rc
pace_sleep(struct pace *p, struct host *host, instant until, const struct fault *f)
{
	int64_t pause = p->unready ? POLL_UNREADY : POLL - POLL_JITTER / 2;
	instant next = instant_now() + pause + jitter_below(&p->dice, POLL_JITTER);

	if (p->unready && p->told != p->unready) {
		host->notice = *f;
		p->told = p->unready;
	}
	if (host->wait(host, -1, 0, instant_first(next, until)) == WOKE_STOP)
		return RC_STOP;
	if (instant_now() < until)
		return RC_OK;
	return p->unready ? RC_AGAIN : RC_BUSY;
}
