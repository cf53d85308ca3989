/*
 * login.h - a connection on its way.
 *
 * libpq connects in a thread of its own, because names, service files and
 * handshakes can block in it without end.  Whoever waits may leave at any
 * time: the thread then throws away what it gets, or ends with the process.
 */
#ifndef DLOCK_PG_LOGIN_H
#define DLOCK_PG_LOGIN_H

#include "pg.h"

struct login;

/*
 * Begins to connect; gives up by itself after `patience`.  Of several hosts
 * each but the last gets a share of time, so that a dead one hides no living
 * one (libpq leaves that to its blocking calls), and a standby is left for the
 * hosts behind it.  NULL: no memory or no thread (errno).
 */
struct login *login_start(
    const struct pq *, const char *conninfo, int64_t ttl, int64_t patience);

/* Readable when it has ended, well or not. */
int login_fd(const struct login *);

/* What is known of the end, beyond the status of the connection. */
struct login_end {
	struct bounds bounds; /* as far as it has been read */
	bool is_standby;      /* the last server reached is one */
	bool primary_is_away; /* and of the other hosts named some were not reached */
};

/*
 * What came of it, once that is so; the caller's to finish.  NULL: no memory.
 * What has failed, or has not come to an end in time, is a connection whose
 * status is not CONNECTION_OK.
 */
PGconn *login_take(struct login *, struct login_end *);

/* Accepts NULL. */
void login_drop(struct login *);

/* ---- the hosts that a connection string names, as libpq writes them: lists with commas ---- */

/* NULL: not stated.  One port stands for all hosts. */
struct hosts {
	const char *host, *hostaddr, *port;
};

/* How many there are, at least one. */
size_t hosts_count(const struct hosts *);

/*
 * Those behind the first one called `host` (its name, or its address where it has none)
 * with `port`; *behind points into the same lists.  False: that one is the last, or none
 * of these.
 */
bool hosts_behind(
    const struct hosts *, const char *host, const char *port, struct hosts *behind);

#endif
