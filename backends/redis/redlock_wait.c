/* redlock_wait.c - when to ask a quorum again for what was refused. */
#include "redlock_wait.h"

#include "backends/common/retry.h"

enum { TRIES_WITHOUT_WAIT = 4 };

void
redlock_wait_begin(struct redlock_wait *w, const struct claim *claim)
{
	w->began = instant_now();
	w->dice = jitter_of(claim->owner);
}

bool
redlock_wait_is_over(
    const struct redlock_wait *w, const struct refusal *refusal, instant until)
{
	return until == 0 &&
	    (refusal->because != BECAUSE_SPLIT || w->tries >= TRIES_WITHOUT_WAIT ||
		instant_now() >= w->began + NS_PER_S);
}

/* Until somebody releases it, as far as we are told, or so long. */
static void
listen_for_release(struct quorum *q, int64_t length)
{
	struct order order = {.kind = ORDER_LISTEN,
	    .lease = ns_to_ms(length),
	    .until = instant_now() + length + NS_PER_S};

	quorum_ask_one(q, q->listener, &order);
}

static int64_t
pause_while_held(struct redlock_wait *w, const struct refusal *refusal)
{
	int64_t pause = (refusal->listens ? 500 + jitter_below(&w->dice, 500)
					  : 50 + jitter_below(&w->dice, 200)) *
	    NS_PER_MS;

	w->tries = 0;
	if (refusal->left >= 0 && refusal->left + 5 * NS_PER_MS < pause)
		pause = refusal->left + (5 + jitter_below(&w->dice, 20)) * NS_PER_MS;
	return pause;
}

static int64_t
pause_of(struct redlock_wait *w, const struct refusal *refusal)
{
	switch (refusal->because) {
	case BECAUSE_YOUNG:
		return (200 + jitter_below(&w->dice, 200)) * NS_PER_MS;
	case BECAUSE_SPLIT:
		return (w->tries++ < 8 ? 25 + jitter_below(&w->dice, 50)
				       : 100 + jitter_below(&w->dice, 200)) *
		    NS_PER_MS;
	case BECAUSE_HELD:
		break;
	}
	return pause_while_held(w, refusal);
}

enum rc
redlock_wait(struct redlock_wait *w, struct quorum *q, const struct refusal *refusal,
    instant until)
{
	int64_t pause = pause_of(w, refusal);
	instant ends = instant_first(until, instant_now() + pause);
	struct tally t;
	enum rc rc;

	if (refusal->because == BECAUSE_HELD && refusal->listens) {
		listen_for_release(q, pause);
		rc = quorum_hear(q, ends + NS_PER_S / 10, NULL, &t);
		if (rc == RC_OK && t.failed > 0)
			rc = quorum_sleep(q, ends);
	} else {
		rc = quorum_sleep(q, ends);
	}
	if (rc != RC_OK)
		return rc;
	return instant_now() >= until ? RC_BUSY : RC_OK;
}
