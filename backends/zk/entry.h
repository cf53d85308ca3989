/*
 * entry.h - the entries of one look, put together from names and from what stands in nodes.
 *
 *  1. A node without a dlock's name is foreign; what it says of its owner is told if it is an
 *     address, or printable.
 *  2. A node that may not be read is told as far as its name goes.
 *  3. Since when somebody holds a lock, only a dlock says (data.h).
 *  4. A server tells its time with what it writes, and nothing is written here.  So "now" is this
 *     host's time, and not before the newest that was read there: for people.
 *
 * Texts are as others have written them, but for our password (session_secret()).
 */
#ifndef DLOCK_ZK_ENTRY_H
#define DLOCK_ZK_ENTRY_H

#include "contents.h"
#include "jobs.h"

/* One look, on its way from lock to lock.  The first three are set by its owner. */
struct looking {
	struct session *session;
	const struct layout *layout;
	const struct look *look;
	int64_t newest; /* ns since 1970, as read there */
	bool enough; /* `see` wants no more: what is told from here on is not handed on */
	const char *key;   /* of the lock that is told of, */
	unsigned position; /* and of its last waiter that was */
};

/* What follows is of that lock; the key must live as long. */
void entry_begin(struct looking *, const char *key);

/* Now, there; ns since 1970. */
int64_t entry_now(const struct looking *);

/* A member that holds the lock, or waits for it. */
void entry_member(struct looking *, enum entry_kind, const struct member *);

/* The node that is the lock. */
void entry_single(struct looking *, const struct call *node);

/* So many wait; 0: nothing is told. */
void entry_waiting(struct looking *, uint64_t count);

/* If it is on. */
void entry_freeze(struct looking *, const struct freeze *);

/* What `last` says of the last run (jobs.h), if it says that. */
void entry_last(struct looking *, const struct call *last);

/* There is something that is no lock: what, in one clause. */
void entry_unknown(struct looking *, const char *what);

#endif
