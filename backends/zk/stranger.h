/*
 * stranger.h - children of a lock's directory that no layout knows.
 *
 *  1. Somebody's lock may have made them, whose users do not see ours: ZooKeeper's own recipes
 *     (x-<session>-<n>), zk-ruby's, Hive's.  So we do not go by them, whatever they are called.
 *  2. But for those that are directories themselves, of locks with longer paths: `deploy/web`
 *     in `deploy`.  No lock is a node that has children.  What is in such a directory must be
 *     of a layout that we know; an empty one must have had children, or get one right now,
 *     for whoever makes one makes a child in it at once.
 */
#ifndef DLOCK_ZK_STRANGER_H
#define DLOCK_ZK_STRANGER_H

#include "wait.h"

/*
 * *ret: one of the names that queue_look() has found strange and that is no such
 * directory; NULL: there is none.
 */
enum rc stranger_find(const struct turn *, const struct queue *, const char **ret,
    instant until, struct fault *);

#endif
