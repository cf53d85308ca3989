/*
 * react.h - what the keeper does about an event: asks step(), and carries out its decision.
 *
 * At once: for the event that comes next may depend on it.
 */
#ifndef DLOCK_REACT_H
#define DLOCK_REACT_H

#include "keeper_state.h"

void react(struct keeper *, enum event_kind, int value);
void react_to(struct keeper *, const struct event *);

/* Opens the socket for inner runs and `dlock release`, unless it is open. */
void react_open_socket(struct keeper *);

/* The ending so far, as it is told: `returned` says whether a hold was given back before. */
struct ending react_ending(const struct keeper *);

/* Has the front say how all has ended.  It reads that in the page. */
void react_report(struct keeper *);

/*
 * Tells all that have asked for the release of a hold how it has ended.  A second release, right
 * after the answer to the first, is to find nobody rather than a keeper that ends.
 */
void react_answer_release(struct keeper *);

#endif
