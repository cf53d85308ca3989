/*
 * contents.h - what a lock's directory contains: who holds the lock, who waits for it, and nodes of
 * no lock.  Looking (look.c) and steering (steer.c) read it with this.
 *
 *  1. Those who hold the lock are known by the names (queue.h), but for those that say in their
 *     node that they wait (data.h), and those that came after a freeze (freeze.h).  Users of
 *     Curator's do not say whether they wait: while a lock is frozen, the first of them that came
 *     before the freeze counts as its holder.
 *  2. A permit is held by whoever has a lease in K/leases (permit.c).  A dlock also has its place in
 *     K, and is read there.  Users of Curator's semaphore are read in K/leases and K/locks.  A
 *     lease of theirs may belong to one who is about to be granted it.
 *  3. A directory is read in three steps, so that several locks take no more round trips than one:
 *     the list, then the nodes that may hold it, then all else.
 *  4. Some nodes are asked for before it is their turn.  A node that has gone since its
 *     directory was listed is passed over.
 */
#ifndef DLOCK_ZK_CONTENTS_H
#define DLOCK_ZK_CONTENTS_H

#include "freeze.h"
#include "queue.h"

enum { READ_AHEAD = 32 };

/* What is asked about some children of one directory, in the order of their names. */
struct reader {
	enum ask what;
	const char *part; /* of the lock's directory: "", "/leases" or "/locks" */
	const char **names;
	size_t n, asked, given;
	struct call *calls[READ_AHEAD];
};

/* Asks about the first of them. */
void reader_ask(struct reader *, const struct lockdir *);

/* The next one's name, if there is one, and what is asked, to be awaited and dropped. */
const char *reader_next(struct reader *, const struct lockdir *, struct call **);

/* Also before all are read. */
void reader_end(struct reader *);

/* One node, as it was read. */
struct member {
	const char *part, *name;
	struct call *node; /* NULL: it may not be read */
};

struct contents {
	struct lockdir dir;
	instant until;
	struct call *list;  /* of the directory; the node, where that is the lock */
	struct place place; /* what the names say together: the first n are in order */
	struct freeze freeze;
	struct lists lists; /* of a semaphore */
	/* nodes that no lock has made */
	struct odd {
		const char *first;
		size_t n;
	} odd;
	size_t waiting; /* so many do not hold it; known when those who do are read */
	/* contents.c's own: */
	enum {
		READS_FIRST,  /* those that may hold it, */
		READS_LEASES, /* and users of Curator's semaphore that do; */
		READS_LOCKS,  /* those of them that do not, */
		READS_REST,   /* and who else does not */
	} step;
	struct reader reader;
	struct call *current;
	size_t rest; /* so many that do not hold it are put to the front of the list */
	size_t seats, queued; /* so many leases and locks are dlocks', before others' */
};

/* Asks for the list; `path` NULL: the directory's own.  To be ended in any case. */
void contents_begin(
    struct contents *, const struct lockdir *, const char *path, instant until);
void contents_end(struct contents *);

/*
 * Waits for the list, puts its names into order, and asks about the first ones.  *there: the
 * directory is.  With `owner`, nobody is wanted but the holder with that.
 */
enum rc contents_list(struct contents *, const char *owner, bool *there, struct fault *);

/*
 * Reads what says who of the first ones holds the lock: the lists of a semaphore, and with
 * `freeze` what freezes the lock at `now` (the server's clock, ns).
 */
enum rc contents_judge(struct contents *, bool freeze, int64_t now, struct fault *);

/*
 * The next one of those who hold it, or, when all of these are read, of those who do not;
 * until the next call.  RC_DONE: there are no more.
 */
enum rc contents_next(struct contents *, bool holder, struct member *, struct fault *);

/* Of names, for qsort(). */
int compare_names(const void *, const void *);

/* The lease of the dlock that has that name in K; NULL: it has none. */
const char *contents_seat(const struct contents *, const char *name);

#endif
