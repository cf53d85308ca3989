/*
 * node.h - our own node in the lock's directory, or in its place: it is made, found again,
 * written, deleted.
 *
 *  1. It is found by the owner in its name.  A create whose answer got lost may have
 *     happened: we look for it.  What another session of ours has left is deleted, never
 *     adopted.  Where the node is the lock itself, all have the same name: it is ours if it
 *     is our session's.
 *  2. The token is the node's czxid, which comes with the answer to create.
 *  3. A write earns the lease (credit.h): the quorum must agree to it, while a follower
 *     that is cut off from its leader goes on answering pings and reads.
 *  4. It is written with the version that we wrote last.  Another one means that somebody
 *     else wrote to it: that is read before anything is decided.  It may be a request to give
 *     the lock up, Curator's or ours (data.h).
 */
#ifndef DLOCK_ZK_NODE_H
#define DLOCK_ZK_NODE_H

#include "data.h"
#include "lockdir.h"

/*
 * How far a claim has come.  A lost connection changes nothing: what a session has made and
 * watched is still there when it has another connection.  What stands in our node is another
 * matter (struct node_said), and so is what an attempt to take a permit has left
 * (struct permit).
 */
enum state {
	STATE_NONE,     /* there is no node of ours */
	STATE_UNSURE,   /* there may be one that we do not know of */
	STATE_JOINED,   /* there is one, and we know its path, */
	STATE_PLACED,   /* and have seen its place in the queue, */
	STATE_WATCHING, /* and watch the node ahead of it */
	STATE_HELD,     /* the lock is ours */
	STATE_LEAVING,  /* we have asked to delete a waiter's node, and got no answer, */
	STATE_GIVING,   /* or a holder's */
	STATES
};

enum event {
	EVENT_MAY_BE_MADE, /* a create has been sent */
	EVENT_NOT_MADE,    /* the server has made none, for certain */
	EVENT_MADE,        /* it has made one, or we have found it */
	EVENT_SEEN,        /* we have read the queue, and are in it */
	EVENT_WATCHED,     /* we will be told of the end of the node ahead */
	EVENT_LIST_ANEW,   /* the queue is being read again */
	EVENT_GRANTED,
	EVENT_NO_ANSWER, /* to a delete of our node */
	EVENT_LOST, /* our place is lost; another session of ours may have left a node */
	EVENT_GONE, /* it is deleted, or goes with the session */
	EVENTS
};

/* Pure. */
enum state state_next(enum state, enum event);

/* The lock is ours, or was when we began to give it back. */
bool state_is_holders(enum state);

/* We have asked for the end of our node: that it is gone is no loss. */
bool state_is_ending(enum state);

/* The server's clock, as it was told with our node. */
struct server_clock {
	int64_t server; /* ns since 1970; < 0: not known, */
	instant here;   /* and ours at that moment */
};

/* One of N permits (permit.c); paths, "" where there is no such node that we know of. */
struct permit {
	enum {
		PERMIT_NONE,
		PERMIT_ASKED, /* what an attempt has left may be there, and the slot */
		PERMIT_TAKEN, /* lease and slot are ours */
	} state;
	char lock[NODE_BYTES], lease[NODE_BYTES], slot[NODE_BYTES];
	unsigned number; /* of the slot */
};

/* Are we asked to give it up? */
struct revocation {
	enum {
		REVOKED_NOT,
		REVOKED_NEWS, /* yes, and we have not yet said so */
		REVOKED_TOLD,
	} state;
	char asker[RECORD_BYTES]; /* who asks, "" where they do not say */
};

/* What stands in it, as we last wrote it. */
struct node_said {
	enum stage stage;
	int version; /* of that */
	/* since when we have what we had to wait for, server's ms; 0: not yet */
	int64_t granted;
	bool marked; /* it stands there as a waiter's, for certain */
};

struct node {
	const struct lockdir *dir; /* and the session that it lives in */
	const char *record;
	const char *owner;     /* to stand in it; NULL: its name says that */
	char path[NODE_BYTES]; /* "": there is none that we know of */
	enum state state;      /* how far the claim has come */
	/* its end will be told, through all connections of its session */
	bool guarded;
	struct revocation revocation;
	struct node_said said;
	uint64_t token;
	struct server_clock clock;
	int64_t joined; /* what it showed when we first had one; 0: we had none yet */
	struct permit permit;
	struct grant grant; /* sent, lease and pace: what the last write has earned */
};

/* Something has happened to the claim. */
void node_note(struct node *, enum event);

/* What the server's clock shows now, in ns since 1970; -1: not known. */
int64_t node_server_now(const struct node *);

/*
 * Joins the queue; *list is what it looked like then.  The grant is set if the answer to
 * our own create came, which earned a lease.  A directory that is removed on the
 * way is made again until `until`.  Where the node is the lock itself, there is no list, and RC_OK
 * without a path says that there is one already.
 */
enum rc node_join(struct node *, struct call **list, instant until, struct fault *);

/* Reads what stands there.  RC_LOST: it is not ours. */
enum rc node_read(struct node *, instant until, struct fault *);

/* It is gone, or no longer ours, and all that belongs to it. */
void node_forget(struct node *);

/* What is to stand in it, with this slot or SLOT_NONE. */
void node_data(const struct node *, int slot, char data[DATA_BYTES]);

/*
 * Writes it anew, with its stage, if all that belongs to it is there; to be given to
 * node_written().
 */
struct call *node_write(struct node *);

/*
 * The answer to such a write, which is dropped.  *written (or NULL): it has succeeded, and the
 * grant has the lease that it has earned.  Otherwise we know now what is there instead.
 * RC_LOST: it is not there any more.
 */
enum rc node_written(
    struct node *, struct call *, instant until, bool *written, struct fault *);

/* Watches over it, through all connections of this session. */
void node_guard(struct node *);

/*
 * It is to go, whichever it is, and what belongs to it; asks once.  `more` changes are
 * made in the same transaction; *refused: one of them cannot be, and nothing was done.
 * RC_OK: it has gone, and the state is STATE_NONE if this attempt was the reason.
 * RC_LOST: it had gone before, though no earlier attempt at this could have been the
 * reason; or the session has expired, and so nobody knows whether it was there until an
 * earlier attempt.
 */
enum rc node_delete(struct node *, const struct change *more, size_t nmore, bool *refused,
    instant until, struct fault *);

/* RC_AGAIN: what is said when another writes to it between each two attempts of ours. */
enum rc node_is_disturbed(const struct node *, struct fault *);

#endif
