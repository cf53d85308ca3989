/*
 * before.h - looks at what has to be so before a run begins, beside its lock.
 *
 *	--unless-frozen   none of its switches is frozen: keys of the same server, of which one
 *	                  serves many locks
 *	--newest          no run with that option has come later, of those that wait for the key or
 *	                  have begun
 *
 *	before_acquire()  looks at the switches before the lock is asked for: a run that finds one
 *	                  frozen stands in no queue, but looks again.  And at the time of the server,
 *	                  which is in the record of a run with --newest.  While such a run waits for
 *	                  the lock, it looks at the queue
 *	before_go()       looks once more when the lock was granted.  The look at the switches is the
 *	                  last thing before "go", which is refused when it is older than LOOK_LASTS
 *
 * So no command begins later than LOOK_LASTS after a freeze of a switch was confirmed.  A run that
 * finds one frozen then gives the lock back and asks anew, with a keeper of its own (start.c), as
 * after Ctrl-Z.  A run whose outer run lives does not look at switches: what has begun goes on.
 *
 * Of runs with --newest the server's time of a look made before the run joined says which came later,
 * then the door of its record.  The door begins alike for all keepers of a run: no run is superseded
 * by an entry that its own former keeper could not take back.  All that see two runs see the same two
 * times, so two never supersede each other.  Where nobody used the key, the look tells no time: then a run that waits
 * came when it joined, and one that has the lock supersedes nobody.  Runs that wait for a thaw
 * notice it at different moments: each lets SETTLE go by before it begins, so that it sees the others.
 *
 * It runs in the keeper, within its call to acquire: so step() knows nothing of it.  It looks
 * through a store of its own, for one that serves a claim is asked nothing else, and waits through
 * the keeper's host->wait, where signals are heard.  Keys that are held already are renewed
 * within that wait, as multi.h has it.
 */
#ifndef DLOCK_BEFORE_H
#define DLOCK_BEFORE_H

#include "lock.h"

#define LOOK_LASTS (2 * NS_PER_S)

/* Of the other runs with --newest, the one that came last. */
struct rival {
	int64_t at; /* us by the server's clock; 0: there is none */
	char door[JOIN_ID_CHARS + 1];
	char record[RECORD_BYTES];
};

struct before {
	struct host host; /* first: the store's way back to us */
	const struct run *run;
	struct lock *lock;
	struct host *keeper; /* the keeper's, through which the lock's store waits */
	/* what keeper->wait was: acquire_as_newest() puts its own there for a while */
	enum woke (*wait)(struct host *, int fd, short events, instant until);
	struct store *store; /* NULL: none is open */
	int64_t patience;    /* for an answer: connect-timeout, or its default */
	uint64_t jitter;
	/* the lock is ours, and is to be renewed then; NEVER: it is not */
	instant renew_at;
	bool gone; /* it was ours, and no longer is, or is wanted back */

	/* --newest: */
	int64_t came;       /* us by the server's clock; 0: not known */
	instant asked;      /* by our clock */
	int64_t pause;      /* before the next look at the queue */
	instant look_at;    /* the next look at the queue; NEVER: none */
	instant settled_at; /* not to begin earlier, for others come as we do; 0: now */
	bool superseded;    /* by the rival */
	struct rival rival;
	char record[RECORD_BYTES]; /* ours */
};

/* Does it look at switches? */
static inline bool
before_switches(const struct run *r)
{
	return r->params->before.nswitches > 0 && !*r->outer;
}

/*
 * Does it look at anything?  Most runs do not, and touch nothing of it; nor does a run that has
 * joined.
 */
static inline bool
before_looks(const struct run *r, const struct lock *l)
{
	return (before_switches(r) || r->params->before.newest) && !l->nested;
}

/*
 * As lock_acquire(), of a lock that is open and was asked for nothing.  RC_BUSY, too: a switch was
 * frozen until `until`; host->seen says which, and by whom.  RC_CONFIG: the store cannot tell.
 * RC_STOP, too: superseded.
 */
enum rc before_acquire(struct before *, const struct run *, struct lock *, struct host *,
    instant until, struct fault *);

/*
 * With a lock that was just granted, or for which a run that is superseded has waited.  RC_OK: the
 * command may begin, until page->begin_by.  RC_BUSY: not now: what was granted is to be given back,
 * and asked for anew unless superseded.  RC_STOP: as host->wait says.  Else: it can never be known.
 */
enum rc before_go(struct before *, struct fault *);

#endif
