/*
 * join_release.h - `dlock release`: asks the keeper of a hold for its end.
 */
#ifndef DLOCK_JOIN_RELEASE_H
#define DLOCK_JOIN_RELEASE_H

#include "join.h"

/*
 * Asks the keeper for the release of its hold, and waits for how that ends.  RC_USAGE:
 * this is no handle.  RC_LOST: nobody of our user is there (any more).  RC_DENIED: it
 * cannot be reached from here.  RC_AGAIN: the keeper was asked, and has ended without a
 * word.  RC_SYSTEM: it was not asked, or shows no sign of life.  *f says it.
 */
enum rc join_release(const char *handle, struct join_outcome *, struct fault *f);

#endif
