/*
 * join_asker.h - a run that asks the keepers around it whether they have its keys.
 */
#ifndef DLOCK_JOIN_ASKER_H
#define DLOCK_JOIN_ASKER_H

#include "join_wire.h"
#include "keeper_address.h"

/* Who asks, and what for; the same in every question. */
struct join_asker {
	struct host *host; /* it waits there */
	const struct plan *plan;
	/* the plan's, or what join_site_hear() has made of it */
	struct site *site;
	/* which locks the plan's keys are there; NULL: not known, or no matter */
	const struct identity *identity;
	/* so long the keeper is to keep the lock, whatever becomes of us; may change */
	const instant *keep_until;
};

/*
 * Connects to a keeper; *fd is then the caller's.  Else it is -1, and RC_LOST: nobody of
 * ours is there any more; RC_PROTOCOL: it has a key of ours, but cannot be asked;
 * RC_AGAIN: it is full, or frozen; RC_SYSTEM, RC_STOP.
 */
enum rc join_asker_connect(const struct join_asker *, const struct keeper_address *,
    instant until, int *fd, struct fault *);

/*
 * Asks the keeper at `fd` for the plan's keys.  RC_OK: it has some, says *answer.
 * RC_LOST: it has none; then *answer says why, if its version is JOIN_VERSION.
 * RC_AGAIN: it does not answer, or has no room (join_asker_no_room()); RC_STOP.
 */
enum rc join_asker_ask(const struct join_asker *, int fd, enum join_verb, instant until,
    struct join_answer *answer, struct fault *);

/* RC_AGAIN */
enum rc join_asker_no_room(struct fault *);

/* RC_PROTOCOL: a keeper has the key `named`, or seems to, and cannot be joined. */
enum rc join_asker_refuse(const char *named, const char *why, struct fault *);

#endif
