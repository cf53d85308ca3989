/* login.c - connects to PostgreSQL in a thread, of several hosts one after the other. */
#include "login.h"

#include "backends/common/task.h"

#include <errno.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* for one of several hosts; no more than a sixth of the lease */
#define SHARE_MAX (2 * NS_PER_S)

enum { LOOK_MS = 100 }; /* so often the thread looks whether anybody still waits */

struct login {
	struct task task;
	const struct pq *pq;
	char *conninfo;
	int64_t ttl;
	int64_t share; /* of time, for each host */
	instant give_up;
	PGconn *conn;
	size_t hosts;    /* named by the user, once that matters */
	size_t standbys; /* among them, met until now */
	struct login_end end;
};

static void
login_free(struct task *t)
{
	struct login *d = (struct login *)t;

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
begin_login(const struct login *d, const struct hosts *h)
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
 * libpq's handshake, until it ends, or nobody waits for it, or one host has had its
 * share.
 */
static void
carry_on(struct login *d, PGconn *conn)
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
		bounds_watch(&d->end.bounds, d->pq->socket(conn), true);
		state = d->pq->connectPoll(conn);
	}
}

/* ---- standbys ---- */

/* Waits for what the server says to a question; NULL: it did not. */
static PGresult *
wait_for_answer(struct login *d, instant until)
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
says_to_be_standby(struct login *d)
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
is_standby(struct login *d)
{
	const char *reported = d->pq->parameterStatus(d->conn, "in_hot_standby");

	if (reported)
		return strcmp(reported, "on") == 0;
	return d->pq->status(d->conn) == CONNECTION_OK && says_to_be_standby(d);
}

/* ---- several hosts ---- */

/*
 * Element n of a list with commas, and what comes behind it; one element stands for all.
 */
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

static const char *
names_of(const struct hosts *h)
{
	return h->host ? h->host : h->hostaddr;
}

size_t
hosts_count(const struct hosts *h)
{
	size_t n = 1;

	for (const char *p = names_of(h); p && (p = strchr(p, ',')); p++)
		n++;
	return n;
}

bool
hosts_behind(
    const struct hosts *h, const char *host, const char *port, struct hosts *behind)
{
	const char *rest = names_of(h);
	size_t length;

	for (size_t n = 0; rest; n++) {
		element(names_of(h), n, &length, &rest);
		if (!rest)
			return false;
		if (!is_element(names_of(h), n, host) || !is_element(h->port, n, port))
			continue;
		element(h->host, n, &length, &behind->host);
		element(h->hostaddr, n, &length, &behind->hostaddr);
		element(h->port, n, &length, &behind->port);
		return true;
	}
	return false;
}

static const char *
option(const PQconninfoOption *o, const char *keyword)
{
	for (; o->keyword; o++)
		if (strcmp(o->keyword, keyword) == 0)
			return o->val && *o->val ? o->val : NULL;
	return NULL;
}

/*
 * Leaves a host that has had its share, or is a standby, for those behind it in the
 * list.
 */
static bool
pass_host(struct login *d)
{
	PQconninfoOption *o = d->pq->conninfo(d->conn);
	struct hosts all, left;
	PGconn *next = NULL;

	if (o) {
		all = (struct hosts){
		    option(o, "host"), option(o, "hostaddr"), option(o, "port")};
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
is_undecided(const struct login *d)
{
	ConnStatusType status = d->pq->status(d->conn);

	return status != CONNECTION_OK && status != CONNECTION_BAD;
}

static bool
is_wanted_host(const struct login *d)
{
	return !atomic_load(&d->task.dropped) && instant_now() < d->give_up;
}

/*
 * A login has come to its end, well or not.  Goes on to the next host where it was at a
 * standby's.
 */
static bool
leave_standby(struct login *d)
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
login_work(struct task *t)
{
	struct login *d = (struct login *)t;

	d->conn = begin_login(d, &(struct hosts){NULL, NULL, NULL});
	do {
		while (d->conn && is_undecided(d) && is_wanted_host(d)) {
			carry_on(d, d->conn);
			if (is_undecided(d) && !pass_host(d))
				/* all that is left, for the last one */
				d->share = d->give_up - instant_now();
		}
	} while (d->conn && !is_undecided(d) && is_wanted_host(d) && leave_standby(d));
	bounds_watch(&d->end.bounds, -1, false);
}

struct login *
login_start(const struct pq *pq, const char *conninfo, int64_t ttl, int64_t patience)
{
	struct login *d = calloc(1, sizeof *d);
	char *copy = strdup(conninfo);

	if (!d || !copy) {
		free(d);
		free(copy);
		return NULL;
	}
	*d = (struct login){
	    .task = {.work = login_work, .free = login_free},
	    .pq = pq,
	    .conninfo = copy,
	    .ttl = ttl,
	    .share = ttl / 6 < SHARE_MAX ? ttl / 6 : SHARE_MAX,
	    .give_up = instant_now() + patience,
	};
	return task_start(&d->task, 0) ? d : NULL;
}

int
login_fd(const struct login *d)
{
	return d->task.done;
}

PGconn *
login_take(struct login *d, struct login_end *end)
{
	PGconn *conn = d->conn;

	*end = d->end;
	d->conn = NULL;
	return conn;
}

void
login_drop(struct login *d)
{
	task_drop(d ? &d->task : NULL);
}
