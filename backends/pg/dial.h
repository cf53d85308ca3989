/*
 * dial.h - a connection on its way.
 *
 * libpq connects in a thread of its own, because names, service files and
 * handshakes can block in it without end.  Whoever waits may leave at any
 * time: the thread then throws away what it gets, or ends with the process.
 */
#ifndef DLOCK_PG_DIAL_H
#define DLOCK_PG_DIAL_H

#include "backends/clock.h"
#include "lib.h"

#include <stdbool.h>

struct dial;

/*
 * Begins to connect; gives up by itself after `patience`.  Of several hosts
 * each but the last gets a share of time, so that a dead one hides no living
 * one (libpq leaves that to its blocking calls).  NULL: no memory or no thread
 * (errno).
 */
struct dial *dial_start(const struct pq *, const char *conninfo, int64_t ttl, int64_t patience);

/* Readable when it has ended, well or not. */
int dial_fd(const struct dial *);

/*
 * What came of it, once that is so; the caller's to finish.  NULL: no memory.
 * What has failed, or has not come to an end in time, is a connection whose
 * status is not CONNECTION_OK.
 */
PGconn *dial_take(struct dial *);

/* Once it has ended: did some server begin with what no PostgreSQL says? */
bool dial_met_another(const struct dial *);

/* Once it has ended: was a host left, for it did not answer in its share of time? */
bool dial_left_a_host(const struct dial *);

/* Accepts NULL. */
void dial_drop(struct dial *);

#endif
