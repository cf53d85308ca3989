/*
 * loss.h - tells in words that a lock is not renewed, or lost: the user of a run, or the script
 * that has a hold (script.c).
 */
#ifndef DLOCK_LOSS_H
#define DLOCK_LOSS_H

#include "run.h"

/* Renewals that are not answered: the user hears of it while something can be done. */
struct threat {
	instant warn_at; /* when half is over of what is left for it; NEVER */
	bool warned;     /* in this outage */
	struct clean why;
};

/* In the front: MSG_SUSPECT has come; threat->warn_at has; MSG_TRUSTED has. */
void loss_suspect(const struct run *, struct threat *, const struct msg *);
void loss_warn(const struct run *, struct threat *);
void loss_trust(const struct run *, struct threat *);

/*
 * Tells a script before it is stopped, and once: front or keeper.  Never blocks.  `words` are
 * the backend's.
 */
void loss_tell(const struct run *, const struct ending *, const char *words);

#endif
