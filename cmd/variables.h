/*
 * variables.h - the environment: what users say of options in it, and what an outer run has left.
 *
 * An empty variable is as good as none, so that `DLOCK_WAIT= dlock run` resets it.
 */
#ifndef DLOCK_VARIABLES_H
#define DLOCK_VARIABLES_H

#include "said.h"

/*
 * Puts what variables say into the list, and finds out about the outer run.  It costs no memory of
 * the heap but for DLOCK_OPTION.
 */
void variables_read(struct said_list *);

/* "DLOCK_REDIS_URL" */
struct brief variables_url(const struct backend *);

/*
 * Variables that look like dlock's but mean nothing to it, most likely for a typing error:
 * their names and what was meant, fit to be shown, as far as there is room.  False: there
 * are none.
 */
bool variables_strays(char *out, size_t size);

#endif
