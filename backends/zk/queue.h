/*
 * queue.h - who stands where in a lock directory.
 *
 * The children of the directory are the queue.  A name says what its owner wants, and how
 * the lock's layout has it (layout.h); in Curator's it is
 *
 *	_c_<uuid>-lock-<number>		exclusive (Curator's InterProcessMutex)
 *	_c_<uuid>-__WRIT__<number>	the same (a writer of its InterProcessReadWriteLock)
 *	_c_<uuid>-__READ__<number>	shared (a reader of that)
 *	_c_<uuid>-<N>-unit-<number>	one of N permits (dlock's own; no recipe of Curator's sees it)
 *
 *  1. One order for all kinds: by what follows the last such tag in the name, as
 *     strings.  For each recipe of Curator's that is its own
 *     order (LockInternals.getSortedChildren, StandardLockInternalsDriver), so that we
 *     exclude its users and they us.  In other layouts it is by the number.  A node without
 *     a place is a stranger's (stranger.c).
 *  2. A node waits for all before it that conflict with it, and a permit while N permits are
 *     before it.  So those who hold are always the first ones, all of one kind: one
 *     exclusive, or the readers up to the first node that is none, or the first N permits.
 *     All see that in the same list of names, whoever reads it and when: nobody is passed over.
 *  3. A recipe sees nodes with its own tag only: a node of one that would not see ours is
 *     foreign.  kazoo's Lock is no such: dlock waits for readers, whether a run is plain or with -x.
 *  4. "locks", "leases" and "slots" are a semaphore's (permit.c), and nobody's place.
 *  5. A freeze (freeze.h) is nobody's place either; whoever it stops waits for its end.
 *
 * Pure: names in, places out.
 */
#ifndef DLOCK_ZK_QUEUE_H
#define DLOCK_ZK_QUEUE_H

#include "layout.h"

/* What can bring a waiter nearer. */
enum awaits {
	AWAITS_END, /* the end of the node `ahead` */
	/* the same, or that it is granted, which its owner writes into it */
	AWAITS_CHANGE,
	AWAITS_LIST,   /* the end of any of the holders */
	AWAITS_PERMIT, /* the end of `ahead`, or that it has its permit */
};

/* Those who hold the lock: the first n. */
struct holders {
	size_t n;
	const char *first;   /* of them; NULL without children */
	enum lock_kind kind; /* what they hold it as, */
	unsigned limit;      /* and if that is KIND_LIMIT */
};

struct place {
	bool found;      /* we are among the children */
	size_t n;        /* so many of these have a place */
	size_t position; /* 0: we hold the lock, 1: next in line */
	size_t before;   /* so many stand before us */
	struct holders holders;
	const char *ahead;  /* NULL if there is none, or with AWAITS_LIST */
	enum awaits awaits; /* while we wait */
	bool semaphore;     /* "locks" or "leases" are there */
	const char *freeze; /* one of those that are there; it may have ended */
	bool strange;       /* there are some of which no layout knows what they are */
	/*
	 * A child by which we cannot go.  `foreign`: made by a lock whose users do not
	 * wait for ours (of another layout, or another recipe).
	 * `other`: shared where we want a permit, the reverse, or a permit of
	 * another limit, before us. `exhausted`: its number is the last one there is,
	 * which all after it get as well, or (before 3.8) negative: after 2^31 of them
	 * numbers order nothing any more.
	 */
	const char *foreign, *other, *exhausted;
};

/* The children of a directory. */
struct queue {
	const struct layout *layout;
	const char **names;
	size_t n;
};

/*
 * Where `own` (a name, complete; "": nobody) stands among them.  What *ret points to is in
 * their names, which it puts into order: those that have a place come first.  False: there is
 * no memory.
 */
bool queue_look(struct place *ret, const struct queue *, const char *own);

/* Is that the name of a child that no layout knows?  stranger.c */
bool queue_is_strange(const struct layout *, const char *name);

/* Whoever would hold the lock waits for that node: for its end, if it is a freeze's. */
void queue_hold_back(struct place *, const char *ahead, enum awaits);

/*
 * The holder that follows `name` ("": the first one), where queue_look() has put them into
 * order; NULL: it was the last of *h.
 */
const char *queue_next_holder(
    const struct holders *h, const struct queue *, const char *name);

#endif
