/* credit.c - reckons the lease from what the leader surely knows; the proof is in credit.h. */
#include "credit.h"

#include <string.h>

#define CARRY(t) ((t) * 3 / 10) /* in which a ping surely went to the leader */
#define PACE(t) ((t) / 12)

void
credit_begin(struct credit *c, int64_t asked, instant now)
{
	*c = (struct credit){.asked = asked, .began = now};
}

bool
credit_grant(struct credit *c, int64_t timeout)
{
	if (c->granted && timeout < c->granted)
		return false;
	c->granted = timeout;
	/* Nobody asked for ten times as much, and no server should give it. */
	c->timeout = timeout > 10 * c->asked ? c->asked : timeout;
	return true;
}

void
credit_set_alone(struct credit *c, bool alone)
{
	c->alone = alone;
}

/* A burst of requests is one moment: the oldest of it stands for all. */
void
credit_answer(struct credit *c, instant sent, instant answered)
{
	if (c->npasts && answered < c->pasts[c->npasts - 1].answered + PACE(c->timeout) / 4)
		return;
	if (c->npasts == PASTS) {
		memmove(c->pasts, c->pasts + 1, (PASTS - 1) * sizeof *c->pasts);
		c->npasts--;
	}
	c->pasts[c->npasts++] = (struct past){sent, answered};
}

/* When the newest request was sent of which the leader surely knew when one sent then reached it: 2 and 3. */
static instant
known_to_leader(const struct credit *c, instant sent)
{
	if (c->alone)
		return sent;
	for (size_t i = c->npasts; i > 0; i--)
		if (c->pasts[i - 1].answered <= sent - CARRY(c->timeout))
			return c->pasts[i - 1].sent;
	return c->began; /* a session is begun by the leader itself */
}

int64_t
credit_lease(const struct credit *c, instant sent)
{
	int64_t left = c->timeout - (sent - known_to_leader(c, sent));

	return instant_first(left, credit_steady(c));
}

/* One request more than CARRY old is always known: with one pace between two of them, and one to spare. */
int64_t
credit_steady(const struct credit *c)
{
	return c->alone ? c->timeout : c->timeout - CARRY(c->timeout) - 2 * PACE(c->timeout);
}

int64_t
credit_pace(const struct credit *c)
{
	return PACE(c->timeout);
}

int64_t
credit_life(const struct credit *c)
{
	return c->alone ? c->timeout / 4 : 2 * PACE(c->timeout);
}
