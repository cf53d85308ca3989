/* dial.c - see dial.h. */
#include "dial.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

enum { LOOK_MS = 100 }; /* so often the thread looks whether anybody still waits */

/* Shared by the thread and whoever waits for it; the one who lets go last frees it. */
struct dial {
	const struct pq *pq;
	char *conninfo;
	int64_t ttl;
	instant give_up;
	int done; /* eventfd */
	PGconn *conn;
	atomic_bool dropped;
	atomic_int owners;
};

static void
let_go(struct dial *d)
{
	if (atomic_fetch_sub(&d->owners, 1) > 1)
		return;
	if (d->conn)
		d->pq->finish(d->conn);
	close(d->done);
	explicit_bzero(d->conninfo, strlen(d->conninfo));
	free(d->conninfo);
	free(d);
}

static void
swallow(void *arg, const PGresult *notice)
{
	(void)arg;
	(void)notice;
}

/*
 * Begins.  What stands before the user's words is overruled by them; what
 * stands behind overrules them: keys and records are UTF-8.
 */
static PGconn *
begin(const struct dial *d)
{
	static const char *const keywords[] = {"keepalives_idle", "keepalives_interval", "keepalives_count",
	    "tcp_user_timeout", "dbname", "client_encoding", NULL};
	char idle[24], interval[24], user_timeout[24];
	const char *values[] = {idle, interval, "3", user_timeout, d->conninfo, "UTF8", NULL};
	long seconds = (long)(d->ttl / NS_PER_S);

	snprintf(idle, sizeof idle, "%ld", seconds / 3 > 0 ? seconds / 3 : 1);
	snprintf(interval, sizeof interval, "%ld", seconds / 10 > 0 ? seconds / 10 : 1);
	snprintf(user_timeout, sizeof user_timeout, "%ld", (long)ns_to_ms(d->ttl));
	return d->pq->connectStartParams(keywords, values, true);
}

/* libpq's handshake, to its end or ours. */
static void
carry_on(const struct dial *d)
{
	PostgresPollingStatusType state = PGRES_POLLING_WRITING;

	while ((state == PGRES_POLLING_READING || state == PGRES_POLLING_WRITING) && !atomic_load(&d->dropped) &&
	    instant_now() < d->give_up) {
		struct pollfd p = {.fd = d->pq->socket(d->conn),
		    .events = state == PGRES_POLLING_READING ? POLLIN : POLLOUT};

		if (poll(&p, 1, LOOK_MS) > 0)
			state = d->pq->connectPoll(d->conn);
	}
}

static void *
work(void *arg)
{
	struct dial *d = arg;

	d->conn = begin(d);
	if (d->conn) {
		d->pq->setErrorVerbosity(d->conn, PQERRORS_VERBOSE); /* for the SQLSTATE in refusals */
		d->pq->setNoticeReceiver(d->conn, swallow, NULL);
		if (d->pq->status(d->conn) != CONNECTION_BAD)
			carry_on(d);
	}
	eventfd_write(d->done, 1);
	let_go(d);
	return NULL;
}

struct dial *
dial_start(const struct pq *pq, const char *conninfo, int64_t ttl, int64_t patience)
{
	struct dial *d = calloc(1, sizeof *d);
	pthread_attr_t attr;
	pthread_t thread;
	int error;

	if (!d)
		return NULL;
	*d = (struct dial){.pq = pq, .conninfo = strdup(conninfo), .ttl = ttl, .give_up = instant_now() + patience};
	d->done = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	atomic_init(&d->owners, 2);
	pthread_attr_init(&attr);
	pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	error = d->done < 0 || !d->conninfo ? errno : pthread_create(&thread, &attr, work, d);
	pthread_attr_destroy(&attr);
	if (error == 0)
		return d;
	if (d->done >= 0)
		close(d->done);
	free(d->conninfo);
	free(d);
	errno = error;
	return NULL;
}

int
dial_fd(const struct dial *d)
{
	return d->done;
}

PGconn *
dial_take(struct dial *d)
{
	PGconn *conn = d->conn;

	d->conn = NULL;
	return conn;
}

void
dial_drop(struct dial *d)
{
	if (!d)
		return;
	atomic_store(&d->dropped, true);
	let_go(d);
}
