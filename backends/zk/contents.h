/*
 * contents.h - what a lock's directory contains: who holds the lock, who waits for it, and nodes of
 * no lock.  Looking (look.h) and steering (steer.h) read it with this.
 *
 *  1. Those who hold the lock are known by the names (queue.h), but for those that say in their
 *     node that they wait (data.h), and those that came after a freeze (freeze.h).  Users of
 *     Curator's do not say whether they wait: while a lock is frozen, the first of them that came
 *     before the freeze counts as its holder.
 *  2. A permit is held by whoever has a lease in K/leases (permit.h).  A dlock also has its place in
 *     K, and is read there.  Users of Curator's semaphore are read in K/leases and K/locks.  A
 *     lease of theirs may belong to one who is about to be granted it.
 *  3. A directory is read in three steps, so that several locks take no more round trips than one:
 *     the list, then the nodes that may hold it, then all else.
 *  4. A few nodes are asked for before it is their turn.  A node that has gone since its
 *     directory was listed is passed over.
 */
#ifndef DLOCK_ZK_CONTENTS_H
#define DLOCK_ZK_CONTENTS_H

#include "freeze.h"
#include "queue.h"

enum { READ_AHEAD = 8 };

/* Names of children; the text is a list's. */
struct names {
	const char **at;
	size_t n;
};

/* Those of an answered list; to be freed in any case. */
enum rc names_copy(struct names *, const struct call *list, struct fault *);
void names_sort(struct names *); /* as strings */
void names_free(struct names *);

/* Nodes of one directory, read in the order of their names. */
struct reader {
	const char *part; /* of the lock's directory: "", "/leases" or "/locks" */
	const char *const *names;
	size_t n, asked, given;
	struct call *calls[READ_AHEAD];
};

/* One node, as it was read. */
struct member {
	const char *part, *name;
	const struct call *node; /* NULL: it may not be read */
};

/* RC_OK: go on.  RC_DONE: no more are wanted.  Anything else ends the walk as well. */
struct visitor {
	enum rc (*see)(void *ctx, const struct member *, struct fault *);
	void *ctx;
};

struct contents {
	struct session *session;
	const struct layout *layout;
	instant until;
	char path[DIR_BYTES];
	struct call *list;  /* of the directory; the node, where that is the lock */
	struct names names; /* those with a place, in order; */
	struct place place; /* what they say together */
	struct freeze freeze;
	struct reader first;          /* those that may hold it */
	struct call *leases, *locks;  /* of a semaphore: */
	struct names seats;           /* all leases, by their names, */
	struct names holders, queued; /* and those of users of Curator's, in order */
	struct names rest;            /* of `names`: those that do not hold it */
	/* nodes that no lock has made */
	struct odd {
		const char *first;
		size_t n;
	} odd;
};

/* Asks for the list.  To be ended in any case. */
void contents_begin(struct contents *, struct session *, const struct layout *,
    const char *path, instant until);
void contents_end(struct contents *);

/* Waits for the list.  *there: the directory is. */
enum rc contents_await(struct contents *, bool *there, struct fault *);

/* Of a list that is there: puts the names into order. */
enum rc contents_order(struct contents *, struct fault *);

/* Asks for the first nodes now. */
void contents_read_ahead(struct contents *);

/* Only the holder with that owner is wanted. */
void contents_want(struct contents *, const char *owner);

/*
 * Reads what says who of the first ones holds the lock: the lists of a semaphore, and with
 * `freeze` what freezes the lock at `now` (the server's clock, ns).
 */
enum rc contents_judge(struct contents *, bool freeze, int64_t now, struct fault *);

/* Walks those who hold it; to be followed by the walk of those who do not. */
enum rc contents_holders(struct contents *, const struct visitor *, struct fault *);
enum rc contents_waiters(struct contents *, const struct visitor *, struct fault *);

/* How many those are. */
size_t contents_waiting(struct contents *);

/* The lease of the dlock that has that name in K; NULL: it has none. */
const char *contents_seat(const struct contents *, const char *name);

#endif
