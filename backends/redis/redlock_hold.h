/*
 * redlock_hold.h - the votes of one owner: asking for them, renewing them, giving them back.
 *
 * A quorum of votes is a hold; what a single master says of it is neither a loss nor a
 * success.  redlock.c tells the whole story.
 */
#ifndef DLOCK_REDIS_REDLOCK_HOLD_H
#define DLOCK_REDIS_REDLOCK_HOLD_H

#include "quorum.h"

struct redlock_hold {
	struct quorum *quorum;
	const struct claim *claim;
	struct order order; /* what is common to all that is asked for the owner */
	unsigned owners;    /* have been used: each attempt has one of its own */
	bool asked;         /* a vote may be ours */
	bool is;            /* a quorum of votes is */
	bool told;          /* host->notice: of masters that cannot be used */
	instant ends;       /* of the lease, if so */
};

/* The quorum is named (quorum_name()); owners that were used before are not used again. */
void redlock_hold_begin(struct redlock_hold *, struct quorum *, const struct claim *);

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
 * Asks for the lock as a fresh owner, until `most` at the latest.  It ends with a hold, or with
 * nothing that would ever be used: what it may have won is given back.  RC_OK: it is ours.
 * RC_BUSY: *refusal, and host->seen.  RC_CONFIG: two masters are one.  Else what
 * quorum_refused() says, or RC_STOP.
 */
enum rc redlock_attempt(struct redlock_hold *, instant most, struct grant *,
    struct refusal *, struct fault *);

/* As lock_ops has them. */
enum rc redlock_hold_renew(
    struct redlock_hold *, instant until, struct grant *, struct fault *);
enum rc redlock_hold_release(struct redlock_hold *, instant until, struct fault *);

#endif
