/*
 * steer.h - takes a lock from its holder, lets nobody take it, and ends that.
 *
 *  1. The holder that is meant is found by its token, which is its node's czxid, and is written
 *     or deleted with the version that was read with that: whoever comes to stand
 *     there instead is another node.
 *  2. A dlock is asked by what data.h says; Curator's users as Curator does it, who have to
 *     listen for that (makeRevocable).  Those of its semaphore cannot be asked.
 *  3. What is frozen, and how, is in freeze.h.
 */
#ifndef DLOCK_ZK_STEER_H
#define DLOCK_ZK_STEER_H

#include "freeze.h"

struct steering {
	struct session *session;
	struct lockdir *dir; /* the lock's */
	instant until;
	const struct target *target; /* of mark and force */
	const char *record;          /* who does it, and why */
	char freeze[FREEZE_BYTES];   /* its name, if it is to be made */
	bool asked; /* a server was asked to mark or remove what is to go; */
	bool again; /* it was in an earlier attempt, which got no answer */
};

/* As admin_ops has them; each may be repeated after RC_AGAIN. */
enum rc steering_mark(struct steering *, struct fault *);
enum rc steering_force(struct steering *, struct fault *);
enum rc steering_freeze(struct steering *, struct fault *);
enum rc steering_thaw(struct steering *, struct fault *);

#endif
