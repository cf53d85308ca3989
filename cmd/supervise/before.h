/*
 * before.h - looks at what has to be so before a run begins, beside its lock.
 *
 *	--unless-frozen   none of its switches is frozen: keys of the same server, of which one
 *	                  serves many locks
 *
 *	before_ask()      the switches are looked at before the lock is asked for; a run that
 *	                  finds one frozen stands in no queue, but looks again
 *	before_go()       and once more when the lock was granted: the last thing before "go",
 *	                  which is refused when the look is older than LOOK_LASTS
 *
 * So no command begins later than LOOK_LASTS after a freeze of a switch was confirmed.  A run that
 * finds one frozen then gives the lock back and asks anew, with a keeper of its own (start.c), as
 * after Ctrl-Z.  A run whose outer run lives does not look: what has begun goes on.
 *
 * It runs in the keeper, within its call to acquire: so step() knows nothing of it.  It looks
 * through a store of its own, for one that serves a claim is asked nothing else, and waits through
 * the keeper's host->wait, where signals are heard.  What is held meanwhile is renewed within
 * that wait, as multi.h has it.
 */
#ifndef DLOCK_BEFORE_H
#define DLOCK_BEFORE_H

#include "lock.h"

#define LOOK_LASTS (2 * NS_PER_S)

struct before {
	struct host host; /* first: the store's way back to us */
	const struct run *run;
	struct lock *lock;
	struct host *keeper; /* through which the lock's store waits */
	struct store *store; /* NULL: none is open */
	int64_t patience;    /* for an answer: connect-timeout, or its default */
	uint64_t jitter;
	/* the lock is ours, and is to be renewed then; NEVER: it is not */
	instant renew_at;
	bool gone; /* it was ours, and no longer is, or is wanted back */
};

/* Does it look at anything?  Most runs do not, and touch nothing of it. */
static inline bool
before_looks(const struct run *r)
{
	return r->params->before.nswitches > 0 && !*r->outer;
}

/*
 * With a lock that is open and was asked for nothing: returns when it may be asked for.  RC_BUSY:
 * a switch was frozen until `until`; host->seen says which, and by whom.  RC_CONFIG: the store has
 * no switches.  Else as of acquire.
 */
enum rc before_ask(struct before *, const struct run *, struct lock *, struct host *,
    instant until, struct fault *);

/*
 * With a lock that was just granted.  RC_OK: the command may begin, until page->begin_by.  RC_BUSY:
 * not now: it is to be given back, and asked for anew.  RC_STOP: as host->wait says.  Else: it can
 * never be known.
 */
enum rc before_go(struct before *, struct fault *);

#endif
