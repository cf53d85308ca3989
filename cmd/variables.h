/*
 * variables.h - reads the variables of options, and finds out about an outer run.
 *
 * An empty variable counts as none, so that `DLOCK_WAIT= dlock run` resets it.
 */
#ifndef DLOCK_VARIABLES_H
#define DLOCK_VARIABLES_H

#include "said.h"

/*
 * Puts what variables say into the list, and finds out about the outer run.  It uses the heap
 * only for DLOCK_OPTION.
 */
void variables_read(struct said_list *);

/* Names the variable for the URL of a backend: "DLOCK_REDIS_URL". */
struct brief variables_url(const struct backend *);

/*
 * Lists variables that look like dlock's and mean nothing to it, most likely because of a typing
 * error: their names and the names that may be meant, fit to be shown, as far as there is room.
 * False: there are none.
 */
bool variables_strays(char *out, size_t size);

#endif
