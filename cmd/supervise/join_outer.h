/*
 * join_outer.h - the outer keeper's side of its socket.
 *
 * Inner runs ask here whether the keeper has their keys (join_inner.h), and hold along with
 * it for as long as the connection lasts; `dlock release` asks here as well.
 */
#ifndef DLOCK_JOIN_OUTER_H
#define DLOCK_JOIN_OUTER_H

#include "join.h"
#include "join_address.h"
#include "aim.h"
#include "anchors.h"

#include <poll.h>

/*
 * So many may be connected; of these so many may hold along with us, so that there is room
 * for a release, and so many may be none of our descendants.
 */
enum { JOIN_PEERS = 512, JOIN_HOLDING = 448, JOIN_FOREIGN = 32 };

enum {
	PEER_HOLDS = 1 << 0,    /* along with us */
	PEER_FOREIGN = 1 << 1,  /* none of our descendants: may not hold along with us */
	PEER_RELEASES = 1 << 2, /* waits for join_outer_answer() */
};

struct join_outer {
	int listener;    /* -1: none */
	pid_t root;      /* what descends from it may hold along; 0: any process */
	bool asked;      /* for a release, since the caller has last put this back */
	bool out_of_fds; /* the next peer waits until one has gone */
	bool spares;     /* a descriptor: for a hold, so that a release is heard */
	int spare;       /* that one; -1: it is not there, or in use */
	int watched; /* a copy for each that joins: see join_outer_watch(); 0: there is none */
	char address[JOIN_ADDRESS_BYTES]; /* for DLOCK_KEEPER */
	size_t
	    polled; /* of the peers, by join_outer_poll(); some may have gone since, or come */
	size_t n; /* when there are JOIN_PEERS, the next one waits to be accepted */
	struct peer {
		int fd;
		unsigned is;  /* PEER_* */
		pid_t keeper; /* whose connection it is; 0: it cannot be seen */
	} peers[JOIN_PEERS];
};

/*
 * Opens the socket for the run's keys; all else of the struct is zeroed.  Without one (no
 * descriptors) dlock works, and runs that would join it are refused.
 */
void join_outer_open(
    struct join_outer *, const struct params *, const char *id, pid_t root);

/* Fills one slot for the listener and one for each peer; returns how many. */
nfds_t join_outer_poll(struct join_outer *, struct pollfd *set);

/* The keeper's hold, as peers are told of it; `ours` false: it has none, or no longer. */
struct offer {
	const struct params *params;     /* whose keys, and of which kind they are held */
	const struct identity *identity; /* which locks they are; "": not known */
	bool ours;
	instant sent;
	int64_t lease, pace;
	const struct join_part *parts; /* one for each of the run's keys */
	enum join_has has;             /* for JOIN_NAME, and these two */
	pid_t pid;
	const char *where;
	bool stops; /* it is wanted back: those that have joined are to stop, too */
};

/*
 * Serves what join_outer_poll() saw; returns by how many the number of joined holds
 * has grown (or, negative, shrunk).  *keep becomes the longest time from now for
 * which one of them wants the lock kept (its --min-hold), if that is longer.
 */
int join_outer_serve(
    struct join_outer *, const struct pollfd *set, const struct offer *, int64_t *keep);

/*
 * Adds a descriptor to those for the front of a hold, before anybody can have joined.  It hangs up
 * when we have ended, or called join_outer_unwatch(), and no run that has joined is left which may
 * still have to stop what it runs.  False, with errno: there is none.
 */
bool join_outer_watch(struct join_outer *, struct anchors *);
void join_outer_unwatch(struct join_outer *);

/*
 * Lets nobody come any more: a process that connects from here on finds nobody, and does not wait
 * for an answer from a keeper that ends.  Processes that had come before are still served.
 */
void join_outer_drain(struct join_outer *);

/*
 * Lets nobody come to a keeper that has nothing left to hold along with.  A run that has just come
 * sees the end of its connection.
 */
void join_outer_close(struct join_outer *);

/* Does anybody wait for join_outer_answer()? */
bool join_outer_is_awaited(const struct join_outer *);

/* Has all that have joined ask at once what has become of it. */
void join_outer_call(struct join_outer *);

/* Signals the runs that have joined. */
void join_outer_signal(const struct join_outer *, const struct aim *);

/* Tells all that have asked for a release how that ended, in one line. */
void join_outer_answer(struct join_outer *, int status, const char *line);

#endif
