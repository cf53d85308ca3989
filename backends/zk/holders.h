/*
 * holders.h - those who hold the lock, as a waiter near the head of the queue looks at them.
 *
 *  1. It shows the first of them to its user: by its node, or who has frozen the lock.
 *  2. A waiter says in its node that it is one (data.h).  One whose turn has come, and whose
 *     node stays a waiter's for IDLE_PATIENCE, has died.  Whoever is near the head deletes that
 *     node, which would block all until its session ends.
 */
#ifndef DLOCK_ZK_HOLDERS_H
#define DLOCK_ZK_HOLDERS_H

#include "turn.h"

/* Nobody has left a turn unused, as far as we have seen. */
void idlers_forget(struct idlers *);

/* Reads the node of the first, shows it, and deletes it if its owner has died. */
enum rc holders_look_at_first(struct turn *, struct fault *);

/* The same of all, a few at a time; one that is idle is looked at again. */
enum rc holders_look_at(struct turn *, struct fault *);

/* Shows one who is at that position before permits are taken, while so many are held. */
void holders_show_permits(struct turn *, size_t position, size_t held);

/* Shows who has frozen it. */
void holders_show_freeze(struct turn *);

#endif
