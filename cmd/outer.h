/*
 * outer.h - what is known of the dlock around this one before it is asked.
 *
 * It is in DLOCK_KEEPER: the keepers around us, the nearest first, and the backend of
 * each, with where its locks are (supervise/nested_site.h): that counts for its own backend
 * alone.
 */
#ifndef DLOCK_OUTER_H
#define DLOCK_OUTER_H

#include "backends/backend.h"

/* The name of its backend, for as long as the next call; NULL: there is none, or it does not say. */
const char *outer_backend(void);

/*
 * RC_OK, or RC_USAGE: another version of dlock has written DLOCK_KEEPER, so that what it
 * holds cannot be known.
 */
enum rc outer_check(struct fault *);

#endif
