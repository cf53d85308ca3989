/*
 * join_server.h - the keeper's socket: who joins its hold, and who releases it.
 *
 * The outer side of join.h.  Who connects and descends from us may hold along with us,
 * for as long as the connection lasts; `dlock release` asks here as well.  The address
 * is handed to the command in DLOCK_KEEPER.
 */
#ifndef DLOCK_JOIN_SERVER_H
#define DLOCK_JOIN_SERVER_H

#include "join_wire.h"
#include "keeper_address.h"

#include <poll.h>

/*
 * So many may be connected; of these so many may hold along with us, so that there is room
 * for who releases, and so many may be none of our descendants.
 */
enum { JOINS_MAX = 512, JOINS_HOLDING = 448, JOINS_FOREIGN = 32 };

struct join_server {
	int listener; /* -1: none */
	pid_t root;   /* who descends from it may hold along; 0: whoever knows where */
	bool asked;   /* for a release, since the caller has last put this back */
	/* no descriptors for peers: the next one waits until one has gone */
	bool out_of_fds;
	bool spares; /* for a hold one is kept, by which whoever releases it is heard */
	int spare;   /* that one; -1: it is not there, or in use */
	char address[KEEPER_BYTES]; /* for DLOCK_KEEPER */
	struct {
		int fd; /* -1: free */
		bool holds;
		bool foreign;  /* none of our descendants: may not hold along with us */
		bool releases; /* waits for join_server_answer() */
	} peers[JOINS_MAX];    /* nested dlocks that are connected */
	size_t used;           /* all at or beyond this are free */
	size_t present;        /* when none is free, the next peer waits to be accepted */
};

/*
 * Opens the socket, under a random name, for the plan's keys.  Without one (no
 * descriptors) dlock works, and runs that would join it are refused.
 */
void join_server_open(struct join_server *, const struct plan *, pid_t root);

/*
 * Fills one slot for the listener and one for each peer; returns how many (at most
 * JOINS_MAX + 1).
 */
nfds_t join_server_poll(const struct join_server *, struct pollfd *set);

/* What the keeper holds, for peers; `ours` false: nothing, or no longer. */
struct join_offer {
	const struct plan *plan; /* whose keys, and of which kind they are held */
	const struct site *site;
	const struct identity *identity; /* which locks they are; NULL: not known */
	bool ours;
	instant sent;
	int64_t lease, pace;
	const struct join_part *parts; /* one for each of the plan's keys */
	bool stops; /* it is wanted back: those who have joined are to stop, too */
};

/*
 * Serves what join_server_poll() saw; returns by how many the number of joined holds
 * has grown (or, negative, shrunk).  *keep becomes the longest time from now for
 * which one of them wants the lock kept (its --min-hold), if that is longer.
 */
int join_server_serve(struct join_server *, const struct pollfd *set,
    const struct join_offer *, int64_t *keep);

/*
 * Lets nobody come any more: whoever connects from here on finds nobody, and does not
 * wait for an answer from a keeper that ends.  Who had come before is still served.
 */
void join_server_refuse(struct join_server *);

/* Does anybody wait for join_server_answer()? */
bool join_server_is_asked(const struct join_server *);

/* Has all who have joined ask at once what has become of it. */
void join_server_call(struct join_server *);

/* Tells all who have asked for a release how that ended, in one line. */
void join_server_answer(struct join_server *, int status, const char *line);

#endif
