/*
 * wait.h - the queue for a lock: whose turn it is, and what a waiter does until it is
 * ours.
 *
 *  1. A waiter watches the last node ahead of it that it cannot hold the lock together
 *     with, so a release wakes one, or all readers behind a writer.  It
 *     then writes its own node, which earns the lease and says that it takes its turn, and
 *     in the same breath lists anew, for the node may have been a waiter's that gave up, or
 *     the lock be frozen by now (freeze.h).  Of those who want one of N
 *     permits, the next one in line watches the list, for any holder may be the first
 *     to go; each one behind it waits for the one before to be granted.
 *  2. What it does besides costs the same however long the queue is: a few
 *     times a session it asks for the directory's counts, which tell how many have
 *     left, and whereby the leader hears of it.  It lists only when it may have come
 *     near the head, and else after a second for each place: all names are sent with
 *     a list, so whoever joins has one for all who stand there.
 *  3. What is watched stays watched through all connections of a session (the library
 *     sees to that).  So a waiter that had lost its connection asks for the counts at
 *     once, and goes on: a thousand that come back at once, each with a list of all,
 *     would keep the server busy for longer than their sessions last.
 *  4. Those near the head look at those who hold it (holders.h).
 *  5. While the lock is frozen (freeze.h), those next in line watch that node, and nobody's turn
 *     comes.  Its end wakes them; that it has ended, those near the head see for themselves.
 */
#ifndef DLOCK_ZK_WAIT_H
#define DLOCK_ZK_WAIT_H

#include "turn.h"

/*
 * Sleeps until `beat`, if nothing that is watched happens.  RC_BUSY: `until` has come.
 * RC_LOST: our node is gone.  RC_AGAIN: the connection is.
 */
enum rc turn_doze(struct turn *, instant beat, instant until, struct fault *);

/* When to look next while we are that near. */
instant turn_beat(struct turn *);

/*
 * Is it frozen, by the names of children of the lock, or of that part of it (FREEZE_PART)?
 * Then whoever has a place from which it would hold waits.  Removes what has ended.
 */
enum rc turn_heed_freeze(struct turn *, struct place *, const char *part,
    const char *const *names, size_t n, struct fault *);

/* From here on we are no waiter whom those behind may take for dead. */
enum rc turn_serve(struct turn *, struct fault *);

/* Our turn has come: earns a lease that lasts by writing our node, if *g is none yet. */
enum rc turn_earn(struct turn *, struct grant *g, struct fault *);

/*
 * We are in the queue, which `list` shows (it is ours from now on; while we are watching,
 * it may be NULL): waits for our turn until `until`, and takes it, which may earn a lease
 * (not for a permit: permit.h); to be followed by turn_earn().  `until` 0: RC_BUSY at once,
 * where others are ahead.  RC_LOST: our place is.  RC_AGAIN: to be called again when there
 * is a connection.
 */
enum rc turn_await(
    struct turn *, struct call *list, instant until, struct grant *g, struct fault *);

/* Our place is gone, or not needed any more. */
void turn_forget(struct turn *);

#endif
