/*
 * look.h - who holds and who waits, as admin_ops.each tells it.
 *
 *  1. One directory's names at a time: the server has no way to give a part of them.  For all
 *     locks, some directories are listed at once and the nodes of their holders read, so that it
 *     takes two round trips for each such batch.  Reads alone, and no watches.
 *  2. What is no lock is told as that.  Where nobody has asked for it by its key, it is no
 *     failure either that it may not be read.
 *  3. A directory is read as contents.h says, and told as entry.h says.
 */
#ifndef DLOCK_ZK_LOOK_H
#define DLOCK_ZK_LOOK_H

#include "lockdir.h"

/* Everything below `chroot`. */
enum rc look_below(struct session *, const struct layout *, const char *chroot,
    const struct look *, struct fault *);

/* look->key, which has that directory; or without one, whatever is locked there. */
enum rc look_into(
    struct session *, const struct lockdir *, const struct look *, struct fault *);

#endif
