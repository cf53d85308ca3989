/*
 * login.h - a connection on its way.
 *
 * libpq connects in a thread of its own, because names, service files and
 * handshakes can block in it without end.  Whoever waits may leave at any
 * time: the thread then throws away what it gets, or ends with the process.
 */
#ifndef DLOCK_PG_LOGIN_H
#define DLOCK_PG_LOGIN_H

#include "backends/common/task.h"
#include "pg.h"

struct login {
	struct task task; /* done: it has ended, well or not */
	const struct pq *pq;
	char *conninfo;
	bool elsewhere; /* the process may have left its directory */
	int64_t ttl;
	int64_t share; /* of time, for each host */
	instant give_up;
	size_t hosts;    /* named by the user, once that matters */
	size_t standbys; /* among them, met until now */
	/* login_words() of those that were left */
	char left[1024];
	/*
	 * What came of it.  What has failed, or has not come to an end in time, is a connection
	 * whose status is not CONNECTION_OK.
	 */
	PGconn *conn;      /* NULL: no memory */
	const char *asked; /* libpq's name of the host that was asked what it is */
	/* the host of `conn` is this, and no PostgreSQL; NULL: it is not known to be */
	const char *stranger;
	struct bounds bounds; /* as far as it has been read */
	bool is_standby;      /* the last server reached is one */
	bool primary_is_away; /* and of the other hosts named some were not reached */
};

/*
 * Begins to connect; gives up by itself after `most`.  Of several hosts
 * each but the last gets a share of time before that, so that a dead one hides no living
 * one (libpq leaves that to its blocking calls), and a standby is left for the
 * hosts behind it.  NULL: no memory or no thread (errno).  Ended by task_drop().
 */
struct login *login_start(
    const struct pq *, const char *conninfo, bool elsewhere, int64_t ttl, int64_t most);

/* for a host that was left before it had answered */
#define LOGIN_SILENT "no answer"

/*
 * libpq's words about the host that it is at and those before it, a line each.  `why`: what is
 * wrong with that host, if libpq has not given it up.
 */
void login_words(
    const struct pq *, const PGconn *, const char *why, char *out, size_t size);

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
