/*
 * redlock_hold.h - the votes of one owner: what they are, and renewing and giving them back.
 *
 * A quorum of votes is a hold; what a single master says of it is neither a loss nor a
 * success.  redlock_attempt.h wins it; redlock.c tells the whole story.
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

/* Nothing has been asked for whom we are from now on. */
void redlock_hold_next_owner(struct redlock_hold *);

/* quorum_ask() for this owner; until redlock_hold_round_ends() is time enough for it. */
void redlock_hold_ask(struct redlock_hold *, enum order_kind, bool flag, instant until,
    bool (*whom)(const struct quorum *, const struct master *));

instant redlock_hold_round_ends(const struct redlock_hold *);

/* A quorum gave, or renewed, its votes for what was asked at `sent`. */
void redlock_hold_counts_from(struct redlock_hold *, instant sent);

/* Gives back what the last round may have won, which is no quorum.  RC_OK or RC_STOP. */
enum rc redlock_hold_withdraw(struct redlock_hold *);

/* As lock_ops has them. */
enum rc redlock_hold_renew(
    struct redlock_hold *, instant until, struct grant *, struct fault *);
enum rc redlock_hold_release(struct redlock_hold *, instant until, struct fault *);

#endif
