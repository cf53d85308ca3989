/*
 * connecting.h - a connection on its way.
 *
 * libpq connects in a thread of its own, because names, service files and
 * handshakes can block in it without end.  Whoever waits may leave at any
 * time: the thread then throws away what it gets, or ends with the process.
 */
#ifndef DLOCK_PG_CONNECTING_H
#define DLOCK_PG_CONNECTING_H

#include "backends/common/clock.h"
#include "lib.h"
#include "wire.h"

#include <stdbool.h>

struct connecting;

/*
 * Begins to connect; gives up by itself after `patience`.  Of several hosts
 * each but the last gets a share of time, so that a dead one hides no living
 * one (libpq leaves that to its blocking calls), and a standby is left for the
 * hosts behind it.  NULL: no memory or no thread (errno).
 */
struct connecting *connecting_start(
    const struct pq *, const char *conninfo, int64_t ttl, int64_t patience);

/* Readable when it has ended, well or not. */
int connecting_fd(const struct connecting *);

/* What is known of the end, beyond the status of the connection. */
struct connecting_end {
	struct wire wire;     /* as far as it has been read */
	bool met_another;     /* some server began with what no PostgreSQL says */
	bool is_standby;      /* the last server reached is one */
	bool primary_is_away; /* and of the other hosts named some were not reached */
};

/*
 * What came of it, once that is so; the caller's to finish.  NULL: no memory.
 * What has failed, or has not come to an end in time, is a connection whose
 * status is not CONNECTION_OK.
 */
PGconn *connecting_take(struct connecting *, struct connecting_end *);

/* Accepts NULL. */
void connecting_drop(struct connecting *);

#endif
