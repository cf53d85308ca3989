/*
 * state.h - how far a claim has come.
 *
 *		may be	not	made,	place	ahead is	list	grant	no	lost	gone
 *		made	made	found	seen	watched		anew		answer
 *	none	unsure	.	joined	.	.	.	.	.	.	.
 *	unsure	.	none	joined	.	.	.	.	.	.	none
 *	joined	.	.	.	placed	.	.	held	leaving	unsure	none
 *	placed	.	.	.	.	watching joined	held	leaving	unsure	none
 *	watching .	.	.	.	.	joined	held	leaving	unsure	none
 *	held	.	.	.	.	.	.	.	giving	unsure	none
 *	leaving	.	.	.	.	.	.	.	.	unsure	none
 *	giving	.	.	.	.	.	.	.	.	unsure	none
 *
 * A dot: it stays what it is.  A lost connection changes nothing: what a session has made and
 * watched is still there when it has another connection.  What stands in our node is another
 * matter (struct said, node.h), and so is what an attempt to take a permit has left
 * (struct permit).
 *
 * Pure.
 */
#ifndef DLOCK_ZK_STATE_H
#define DLOCK_ZK_STATE_H

#include <stdbool.h>

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

enum state state_next(enum state, enum event);

/* The lock is ours, or was when we began to give it back. */
bool state_is_holders(enum state);

/* We have asked for the end of our node: that it is gone is no loss. */
bool state_is_ending(enum state);

#endif
