/*
 * unit_look.h - who uses the lock as a semaphore of Curator's (unit.h): what stands in K/leases
 * and K/locks.
 *
 *  1. dlock's own users stand in K, too, and are told from there; which of them holds a unit
 *     says its lease.
 *  2. A lease of a user of Curator's may belong to one who is about to be granted it.
 */
#ifndef DLOCK_ZK_UNIT_LOOK_H
#define DLOCK_ZK_UNIT_LOOK_H

#include "tell.h"

/* Zero: there is no semaphore. */
struct unit_look {
	const char *lock; /* path of K */
	struct call *leases, *locks;
	struct names seats;            /* all leases, by their names */
	struct names holders, waiters; /* who is no dlock's, in order */
};

/* Lists them; `lock` must outlive it.  To be ended in any case. */
enum rc unit_look_list(
    struct unit_look *, struct looking *, const char *lock, struct fault *);

/* Has whoever has that name in K a lease? */
bool unit_look_has_seat(const struct unit_look *, const char *name);

enum rc unit_look_tell_holders(struct unit_look *, struct looking *, struct fault *);
enum rc unit_look_tell_waiters(struct unit_look *, struct looking *, struct fault *);

void unit_look_end(struct unit_look *);

#endif
