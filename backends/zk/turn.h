/*
 * turn.h - our turn, and what we know of the queue.  wait.h waits for it.
 */
#ifndef DLOCK_ZK_TURN_H
#define DLOCK_ZK_TURN_H

#include "backends/common/retry.h"
#include "freeze.h"
#include "node.h"
#include "queue.h"

/* for an answer while in the queue, or a third of the lease */
#define ASK_PATIENCE (3 * NS_PER_S)

/* How many had left the directory when we saw our place. */
struct census {
	uint32_t departed; /* twice as many */
	instant taken;
};

/* A node among the first, where it is a waiter's. */
struct idler {
	int64_t czxid; /* 0: it is none's */
	instant since; /* when we first saw that */
};

/* Those who are looked at while we are near the head. */
struct idlers {
	struct idler first;      /* the first node, and */
	struct idler other;      /* one of those who hold it together with that: */
	char looked[NAME_BYTES]; /* the one after this */
};

/* Our turn, and what we know of the queue.  The first four are set by its owner. */
struct turn {
	struct node *node;
	struct host *host; /* is told what is seen of the queue */
	struct retry *patience;
	const struct claim *claim;
	/* until then we must have earned a lease; NEVER: it is not our turn */
	instant over;
	bool queued;        /* we have seen our place once, or what stands in its way */
	struct call *list;  /* the queue when we last read it, */
	struct place place; /* and our place in it */
	struct freeze freeze;
	instant thaws;         /* when that ends by our clock */
	int64_t ahead_written; /* with AWAITS_CHANGE: when we last saw that */
	struct census census;
	struct idlers idlers;
};

/*
 * Until when a question of a waiter's may be unanswered: a server on which a crowd has
 * just come is slow.
 */
static inline instant
turn_answer_by(const struct turn *t)
{
	int64_t third = t->claim->ttl / 3;

	return instant_after(instant_now(), third > ASK_PATIENCE ? third : ASK_PATIENCE);
}

#endif
