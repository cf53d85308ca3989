/* connecting.c - connects to PostgreSQL in a thread, of several hosts one after the other. */
#include "connecting.h"

#include "backends/task.h"

#include <errno.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#define SHARE_MAX (2 * NS_PER_S) /* for one of several hosts; no more than a sixth of the lease */

enum { LOOK_MS = 100 }; /* so often the thread looks whether anybody still waits */

struct connecting {
	struct task task;
	const struct pq *pq;
	char *conninfo;
	int64_t ttl;
	int64_t share; /* of time, for each host */
	instant give_up;
	PGconn *conn;
	bool heard;	   /* the server being tried has said something */
	bool met_another;  /* than a PostgreSQL */
	bool left_a_host;
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

/* Which hosts are meant, as libpq writes it: lists with commas; NULL: as the user has stated. */
struct hosts {
	const char *host, *hostaddr, *port;
};

/*
 * Begins.  What stands before the user's words is overruled by them; what
 * stands behind overrules them: keys and records are UTF-8.
 */
static PGconn *
begin(const struct connecting *d, const struct hosts *h)
{
	static const char *const keywords[] = {"keepalives_idle", "keepalives_interval", "keepalives_count",
	    "tcp_user_timeout", "dbname", "client_encoding", "host", "hostaddr", "port", NULL};
	char idle[24], interval[24], user_timeout[24];
	const char *values[] = {
	    idle, interval, "3", user_timeout, d->conninfo, "UTF8", h->host, h->hostaddr, h->port, NULL};
	long seconds = (long)(d->ttl / NS_PER_S);
	PGconn *conn;

	snprintf(idle, sizeof idle, "%ld", seconds / 3 > 0 ? seconds / 3 : 1);
	snprintf(interval, sizeof interval, "%ld", seconds / 10 > 0 ? seconds / 10 : 1);
	snprintf(user_timeout, sizeof user_timeout, "%ld", (long)ns_to_ms(d->ttl));
	conn = d->pq->connectStartParams(keywords, values, true);
	if (conn) {
		d->pq->setErrorVerbosity(conn, PQERRORS_VERBOSE); /* for the SQLSTATE in refusals */
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
	bool encryption = status == CONNECTION_SSL_STARTUP || status == CONNECTION_GSS_STARTUP;
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
	if (!strchr(encryption ? "SNGE" : "REv", words[0]) || !words[0] || (encryption && words[0] != 'E' && n > 1))
		d->met_another = true;
}

/* libpq's handshake, until it ends, or nobody waits for it, or one host has had its share. */
static void
carry_on(struct connecting *d, PGconn *conn)
{
	PostgresPollingStatusType state = PGRES_POLLING_WRITING;
	const char *host = NULL;
	instant share = 0;

	while ((state == PGRES_POLLING_READING || state == PGRES_POLLING_WRITING) &&
	       !atomic_load(&d->task.dropped)) {
		struct pollfd p = {
		    .fd = d->pq->socket(conn), .events = state == PGRES_POLLING_READING ? POLLIN : POLLOUT};

		if (host != d->pq->host(conn)) { /* libpq keeps the names, each at its own address */
			host = d->pq->host(conn);
			share = instant_now() + d->share;
		}
		if (instant_now() >= share || instant_now() >= d->give_up)
			return;
		if (poll(&p, 1, LOOK_MS) <= 0)
			continue;
		look_at_first_words(d, conn);
		state = d->pq->connectPoll(conn);
	}
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

/* Element n of a list with commas, and what comes behind it; one element stands for all. */
static const char *
element(const char *list, size_t n, size_t *length, const char **rest)
{
	while (list && n > 0 && strchr(list, ',')) {
		list = strchr(list, ',') + 1;
		n--;
	}
	*length = list ? strcspn(list, ",") : 0;
	*rest = list && list[*length] == ',' ? list + *length + 1 : NULL;
	return list;
}

static bool
is_element(const char *list, size_t n, const char *name)
{
	size_t length;
	const char *rest, *at = element(list, n, &length, &rest);

	return length == 0 || (strlen(name) == length && memcmp(at, name, length) == 0);
}

/* The hosts behind the one that is being tried; the result's members point into o.  False: it is the last. */
static bool
hosts_left(const struct connecting *d, const PGconn *conn, const PQconninfoOption *o, struct hosts *left)
{
	const char *host = option(o, "host"), *hostaddr = option(o, "hostaddr"), *port = option(o, "port");
	const char *names = host ? host : hostaddr, *rest = names;
	size_t length;

	for (size_t n = 0; rest; n++) {
		element(names, n, &length, &rest);
		if (!rest)
			return false;
		if (!is_element(names, n, d->pq->host(conn)) || !is_element(port, n, d->pq->port(conn)))
			continue;
		element(host, n, &length, &left->host);
		element(hostaddr, n, &length, &left->hostaddr);
		element(port, n, &length, &left->port);
		return true;
	}
	return false;
}

/* Leaves a host that has had its share, for those behind it in the list. */
static bool
pass_on(struct connecting *d)
{
	PQconninfoOption *o = d->pq->conninfo(d->conn);
	struct hosts left;
	PGconn *next = NULL;

	if (o && hosts_left(d, d->conn, o, &left))
		next = begin(d, &left);
	if (o)
		d->pq->conninfoFree(o);
	if (!next)
		return false;
	d->pq->finish(d->conn);
	d->conn = next;
	d->left_a_host = true;
	return true;
}

static bool
is_undecided(const struct connecting *d)
{
	ConnStatusType status = d->pq->status(d->conn);

	return status != CONNECTION_OK && status != CONNECTION_BAD;
}

static void
connecting_work(struct task *t)
{
	struct connecting *d = (struct connecting *)t;

	d->conn = begin(d, &(struct hosts){NULL, NULL, NULL});
	while (d->conn && is_undecided(d) && !atomic_load(&d->task.dropped) && instant_now() < d->give_up) {
		carry_on(d, d->conn);
		if (is_undecided(d) && !pass_on(d))
			d->share = d->give_up - instant_now(); /* all that is left, for the last one */
	}
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
connecting_take(struct connecting *d)
{
	PGconn *conn = d->conn;

	d->conn = NULL;
	return conn;
}

bool
connecting_met_another(const struct connecting *d)
{
	return d->met_another;
}

bool
connecting_left_a_host(const struct connecting *d)
{
	return d->left_a_host;
}

void
connecting_drop(struct connecting *d)
{
	task_drop(d ? &d->task : NULL);
}
