/*
 * tied.h - locks that are tied to their session: the modes row and named.
 *
 *  1. The server ends a session that has been silent for the ttl, in whole seconds
 *     (wait_timeout); that makes a lease of it.  Its word is sent for by a heartbeat, any
 *     statement.
 *  2. A session that has ended took the lock along: RC_LOST.  There is no way back to it,
 *     and another session never counts as the same hold.  While nobody asks, host->alert
 *     watches the connection.
 *  3. The connection itself is the grant's anchor: with a copy of it in the front, a
 *     killed keeper does not end the session before the command's tree is gone.
 *  4. An answer that is late does not poison the session: the statement stays out, and the
 *     next renewal waits for the same answer.  The lease counts from when that left.
 *  5. A server that becomes read-only while we wait grants nothing, and while we hold, the
 *     lock is lost: as a replica it would go on saying that it is ours, and the new primary
 *     knows nothing of it.
 *  6. Such a lock is one server's, and one session's: where the session may be lent to
 *     others (a proxy) or the lock is not the others' (nodes of a cluster) it is refused.
 */
#ifndef DLOCK_MYSQL_TIED_H
#define DLOCK_MYSQL_TIED_H

#include "modes.h"

/* What such a lock has of its own, as the first member of its mode's struct. */
struct tied {
	bool held;         /* by the server's word */
	instant beat_sent; /* the heartbeat that is out, or was answered last */
	unsigned serial;   /* of the session that has been found fit */
};

/*
 * The session as such a lock needs it: open, with a lease, and one that keeps the lock.
 * RC_CONFIG: it cannot be had so, and why.
 */
enum rc tied_open(struct mysql *, struct tied *, instant until, struct fault *);

/* We hold, by the answer to what left at `sent`; watches the connection from now on. */
void tied_granted(
    struct mysql *, struct tied *, uint64_t token, instant sent, struct grant *);

/* Sends the heartbeat, or waits for the answer to the last one: one boolean, "still ours". */
enum rc tied_renew(struct mysql *, struct tied *, const char *sql, instant until,
    struct grant *, struct fault *);

/*
 * Gives it back: a statement with one boolean, "was ours until now"; closes the session,
 * which gives back whatever there is.
 */
enum rc tied_release(
    struct mysql *, struct tied *, const char *sql, instant until, struct fault *);

/*
 * One question with one answer on the session there is; whatever fails ends the session,
 * and with it what it may have got.
 */
enum rc tied_ask(struct mysql *, const char *sql, const struct shape *, instant until,
    instant *sent, MYSQL_RES **ret, struct fault *);

/*
 * acquire, for both modes: `first` asks once without waiting, `wait` waits in the server
 * for so long, at the end of which the whole wait may be over (`until`); each RC_OK with *got, and none leaves anything open but a grant.
 */
struct tied_way {
	enum rc (*first)(
	    struct mysql *, instant until, bool *got, struct grant *, struct fault *);
	enum rc (*wait)(struct mysql *, int64_t ms, instant until, bool *got,
	    struct grant *, struct fault *);
};
enum rc tied_acquire(struct mysql *, const struct tied_way *, instant until,
    struct grant *, struct fault *);

#endif
