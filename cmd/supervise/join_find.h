/*
 * join_find.h - `dlock release -k KEY`: which keeper of our user has these keys.
 *
 * Needs no server: the sockets of all keepers of this machine, as far as our network namespace
 * goes, stand in /proc/net/unix.  Each that is our user's is asked which locks it has.
 */
#ifndef DLOCK_JOIN_FIND_H
#define DLOCK_JOIN_FIND_H

#include "cmd/text.h"
#include "join_address.h"

struct join_found {
	char handle[JOIN_HANDLE_BYTES];
	struct brief where; /* the server that has the lock, for people; not cleaned */
};

/*
 * Finds the hold that has exactly the run's keys.  A hold that was lost, and is to tell so,
 * counts where there is no other one.  RC_LOST: there is none.  RC_USAGE: there are several, or
 * it has further keys.  RC_SYSTEM: /proc does not tell, or it may be one that does not answer.
 */
enum rc join_find(const struct params *, struct join_found *, struct fault *);

#endif
