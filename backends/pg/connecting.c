/*
 * connecting.c - connects to PostgreSQL in a thread, of several hosts one after the
 * other.
 */
#include "connecting.h"

#include "hosts.h"

#include "backends/common/task.h"

#include <errno.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

/* for one of several hosts; no more than a sixth of the lease */
#define SHARE_MAX (2 * NS_PER_S)

enum { LOOK_MS = 100 }; /* so often the thread looks whether anybody still waits */

struct connecting {
	struct task task;
	const struct pq *pq;
	char *conninfo;
	int64_t ttl;
	int64_t share; /* of time, for each host */
	instant give_up;
	PGconn *conn;
	size_t hosts;    /* named by the user, once that matters */
	size_t standbys; /* among them, met until now */
	bool heard;      /* the server being tried has said something */
	struct connecting_end end;
};

static void
connecting_free(struct task *t)
{
	struct connecting *d = (struct connecting *)t;

	if (d->conn)
		d->pq->finish(d->conn);
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
 * Begins, with these hosts, or where there are none with those stated.  What stands
 * before the user's words is overruled by them; what stands behind overrules them: keys
 * and records are UTF-8.
 */
static PGconn *
begin_login(const struct connecting *d, const struct hosts *h)
{
	static const char *const keywords[] = {"keepalives_idle", "keepalives_interval",
	    "keepalives_count", "tcp_user_timeout", "dbname", "client_encoding", "host",
	    "hostaddr", "port", NULL};
	char idle[24], interval[24], user_timeout[24];
	const char *values[] = {idle, interval, "3", user_timeout, d->conninfo, "UTF8",
	    h->host, h->hostaddr, h->port, NULL};
	long seconds = (long)(d->ttl / NS_PER_S);
	PGconn *conn;

	snprintf(idle, sizeof idle, "%ld", seconds / 3 > 0 ? seconds / 3 : 1);
	snprintf(interval, sizeof interval, "%ld", seconds / 10 > 0 ? seconds / 10 : 1);
	snprintf(user_timeout, sizeof user_timeout, "%ld", (long)ns_to_ms(d->ttl));
	conn = d->pq->connectStartParams(keywords, values, true);
	if (conn) {
		/* for the SQLSTATE in refusals */
		d->pq->setErrorVerbosity(conn, PQERRORS_VERBOSE);
		d->pq->setNoticeReceiver(conn, swallow, NULL);
	}
	return conn;
}

/*
 * A look at the first bytes a server says, which libpq goes on to read: one
 * letter to a request for TLS or GSS, and else a message of the protocol.  What
 * libpq has to say of anything else depends on its version.
 */
static void
look_at_first_words(struct connecting *d, PGconn *conn)
{
	ConnStatusType status = d->pq->status(conn);
	bool encryption = status == CONNECTION_SSL_STARTUP ||
	    status == CONNECTION_GSS_STARTUP;
	char words[2];
	ssize_t n;

	if (status == CONNECTION_STARTED || status == CONNECTION_MADE)
		d->heard = false;
	if (d->heard || (!encryption && status != CONNECTION_AWAITING_RESPONSE))
		return;
	n = recv(d->pq->socket(conn), words, sizeof words, MSG_PEEK | MSG_DONTWAIT);
	if (n <= 0)
		return;
	d->heard = true;
	if (!strchr(encryption ? "SNGE" : "REv", words[0]) || !words[0] ||
	    (encryption && words[0] != 'E' && n > 1))
		d->end.met_another = true;
}

/*
 * libpq's handshake, until it ends, or nobody waits for it, or one host has had its
 * share.
 */
static void
carry_on(struct connecting *d, PGconn *conn)
{
	PostgresPollingStatusType state = PGRES_POLLING_WRITING;
	const char *host = NULL;
	instant share = 0;

	while ((state == PGRES_POLLING_READING || state == PGRES_POLLING_WRITING) &&
	    !atomic_load(&d->task.dropped)) {
		struct pollfd p = {.fd = d->pq->socket(conn),
		    .events = state == PGRES_POLLING_READING ? POLLIN : POLLOUT};

		/* libpq keeps the names, each at its own address */
		if (host != d->pq->host(conn)) {
			host = d->pq->host(conn);
			share = instant_now() + d->share;
		}
		if (instant_now() >= share || instant_now() >= d->give_up)
			return;
		if (poll(&p, 1, LOOK_MS) <= 0)
			continue;
		look_at_first_words(d, conn);
		wire_watch(&d->end.wire, d->pq->socket(conn), true);
		state = d->pq->connectPoll(conn);
	}
}

/* ---- standbys ---- */

/* Waits for what the server says to a question; NULL: it did not. */
static PGresult *
wait_for_answer(struct connecting *d, instant until)
{
	while (d->pq->isBusy(d->conn)) {
		struct pollfd p = {.fd = d->pq->socket(d->conn), .events = POLLIN};

		if (atomic_load(&d->task.dropped) || instant_now() >= until)
			return NULL;
		if (poll(&p, 1, LOOK_MS) > 0 && !d->pq->consumeInput(d->conn))
			return NULL;
	}
	return d->pq->getResult(d->conn);
}

/*
 * A server before PostgreSQL 14 says it only when asked.  One that does not answer that
 * will not answer more.
 */
static bool
says_to_be_standby(struct connecting *d)
{
	instant until = instant_first(instant_now() + d->share, d->give_up);
	bool standby = false;
	PGresult *r;

	if (!d->pq->sendQuery(d->conn, "SELECT pg_catalog.pg_is_in_recovery()"))
		return false;
	while ((r = wait_for_answer(d, until))) {
		if (d->pq->resultStatus(r) == PGRES_TUPLES_OK && d->pq->ntuples(r) == 1)
			standby = strcmp(d->pq->getvalue(r, 0, 0), "t") == 0;
		d->pq->clear(r);
	}
	return standby;
}

/*
 * Of the connection as it is, made or failed: where the user has stated
 * target_session_attrs, libpq itself refuses a standby, in words alone; what the
 * server has reported of itself is still there.
 */
static bool
is_standby(struct connecting *d)
{
	const char *reported = d->pq->parameterStatus(d->conn, "in_hot_standby");

	if (reported)
		return strcmp(reported, "on") == 0;
	return d->pq->status(d->conn) == CONNECTION_OK && says_to_be_standby(d);
}

/* ---- several hosts ---- */

static const char *
option(const PQconninfoOption *o, const char *keyword)
{
	for (; o->keyword; o++)
		if (strcmp(o->keyword, keyword) == 0)
			return o->val && *o->val ? o->val : NULL;
	return NULL;
}

static struct hosts
hosts_of(const PQconninfoOption *o)
{
	return (struct hosts){
	    option(o, "host"), option(o, "hostaddr"), option(o, "port")};
}

/*
 * Leaves a host that has had its share, or is a standby, for those behind it in the
 * list.
 */
static bool
pass_host(struct connecting *d)
{
	PQconninfoOption *o = d->pq->conninfo(d->conn);
	struct hosts all, left;
	PGconn *next = NULL;

	if (o) {
		all = hosts_of(o);
		d->hosts = d->hosts > 0 ? d->hosts : hosts_count(&all);
		if (hosts_behind(&all, d->pq->host(d->conn), d->pq->port(d->conn), &left))
			next = begin_login(d, &left);
		d->pq->conninfoFree(o);
	}
	if (!next)
		return false;
	d->pq->finish(d->conn);
	d->conn = next;
	return true;
}

static bool
is_undecided(const struct connecting *d)
{
	ConnStatusType status = d->pq->status(d->conn);

	return status != CONNECTION_OK && status != CONNECTION_BAD;
}

static bool
is_wanted_host(const struct connecting *d)
{
	return !atomic_load(&d->task.dropped) && instant_now() < d->give_up;
}

/*
 * A login has come to its end, well or not.  Goes on to the next host where it was at a
 * standby's.
 */
static bool
leave_standby(struct connecting *d)
{
	if (!is_standby(d))
		return false;
	d->standbys++;
	if (pass_host(d))
		return true;
	d->end.is_standby = true;
	d->end.primary_is_away = d->standbys < d->hosts;
	return false;
}

static void
connecting_work(struct task *t)
{
	struct connecting *d = (struct connecting *)t;

	d->conn = begin_login(d, &(struct hosts){NULL, NULL, NULL});
	do {
		while (d->conn && is_undecided(d) && is_wanted_host(d)) {
			carry_on(d, d->conn);
			if (is_undecided(d) && !pass_host(d))
				/* all that is left, for the last one */
				d->share = d->give_up - instant_now();
		}
	} while (d->conn && !is_undecided(d) && is_wanted_host(d) && leave_standby(d));
	wire_watch(&d->end.wire, -1, false);
}

struct connecting *
connecting_start(const struct pq *pq, const char *conninfo, int64_t ttl, int64_t patience)
{
	struct connecting *d = calloc(1, sizeof *d);
	char *copy = strdup(conninfo);

	if (!d || !copy) {
		free(d);
		free(copy);
		return NULL;
	}
	*d = (struct connecting){
	    .task = {.work = connecting_work, .free = connecting_free},
	    .pq = pq,
	    .conninfo = copy,
	    .ttl = ttl,
	    .share = ttl / 6 < SHARE_MAX ? ttl / 6 : SHARE_MAX,
	    .give_up = instant_now() + patience,
	};
	return task_start(&d->task, 0) ? d : NULL;
}

int
connecting_fd(const struct connecting *d)
{
	return d->task.done;
}

PGconn *
connecting_take(struct connecting *d, struct connecting_end *end)
{
	PGconn *conn = d->conn;

	*end = d->end;
	d->conn = NULL;
	return conn;
}

void
connecting_drop(struct connecting *d)
{
	task_drop(d ? &d->task : NULL);
}
