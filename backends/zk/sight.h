/*
 * sight.h - one lock, as a look sees it: its directory listed, and everybody in it told.
 *
 *  1. Who holds is what queue.h says of the names, but for those who have not taken
 *     their turn (data.h), or must not (freeze.h).  Of Curator's users that is not known:
 *     while a lock is frozen, the first of them who came before that is told as its
 *     holder.  A holder of a unit is who has a lease (unit_look.h).
 *  2. It is asked for in three steps, so that several locks take no more round trips than one:
 *     the list, those who may hold it, and whatever else is told.
 *  3. What is no lock is told as that.  Nobody has asked for it by its key: then it is no
 *     failure either that it may not be read.
 */
#ifndef DLOCK_ZK_SIGHT_H
#define DLOCK_ZK_SIGHT_H

#include "queue.h"
#include "unit_look.h"

struct sight {
	const char *key;
	char path[DIR_BYTES];
	struct call *list;  /* of the directory; the node, where that is the lock */
	const char *what;   /* it is no lock, but that; NULL */
	struct names names; /* those with a place, in order */
	struct place place; /* what they say together */
	struct reader holders;
	struct freeze freeze;
	struct unit_look units;
	struct names rest; /* who does not hold it */
	/* nodes that no lock has made */
	struct odd {
		const char *first;
		size_t n;
	} odd;
};

/* Asks for the lock at that path; the key must live as long. */
void sight_begin(struct sight *, struct looking *, const char *key, const char *path);

/* It has been listed: asks for those who may hold it. */
enum rc sight_list(struct sight *, struct looking *, struct fault *);

/* Tells all. */
enum rc sight_tell(struct sight *, struct looking *, struct fault *);

/* Whatever has become of it; also one that is zero. */
void sight_end(struct sight *);

#endif
