/*
 * incoming.h - what may come to the keeper while it waits.
 *
 * The keeper waits in one place only.  There it hears its children, the front, the process for
 * which a hold is, and inner runs, and does at once what is to be done (react.h).
 */
#ifndef DLOCK_INCOMING_H
#define DLOCK_INCOMING_H

#include "keeper_state.h"

/*
 * Sleeps once, until `fd` is ready, something has happened, step() wants its turn, or `until`;
 * deals with what came.  True: `fd` is ready, and left to the caller.
 */
bool incoming_wait(struct keeper *, int fd, short events, instant until);

#endif
