/*
 * tell.h - what is told of a lock: the entries of one look, put together from names and from
 * what stands in nodes.
 *
 *  1. Whatever has no dlock's name is foreign; what its node says of it is told if it is an
 *     address, or printable.
 *  2. A node that may not be read is told as far as its name goes.
 *  3. Since when somebody holds a lock, only a dlock says (data.h).
 *  4. A server tells its time with what it writes, and nothing is written here.  So "now" is this
 *     host's time, and not before the newest that was read there: for people.
 *
 * Texts are as others have written them, but for our password (session_secret()).
 */
#ifndef DLOCK_ZK_TELL_H
#define DLOCK_ZK_TELL_H

#include "freeze.h"
#include "jobs.h"
#include "reader.h"

/* One look, on its way from lock to lock.  The first three are set by its owner. */
struct looking {
	struct session *session;
	const struct layout *layout;
	const struct look *look;
	int64_t newest; /* ns since 1970, as read there */
	bool enough; /* `see` wants no more: what is told from here on is not handed on */
	struct subject {
		const char *key;
		unsigned position; /* of the last waiter that was told */
	} lock;
};

/* What follows is of that lock; the key must live as long. */
void tell_begin(struct looking *, const char *key);

/* Of a node that was read, to be told or not. */
void tell_note_time(struct looking *, const struct Stat *);

/* Now, there; ns since 1970. */
int64_t tell_now(const struct looking *);

/*
 * A child of the lock's directory, whose place that name is.  NULL: it may not be read.
 */
void tell_place(
    struct looking *, enum entry_kind, const char *name, const struct call *node);

/* The same of a user of Curator's semaphore, in K/leases or K/locks. */
void tell_seat(
    struct looking *, enum entry_kind, const char *name, const struct call *node);

/* All nodes of a reader, which is ended, by one of these, until there is `enough`. */
enum rc tell_all(struct looking *, struct reader *, enum entry_kind,
    void (*how)(
	struct looking *, enum entry_kind, const char *name, const struct call *node),
    struct fault *);

/* The node that is the lock. */
void tell_single(struct looking *, const struct call *node);

/* So many wait; 0: nothing is told. */
void tell_waiting(struct looking *, uint64_t count);

/* If it is on. */
void tell_freeze(struct looking *, const struct freeze *);

void tell_last(struct looking *, const struct past_run *);

/* There is something that is no lock: what, in one clause. */
void tell_unknown(struct looking *, const char *what);

#endif
