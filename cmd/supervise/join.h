/*
 * join.h - a nested dlock on keys that enclosing dlocks already hold.
 *
 * `dlock run -k deploy -- make` whose Makefile says `dlock run -k deploy` again
 * must neither wait for itself nor ask the server: the inner one joins the
 * outer one's hold.  The command finds the keepers around it in DLOCK_KEEPER;
 * each is an abstract unix socket, open to processes of the same user that
 * descend from it.  An address, "@dlock-OWNER/NET/LOCK...", also says in which
 * network namespace it is, since it is found from no other, and which locks the
 * keeper has (a hash of backend and key for each), so that a run which cannot ask is not
 * left to wait for its own ancestor: it is refused.
 *
 * Each of the run's keys is looked for in all the keepers around it.  A keeper
 * says which of them it has, and of which kind; what is asked for must be a part
 * of that: anything exclusive or shared of an exclusive hold, else the same kind
 * and the same limit.  (A limit inside an exclusive hold is none of its parts: there
 * is no slot.)  All keys are found, perhaps in several keepers, or none; whatever
 * lies between would wait for its own parent, or for others who wait for it.
 *
 * A joined hold is the outer one in everything: token, slot, lease, deadlines (same
 * clock, so t_s can be handed on).  The outer keeper goes on renewing until the last
 * joined hold has ended, and the --min-hold of each is over; when it loses the lock it
 * kills its tree, of which the inner dlock is a part, and tells "lost" to whoever asks.
 *
 * An inner run that states no URL (by -u or a variable), and no other backend,
 * means the server of the dlock around it, also for another key: it is told
 * which, so that it does not end up elsewhere without a word.  A URL with a
 * password is told to nobody.
 *
 * The inner side is a backend like any other (join_open gives its lock), so
 * nothing else in dlock knows about nesting.
 */
#ifndef DLOCK_JOIN_H
#define DLOCK_JOIN_H

#include "cmd/plan.h"
#include "link.h"

#include <poll.h>

/*
 * So many may be connected; of these so many may hold along with us, so that there is room
 * for who releases, and so many may be none of our descendants.
 */
enum { JOINS_MAX = 512, JOINS_HOLDING = 448, JOINS_FOREIGN = 32 };

/* ---- the outer side ---- */

struct join_server {
	int listener; /* -1: none */
	pid_t root;   /* who descends from it may hold along; 0: whoever knows where */
	bool asked;   /* for a release, since the caller has last put this back */
	/* no descriptors for peers: the next one waits until one has gone */
	bool out_of_fds;
	bool spares; /* for a hold one is kept, by which whoever releases it is heard */
	int spare;   /* that one; -1: it is not there, or in use */
	char address[352]; /* for DLOCK_KEEPER */
	struct {
		int fd; /* -1: free */
		bool holds;
		bool foreign;  /* none of our descendants: may not hold along with us */
		bool releases; /* waits for join_answer_release() */
	} peers[JOINS_MAX];    /* nested dlocks that are connected */
	size_t used;           /* all at or beyond this are free */
	size_t present;        /* when none is free, the next peer waits to be accepted */
};

/*
 * Opens the socket, under a random name, for the plan's keys.  Without one (no
 * descriptors) dlock works, and runs that would join it are refused.
 */
void join_listen(struct join_server *, const struct plan *, pid_t root);

/*
 * Fills one slot for the listener and one for each peer; returns how many (at most
 * JOINS_MAX + 1).
 */
nfds_t join_poll(const struct join_server *, struct pollfd *set);

/* What was granted for one key. */
struct join_part {
	uint64_t token;
	unsigned slot;
};

/* What the keeper holds, for peers; `ours` false: nothing, or no longer. */
struct join_offer {
	bool ours;
	instant sent;
	int64_t lease, pace;
	const struct join_part *parts; /* one for each of the plan's keys */
	bool stops; /* it is wanted back: those who have joined are to stop, too */
};

/*
 * Serves what join_poll() saw; returns by how many the number of joined holds
 * has grown (or, negative, shrunk).  *keep becomes the longest time from now for
 * which one of them wants the lock kept (its --min-hold), if that is longer.
 */
int join_serve(struct join_server *, const struct pollfd *set, const struct plan *,
    const struct site *, const struct join_offer *, int64_t *keep);

/*
 * Lets nobody come any more: whoever connects from here on finds nobody, and does not
 * wait for an answer from a keeper that ends.  Who had come before is still served.
 */
void join_refuse(struct join_server *);

/* Does anybody wait for join_answer_release()? */
bool join_is_asked(const struct join_server *);

/* Has all who have joined ask at once what has become of it. */
void join_call(struct join_server *);

/* Tells all who have asked for a release how that ended, in one line; was there any? */
bool join_answer_release(struct join_server *, int status, const char *line);

/* ---- who releases a hold (`dlock release`) ---- */

enum { HANDLE_BYTES = 80 };

struct join_outcome {
	int version;
	int status;
	char line[1800]; /* to be said; "": nothing */
};

/* The handle of the keeper at this address, into out[HANDLE_BYTES]. */
void join_write_handle(const char *address, char *out);

/*
 * Asks the keeper for the release of its hold, and waits for how that ends.  RC_USAGE:
 * this is no handle.  RC_LOST: nobody of our user is there (any more).  RC_DENIED: it
 * cannot be reached from here.  RC_AGAIN: the keeper was asked, and has ended without a
 * word.  RC_SYSTEM: it was not asked, or shows no sign of life.  *f says it.
 */
enum rc join_ask_release(const char *handle, struct join_outcome *, struct fault *f);

/* ---- the inner side ---- */

enum { JOIN_SITE_BYTES = 4096 };

/* A site that an enclosing dlock has told. */
struct join_site {
	char text[JOIN_SITE_BYTES];
	/* the told ones, and the plan's own behind them */
	struct setting settings[2 * SETTINGS_MAX];
};

/*
 * What enclosing dlocks have told.  Owned by whoever owns the struct site that may point
 * into it.
 */
struct joined {
	struct join_site site;
	/* the connections, each of which is a hold; owned by the store */
	struct anchors keepers;
	struct join_part parts[KEYS_MAX]; /* of the plan's keys */
};

/*
 * RC_OK: *ret is a lock that joins the holds of keepers in DLOCK_KEEPER, and
 * keepers and parts of *joined say of which; or it is untouched if none of them
 * holds any of the plan's keys: take them from the server then; for a plan that
 * inherits its site, *site is then that of the enclosing dlock and points into
 * *joined.  RC_USAGE: that site is not to be known (any more); or the plan has a
 * job, which is remembered with a release, and a joined hold has none.  RC_AGAIN: a
 * keeper around us is there but does not answer.  RC_PROTOCOL: one has a key of ours, or
 * may have it, but it cannot be joined, or not for the kind or all the keys that are
 * asked for; asking the server might be waiting for ourselves.  On release the enclosing
 * dlock is asked to keep the lock until *keep_until, which may change until then.
 */
enum rc join_open(struct store **ret, struct host *, const struct plan *,
    struct site *site, struct joined *, const instant *keep_until, struct fault *);

/*
 * For who only looks at locks, and joins nothing.  RC_OK: for a plan that inherits its
 * site, *site is that of the nearest dlock around us and points into *joined; and unless
 * `ours` is NULL, it has a bit for each of the plan's keys that a run would join.
 * RC_USAGE: the site is not to be known (any more).
 */
enum rc join_look(struct host *, const struct plan *, struct site *site,
    struct joined *joined, unsigned *ours, struct fault *);

#endif
