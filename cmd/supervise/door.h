/*
 * door.h - the keeper's socket: what passes through it, and the keeper's side of it.
 *
 * Nested runs ask here whether the keeper has their keys (nested.h), and hold along with
 * it for as long as the connection lasts; `dlock release` asks here as well.
 */
#ifndef DLOCK_DOOR_H
#define DLOCK_DOOR_H

#include "backends/common/setting.h"
#include "cmd/plan.h"
#include "keeper_address.h"
#include "tree.h"

#include <poll.h>

/*
 * ---- what passes through it ----
 *
 * One datagram each way: a struct as it is.  JOIN_VERSION changes with any of them.
 */

#define JOIN_VERSION 10
/* a keeper on this machine that needs longer is frozen, or full */
#define JOIN_PATIENCE (10 * NS_PER_S)
/* the same for who does not wait for a lock (-n), or not for so long (-w) */
#define JOIN_PATIENCE_LEAST NS_PER_S
#define JOIN_RETRY (10 * NS_PER_MS) /* pause before a full one is asked again */

/*
 * A keeper sends one byte to those that have joined: they are to ask now.  And one to a
 * process that asks again for a release: the keeper is alive.
 */
enum { JOIN_CALL = 1, JOIN_ALIVE = 1 };

enum join_verb { JOIN_HOLD = 1, JOIN_CHECK, JOIN_RELEASE };

struct join_ask {
	int version;
	enum join_verb verb;
	/* the lock is wanted for so long from now, whatever becomes of the asker */
	int64_t keep;
	/* which locks the keys are; text "": not known */
	struct identity identity;
	/* one after the other, each with its NUL; sent up to the last one */
	char keys[KEYS_MAX * (KEY_BYTES + 1)];
};

/* What was granted for one key. */
struct join_part {
	uint64_t token;
	unsigned slot;
};

/* What a keeper has, for those that may join. */
struct join_hold {
	enum lock_kind kind;
	unsigned limit;
	/*
	 * So long ago the request was sent that has earned it: no instant, for the clock of
	 * another time namespace differs.
	 */
	int64_t age;
	int64_t lease, pace;
	struct join_part parts[KEYS_MAX]; /* in the order of the keys asked for */
};

/* To JOIN_HOLD and JOIN_CHECK. */
struct join_answer {
	int version;
	bool foreign; /* a lock is the same, but the asker none of our descendants */
	bool stops;   /* it is ours still, but wanted back: to be stopped politely */
	bool full;    /* it is ours, but DOOR_HOLDING have joined already */
	unsigned has; /* bits: which of the keys asked for we hold, in that order */
	struct join_hold hold;
};

/* To JOIN_RELEASE, when it has ended. */
struct join_outcome {
	int version;
	int status;
	char line[1800]; /* to be said; "": nothing */
};

/*
 * ---- the keeper's side ----
 *
 * So many may be connected; of these so many may hold along with us, so that there is room
 * for a release, and so many may be none of our descendants.
 */
enum { DOOR_PEERS = 512, DOOR_HOLDING = 448, DOOR_FOREIGN = 32 };

enum {
	PEER_HOLDS = 1 << 0,    /* along with us */
	PEER_FOREIGN = 1 << 1,  /* none of our descendants: may not hold along with us */
	PEER_RELEASES = 1 << 2, /* waits for door_answer() */
};

struct door {
	int listener;    /* -1: none */
	pid_t root;      /* what descends from it may hold along; 0: any process */
	bool asked;      /* for a release, since the caller has last put this back */
	bool out_of_fds; /* the next peer waits until one has gone */
	bool spares;     /* a descriptor: for a hold, so that a release is heard */
	int spare;       /* that one; -1: it is not there, or in use */
	char address[KEEPER_BYTES]; /* for DLOCK_KEEPER */
	size_t
	    polled; /* of the peers, by door_poll(); some may have gone since, or come */
	size_t n;   /* when there are DOOR_PEERS, the next one waits to be accepted */
	struct peer {
		int fd;
		unsigned is;  /* PEER_* */
		pid_t keeper; /* whose connection it is; 0: it cannot be seen */
	} peers[DOOR_PEERS];
};

/*
 * Opens the socket for the plan's keys; all else of the struct is zeroed.  Without one (no
 * descriptors) dlock works, and runs that would join it are refused.
 */
void door_open(struct door *, const struct plan *, const char *id, pid_t root);

/* Fills one slot for the listener and one for each peer; returns how many. */
nfds_t door_poll(struct door *, struct pollfd *set);

/* What the keeper holds, for peers; `ours` false: nothing, or no longer. */
struct offer {
	const struct plan *plan;         /* whose keys, and of which kind they are held */
	const struct identity *identity; /* which locks they are; "": not known */
	bool ours;
	instant sent;
	int64_t lease, pace;
	const struct join_part *parts; /* one for each of the plan's keys */
	bool stops; /* it is wanted back: those that have joined are to stop, too */
};

/*
 * Serves what door_poll() saw; returns by how many the number of joined holds
 * has grown (or, negative, shrunk).  *keep becomes the longest time from now for
 * which one of them wants the lock kept (its --min-hold), if that is longer.
 */
int door_serve(
    struct door *, const struct pollfd *set, const struct offer *, int64_t *keep);

/*
 * Lets nobody come any more: a process that connects from here on finds nobody, and does
 * not wait for an answer from a keeper that ends.  Those that had come before are still
 * served.
 */
void door_shut(struct door *);

/*
 * The same for a keeper that has nothing to hold along with any more.  Who has just come is not
 * served: it sees the end of the connection.
 */
void door_close(struct door *);

/* Does anybody wait for door_answer()? */
bool door_is_awaited(const struct door *);

/* Has all that have joined ask at once what has become of it. */
void door_call(struct door *);

/* Signals the runs that have joined. */
void door_signal(const struct door *, const struct aim *);

/* Tells all that have asked for a release how that ended, in one line. */
void door_answer(struct door *, int status, const char *line);

#endif
