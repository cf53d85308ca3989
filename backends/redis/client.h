/*
 * client.h - what one claim asks for, in a dialect: an operation in, its answer out.
 *
 * Each operation is one run of a script, asked for by its hash; a server that does not
 * know it is sent the whole of it, and one that runs none is asked by commands that do the
 * same, if the dialect knows how.  An answer that the script does not give is none.
 */
#ifndef DLOCK_REDIS_CLIENT_H
#define DLOCK_REDIS_CLIENT_H

#include "dialects.h"

struct client {
	struct route route; /* questions and answers */
	const struct host *host;
	const struct dialect *dialect;
	const struct claim *claim;
	struct names names; /* of the claim */
	int replicas;       /* that are to have what was written; 0: none */
	bool plainly;       /* the server runs no scripts, and the dialect does without */
};

/*
 * Runs an operation.  RC_OK: *answer, and *sent is just before the request left that was
 * answered.  RC_LOST: the key is no lock any more.  Else as route_ask().
 */
enum rc client_run(struct client *, const struct request *, instant until, instant *sent,
    struct answer *, struct fault *);

/* Have as many replicas as are to have it what the last one wrote?  False: in words. */
bool client_is_replicated(const struct client *, struct fault *);

#endif
