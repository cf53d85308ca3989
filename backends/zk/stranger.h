/*
 * stranger.h - who else uses a lock's directory, and in a way that we cannot share.
 *
 *  1. Users of another layout or recipe do not see our nodes, and a limited lock counts no others.
 *     queue.h knows them by the names of their nodes.
 *  2. A child that no layout knows may be of a lock whose users do not see ours: ZooKeeper's own
 *     recipes (x-<session>-<n>), zk-ruby's, Hive's.  So we refuse it, whatever it is called.
 *  3. Directories of locks with longer paths are no such children: `deploy/web` in `deploy`.  No
 *     lock is a node that has children.  What is in such a directory must be of a layout that we
 *     know; an empty one must have had children, or get one right now, for whoever makes one
 *     makes a child in it at once.
 *  4. Users of Curator's semaphore stand in K/locks and K/leases alone.  kazoo's Semaphore keeps
 *     its size in the data of K; its users take our node for one permit of theirs, and go on
 *     taking the others.
 */
#ifndef DLOCK_ZK_STRANGER_H
#define DLOCK_ZK_STRANGER_H

#include "node.h"
#include "queue.h"

/*
 * The place of our node is what `list` says of it.  RC_PROTOCOL or RC_CONFIG: we cannot share the
 * directory.
 */
enum rc stranger_refuse(const struct node *, struct host *, const struct claim *,
    const struct place *, const struct call *list, instant until, struct fault *);

#endif
