/*
 * loss.h - tells a script that its hold is not renewed, and before it is stopped, that it is
 * lost.
 *
 * By then nobody of dlock has a descriptor of the script's, for that would keep its pipes
 * open.  What the process has as its stderr at that moment is written to, if it is what
 * hold had when it was started, or a terminal.
 */
#ifndef DLOCK_LOSS_H
#define DLOCK_LOSS_H

#include "run.h"

/* In hold, before it forks: what its stderr is. */
void loss_note_stderr(struct body *);

/*
 * Says it once, whoever of front and keeper comes first; nothing where nobody is stopped.
 * Never blocks.  `words` are the backend's.
 */
void loss_tell(const struct run *, const struct ending *, const char *words);

/* A line with this text to the same place.  Never blocks. */
void loss_warn(const struct run *, const char *text);

#endif
