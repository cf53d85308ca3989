/*
 * loss.h - tells the user, or the script that has a hold, that the lock is not renewed, or
 * lost.
 *
 * When a hold is in the background nobody of dlock has a descriptor of the script's, for
 * that would keep its pipes open.  What the process has as its stderr at that moment is
 * written to, if it is what hold had when it was started, or a terminal.
 */
#ifndef DLOCK_LOSS_H
#define DLOCK_LOSS_H

#include "run.h"

/* In hold, before it forks: what its stderr is. */
void loss_note_stderr(struct body *);

/* Renewals that are not answered: the user hears of it while something can be done. */
struct doubt {
	instant warn_at; /* when half is over of what is left for it; NEVER */
	bool warned;     /* in this outage */
	char why[800];   /* clean */
};

/* In the front: MSG_SUSPECT has come; doubt->warn_at has; MSG_TRUSTED has. */
void loss_suspect(const struct run *, struct doubt *, const struct msg *);
void loss_warn(const struct run *, struct doubt *);
void loss_trust(const struct run *, struct doubt *);

/*
 * Tells a script once, before it is stopped, whether front or keeper comes first; nothing
 * where no process is stopped.  Never blocks.  `words` are the backend's.
 */
void loss_tell(const struct run *, const struct ending *, const char *words);

#endif
