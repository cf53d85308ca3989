/*
 * session_lock.h - locks that live and die with their connection: pg's modes advisory and
 * row, mysql's row and named.
 *
 *  1. The server ends a session that has been silent for the ttl; that makes a lease of
 *     it.  Its word is sent for by a heartbeat, any statement.
 *  2. A session that has ended took the lock along: RC_LOST.  There is no way back to it,
 *     and another session never counts as the same hold.  While nobody asks, host->alert
 *     watches the connection.
 *  3. The connection itself is the grant's anchor: with a copy of it in the front, a
 *     killed keeper does not end the session before the command's tree is gone.
 *  4. An answer that is late does not poison the connection: the heartbeat stays out, and
 *     the next renewal waits for the same answer.  The lease counts from when it left.
 *  5. Waiting is done in the server, in chunks: at the end of each one loses the place.
 *  6. Such a lock is one server's, and one session's: where the session may be lent to
 *     others (a pooler, a proxy), or another server would not see the lock, it is refused.
 */
#ifndef DLOCK_SQL_SESSION_LOCK_H
#define DLOCK_SQL_SESSION_LOCK_H

#include "sql.h"

/* What such a lock has of its own: the first member of its mode's struct. */
struct session_lock {
	bool held;         /* by the server's word */
	instant beat_sent; /* the heartbeat that is out, or was answered last */
	unsigned serial;   /* of the connection that has been found fit */
};

static inline struct session_lock *
session_lock_of(const struct sql *db)
{
	if (!db->mode->way)
		abort();
	return db->own;
}

enum { STILL_BYTES = 800 };

/* What differs between such modes. */
struct session_lock_way {
	/*
	 * Asks once, without waiting, and looks who is there.  RC_OK with *got; leaves nothing
	 * open but a grant.
	 */
	enum rc (*ask)(
	    struct sql *, instant until, bool *got, struct grant *, struct fault *);

	/*
	 * The same; waits in the server for so long, at the end of which the whole wait may be
	 * over (`until`).
	 */
	enum rc (*wait)(struct sql *, int64_t ms, instant until, bool *got,
	    struct grant *, struct fault *);

	/* wait() has also looked who is there: it need not be asked for that. */
	bool wait_looks;

	/*
	 * The heartbeat: one boolean, "still ours" (NULL: the server has become read-only); if it
	 * `ends`, gives the lock back, and says "was ours until now".  Its text may be in `text`.
	 */
	struct question (*still)(const struct sql *, bool ends, char text[STILL_BYTES]);

	const struct question *last; /* asked when it was given back, if not NULL */
	bool errors_end;             /* an error of the server's ends the hold */
};

/* As struct sql_mode has them. */
enum rc session_lock_acquire(struct sql *, instant until, struct grant *, struct fault *);
enum rc session_lock_renew(struct sql *, instant until, struct grant *, struct fault *);
enum rc session_lock_release(struct sql *, struct outcome, instant until, struct fault *);

/*
 * We hold, by the answer to what left at `sent`: fills the grant, and watches the
 * connection from now on.
 */
void session_lock_granted(struct sql *, uint64_t token, instant sent, struct grant *);

/*
 * Reads four fields from `first` on into host->seen: how many wait, who holds it
 * (one of them: a JSON object, or NULL), how many do, and whether they share it.
 * Our place is behind those who wait.
 */
bool session_lock_read_queue(struct host *, const struct row *, int first);

#endif
