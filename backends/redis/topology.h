/*
 * topology.h - on which server the locks of a store are now.
 *
 * A place is found (by the URL, by the sentinels, by what a node of the cluster said), is
 * trusted once it has answered, and is doubted when it does not answer, or says that it is
 * no master: then it is looked for again.
 */
#ifndef DLOCK_REDIS_TOPOLOGY_H
#define DLOCK_REDIS_TOPOLOGY_H

#include "address.h"
#include "sentinel.h"

enum { NODES = 64 }; /* of a cluster that are remembered */

struct topology {
	struct host *host;
	const struct address *address;
	const char *password;    /* of the sentinels; "": none */
	struct endpoint at;      /* the place */
	char where[WHERE_BYTES]; /* the same for people */
	bool found, trusted;
	unsigned moves;              /* how often `at` has changed */
	struct sentinels *sentinels; /* FORM_SENTINEL, once they have been asked */
	struct endpoint *nodes;      /* FORM_CLUSTER: NODES of them, at first the URL's */
	size_t known, turn;          /* so many are; the one to try next */
};

/* With the only place, if there is but one; `password` as sentinels_new(). */
void topology_init(
    struct topology *, struct host *, const struct address *, const char *password);
void topology_free(struct topology *);

/*
 * RC_OK: `at` is where to ask.  Otherwise as sentinels_ask().
 */
enum rc topology_find(struct topology *, instant until, struct fault *);

/* It has answered as a master does. */
void topology_trust(struct topology *);

/* It has not, or no longer. */
void topology_doubt(struct topology *);

/*
 * The host and port that a node sends us to, "MOVED 15495 127.0.0.1:7401" or "ASK ...";
 * false: that is none.  A port alone is on the host of the node itself.
 */
bool topology_redirection(const struct topology *, const char *text, struct endpoint *to);

/* A node of the cluster says that this one has the slot. */
void topology_moved(struct topology *, const struct endpoint *to);

#endif
