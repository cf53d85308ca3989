/*
 * redlock_attempt.h - one attempt to get the votes of a quorum for an owner.
 *
 * It ends with a hold, or with nothing that would ever be used: what it may have won is
 * given back (redlock.c tells the whole story).
 */
#ifndef DLOCK_REDIS_REDLOCK_ATTEMPT_H
#define DLOCK_REDIS_REDLOCK_ATTEMPT_H

#include "redlock_hold.h"

/* Why it was not granted. */
enum because {
	BECAUSE_HELD,  /* a quorum has given its votes to one other */
	BECAUSE_SPLIT, /* the votes are divided */
	BECAUSE_YOUNG, /* too many votes do not count yet */
};

/* What was heard of those who have it. */
struct refusal {
	enum because because;
	int64_t left; /* until the first vote of a holder ends, ns; < 0: not known */
	bool listens; /* the master that tells of releases has answered */
};

/*
 * Asks for the lock as a fresh owner, until `most` at the latest.  RC_OK: it is ours.
 * RC_BUSY: *refusal, and host->seen.  RC_CONFIG: two masters are one.  Else what
 * quorum_refused() says, or RC_STOP.
 */
enum rc redlock_attempt(struct redlock_hold *, instant most, struct grant *,
    struct refusal *, struct fault *);

#endif
