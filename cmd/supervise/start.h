/*
 * start.h - what `dlock run` and `dlock hold` have in common: how front and keeper come
 * to be, and how it all ends.
 */
#ifndef DLOCK_START_H
#define DLOCK_START_H

#include "run.h"
#include "verdict.h"

/*
 * Notes what a shell or a supervisor has set up, to be given back to the command; from
 * here on all signals are blocked.
 */
void start_origin(struct origin *);

/*
 * Forks the keeper and is the front; returns how it ended.  The caller has filled in
 * plan (which is `p`), origin, and path or body.
 */
struct verdict start(struct run *, struct plan *p);

/*
 * As the command did: loops in shells stop on Ctrl-C only when they see the signal.
 * Returns the status to exit with if that does not end us.
 */
int start_die_of(int sig);

/* Says what there is to say and ends the process. */
_Noreturn void start_end(const struct plan *, const struct verdict *);

#endif
