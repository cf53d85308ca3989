/*
 * freeze.h - a lock that nobody may take: nodes that stand before all others, and stay.
 *
 *	K/-freeze-<16 random digits>-<ms or inf>-__WRIT__-0000000001	and
 *	K/locks/<the same name>
 *
 *  1. So it is in Curator's layout; others have such names of their own (layout.h).  That is the
 *     first place for all of Curator's recipes, also for those who wait there already: what
 *     follows "__WRIT__" is less than any number, as strings, and who orders by "lock-", which
 *     is not in it, orders this by the whole name, and "-" is less than any digit.  So their
 *     users do to it what they do to any holder: the next one in line watches it.  Those of a
 *     semaphore stand in K/locks (permit.c).
 *  2. Who holds the lock does not look, and goes on.
 *  3. It is persistent: it needs no process.  Its data are the record of who did it; it
 *     began when the server made it, and its length is in its name, so that its end is
 *     counted on the server's clock.  Nothing that is written to it changes that.
 *  4. One that has ended is as if it were not there, and whoever stands near the head removes it, for
 *     Curator's users wait for that.  No two have the same name: who removes one
 *     removes no other.
 *  5. A newer one takes the place of an older one, which goes when that is there.
 *  6. When it is there, nobody begins who is not seen to hold the lock: whoever takes its
 *     turn first says so in its node (a newcomer by making it), and then reads the queue
 *     through the same connection.  What was frozen before that write is in what it reads,
 *     and whoever freezes the lock after it sees that node among the holders.  A permit is
 *     taken in a transaction instead that fails if K/locks has been written meanwhile, as
 *     a freeze does.
 */
#ifndef DLOCK_ZK_FREEZE_H
#define DLOCK_ZK_FREEZE_H

#include "data.h"
#include "lockdir.h"

enum {
	FREEZE_BYTES = 96, /* a name */
	FORM_BYTES = FREEZE_BYTES + 8,
};

/* The newest freeze of a lock. */
struct freeze {
	bool on;
	char name[FREEZE_BYTES];
	int64_t czxid;
	int64_t since,
	    until; /* by the server's clock, ns since 1970; until may be NEVER */
	char record[RECORD_BYTES]; /* of who did it */
};

/* A name for one that has that length; NEVER: no end.  The layout must have freezes. */
void freeze_name(char out[FREEZE_BYTES], const struct layout *, int64_t length);

/*
 * A freeze of any of these names has several nodes: the i-th, as it goes on from the lock's
 * path: "/locks/-freeze-...".  False: there are no more.
 */
bool freeze_form(char out[FORM_BYTES], const char *name, int i);

/* Are these names of the same freeze? */
bool freeze_is(const char *name, const char *other);

/*
 * Reads those among n names of children of the lock's directory, or with FREEZE_PART of its
 * semaphore's.  What has ended at `now` (server's, ns; < 0: not known) does not count;
 * with `sweep` it is removed.
 */
#define FREEZE_PART "/locks"
enum rc freeze_look(struct freeze *, const struct lockdir *, const char *part,
    const char *const *names, size_t n, int64_t now, bool sweep, instant until,
    struct fault *);

/*
 * Can the owner of a node that has its place there hold the lock?  Not if it has come
 * after the freeze, or says itself that it waits.
 */
bool freeze_leaves(const struct freeze *, const struct call *node);

/*
 * Removes all nodes of one.  *removed (or NULL): we did.  RC_DENIED, and
 * whatever an attempt can end with.
 */
enum rc freeze_remove(const struct lockdir *, const char *name, bool *removed,
    instant until, struct fault *);

#endif
