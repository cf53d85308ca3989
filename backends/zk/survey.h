/*
 * survey.h - who holds and who waits, as admin_ops.each tells it.
 *
 *  1. One directory's names at a time: the server has no way to give a part of them.  For all
 *     locks, some directories are listed at once and the nodes of their holders read, so that it
 *     takes two round trips for each such batch.  Reads alone, and no watches.
 *  2. What is seen of one lock is in sight.h, and how it is told in tell.h.
 */
#ifndef DLOCK_ZK_SURVEY_H
#define DLOCK_ZK_SURVEY_H

#include "lockdir.h"

/* Everything below `chroot`. */
enum rc survey_all(struct session *, const struct layout *, const char *chroot,
    const struct look *, struct fault *);

/* look->key, which has that directory; or without one, whatever is locked there. */
enum rc survey_one(
    struct session *, const struct lockdir *, const struct look *, struct fault *);

#endif
