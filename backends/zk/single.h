/*
 * single.h - a lock that is one node: whoever makes it has it (layout=plain).
 *
 *  1. It is ephemeral, and lies at the lock's path.  That it is there already means that somebody
 *     else has the lock, or we, where the answer to our create was lost: then it is our session's.
 *  2. There is no queue.  Who waits watches the node; its end wakes all, and the first to
 *     make it anew has it.
 *     What we write to and delete is the node that we have read just before, by its version, since
 *     ZooKeeper knows no such condition on its czxid.  So if somebody deletes ours in that one
 *     round trip, and another makes a node which is then as often written, it is taken for
 *     ours: that other node is written, which is told as a loss, or deleted.  Ours is never
 *     as young as that but in its first half second.
 *  3. A node that has children, or had some, is the directory of a lock of another layout:
 *     refused.
 *  4. One that does not end with a session is a lock that somebody has made to stay: it is waited
 *     for and never touched.
 */
#ifndef DLOCK_ZK_SINGLE_H
#define DLOCK_ZK_SINGLE_H

#include "wait.h"

/* Waits for it until `until` (0: not at all), and earns a lease.  As turn_await. */
enum rc single_take(struct turn *, instant until, struct grant *, struct fault *);

#endif
