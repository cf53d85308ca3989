/*
 * survey.h - who holds and who waits, as admin_ops.each tells it.
 *
 *  1. One directory's names at a time: the server has no way to give a part of them.  For all
 *     locks, some directories are listed at once and the nodes of their holders read, so that it
 *     takes two round trips for each such batch.  Reads alone, and no watches.
 *  2. Who holds is what queue.h says of the names, but for those who have not taken
 *     their turn (data.h), or must not (freeze.h).  Of Curator's users that is not known:
 *     while a lock is frozen, the first of them who came before that is told as its
 *     holder.  A holder of a unit is who has a lease (unit.h); of these Curator's may belong
 *     to one who is about to be granted it.
 *  3. A server tells its time with what it writes, and nothing is written here.  So "now" is this
 *     host's time, and not before the newest that was read there: for people.
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
