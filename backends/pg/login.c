/* login.c - connects to PostgreSQL in a thread, of several hosts one after the other. */
#include "login.h"

#include "backends/common/setting.h"
#include "backends/sql/stranger.h"

#include <errno.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* for one of several hosts; no more than a sixth of the lease */
#define SHARE_MAX (2 * NS_PER_S)

static void
login_free(struct task *t)
{
	struct login *l = (struct login *)t;

	if (l->conn)
		l->pq->finish(l->conn);
	explicit_bzero(l->conninfo, strlen(l->conninfo));
	explicit_bzero(l->left, sizeof l->left);
	free(l->conninfo);
	free(l);
}

static void
swallow(void *arg, const PGresult *notice)
{
	(void)arg;
	(void)notice;
}

/*
 * Options that name files.  libpq reads these with each connection, and their values may stand in
 * the URL, in a service or in a variable.
 */
static const char *const file_options[] = {
    "passfile", "sslcert", "sslkey", "sslrootcert", "sslcrl", "sslcrldir"};
enum { FILE_OPTIONS = sizeof file_options / sizeof *file_options };

/* Some values are no files: a key of an engine has a colon, and the system's CAs have a name. */
static bool
is_file(const char *option, const char *value)
{
	return !(strcmp(option, "sslkey") == 0 && strchr(value, ':')) &&
	    !(strcmp(option, "sslrootcert") == 0 && strcmp(value, "system") == 0);
}

/* The values that are relative, made absolute, to be freed; NULL for others. */
static void
find_files(const struct login *l, char *values[FILE_OPTIONS])
{
	PQconninfoOption *all = connection_resolve(l->pq, l->conninfo);

	for (size_t i = 0; i < FILE_OPTIONS; i++) {
		const char *value = all ? connection_option(all, file_options[i]) : NULL;

		if (value && is_file(file_options[i], value))
			values[i] = setting_absolute(value);
	}
	l->pq->conninfoFree(all);
}

/*
 * Begins, with these hosts, or where there are none with those stated.  What stands
 * before the user's words is overruled by them; what stands behind overrules them: keys
 * and records are UTF-8.
 */
static PGconn *
begin_login(const struct login *l, const struct hosts *h)
{
	static const char *const first[] = {"keepalives_idle", "keepalives_interval",
	    "keepalives_count", "tcp_user_timeout", "dbname", "client_encoding", "host",
	    "hostaddr", "port"};
	enum { FIRST = sizeof first / sizeof *first };
	char idle[24], interval[24], user_timeout[24], *files[FILE_OPTIONS] = {NULL};
	const char *keywords[FIRST + FILE_OPTIONS + 1] = {NULL};
	const char *values[FIRST + FILE_OPTIONS + 1] = {idle, interval, "3", user_timeout,
	    l->conninfo, "UTF8", h->host, h->hostaddr, h->port};
	long seconds = (long)(l->ttl / NS_PER_S);
	PGconn *conn;

	snprintf(idle, sizeof idle, "%ld", seconds / 3 > 0 ? seconds / 3 : 1);
	snprintf(interval, sizeof interval, "%ld", seconds / 10 > 0 ? seconds / 10 : 1);
	snprintf(user_timeout, sizeof user_timeout, "%ld", (long)ns_to_ms(l->ttl));
	if (l->elsewhere)
		find_files(l, files);
	memcpy(keywords, first, sizeof first);
	memcpy(keywords + FIRST, file_options, sizeof file_options);
	memcpy(values + FIRST, files, sizeof files);
	conn = l->pq->connectStartParams(keywords, values, true);
	for (size_t i = 0; i < FILE_OPTIONS; i++)
		free(files[i]);
	if (conn) {
		/* for the SQLSTATE in refusals */
		l->pq->setErrorVerbosity(conn, PQERRORS_VERBOSE);
		l->pq->setNoticeReceiver(conn, swallow, NULL);
	}
	return conn;
}

/* So long a host that we have reached may say nothing before it is asked what it is. */
#define SILENCE (500 * NS_PER_MS)

/*
 * A host that we wait for has said nothing yet.  Whoever is overloaded is not asked again:
 * only the first login of a store asks, and not beyond `end`, which is the share of the host.  True:
 * it is none of PostgreSQL.
 */
static bool
is_strange(struct login *l, const PGconn *conn, instant end)
{
	if (!l->elsewhere && l->bounds.read == 0 && l->asked != l->pq->host(conn))
		l->stranger = stranger_ask(
		    &l->task, l->pq->socket(conn), "PostgreSQL", end);
	l->asked = l->pq->host(conn);
	return l->stranger;
}

/*
 * libpq's handshake, until it ends, or nobody waits for it, or one host has had its
 * share, or turns out to be a stranger.
 */
static void
carry_on(struct login *l, PGconn *conn)
{
	PostgresPollingStatusType state = PGRES_POLLING_WRITING;
	const char *host = NULL;
	instant end = 0, doubt = 0;

	while (state == PGRES_POLLING_READING || state == PGRES_POLLING_WRITING) {
		short events = state == PGRES_POLLING_READING ? POLLIN : POLLOUT;

		/* libpq keeps the names, each at its own address */
		if (host != l->pq->host(conn)) {
			host = l->pq->host(conn);
			end = instant_first(instant_now() + l->share, l->give_up);
			doubt = NEVER;
		}
		if (events == POLLIN && doubt == NEVER)
			doubt = instant_now() + SILENCE;
		if (!sql_login_wait(&l->task, l->pq->socket(conn), events, -1,
			doubt ? instant_first(end, doubt) : end)) {
			if (instant_now() >= end || !doubt || is_strange(l, conn, end))
				return;
			doubt = 0; /* it has been asked */
			continue;
		}
		bounds_watch(&l->bounds, l->pq->socket(conn), true);
		state = l->pq->connectPoll(conn);
	}
}

/* ---- standbys ---- */

/* Waits for what the server says to a question; NULL: it did not. */
static PGresult *
wait_for_answer(struct login *l, instant until)
{
	while (l->pq->isBusy(l->conn)) {
		if (!sql_login_wait(
			&l->task, l->pq->socket(l->conn), POLLIN, -1, until) ||
		    !l->pq->consumeInput(l->conn))
			return NULL;
	}
	return l->pq->getResult(l->conn);
}

/*
 * A server before PostgreSQL 14 says it only when asked.  One that does not answer that
 * will not answer more.
 */
static bool
says_to_be_standby(struct login *l)
{
	instant until = instant_first(instant_now() + l->share, l->give_up);
	bool standby = false;
	PGresult *r;

	if (!l->pq->sendQuery(l->conn, "SELECT pg_catalog.pg_is_in_recovery()"))
		return false;
	while ((r = wait_for_answer(l, until))) {
		if (l->pq->resultStatus(r) == PGRES_TUPLES_OK && l->pq->ntuples(r) == 1)
			standby = strcmp(l->pq->getvalue(r, 0, 0), "t") == 0;
		l->pq->clear(r);
	}
	return standby;
}

/*
 * Of the connection as it is, made or failed: where the user has stated
 * target_session_attrs, libpq itself refuses a standby, in words alone; what the
 * server has reported of itself is still there.
 */
static bool
is_standby(struct login *l)
{
	const char *reported = l->pq->parameterStatus(l->conn, "in_hot_standby");

	if (reported)
		return strcmp(reported, "on") == 0;
	return l->pq->status(l->conn) == CONNECTION_OK && says_to_be_standby(l);
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

void
login_words(
    const struct pq *pq, const PGconn *conn, const char *why, char *out, size_t size)
{
	static const char begun[] = " failed: ";
	const char *said = pq->errorMessage(conn);
	size_t n = strlen(said), last = sizeof begun - 1;
	bool begins = n >= last && strcmp(said + n - last, begun) == 0;

	if (pq->status(conn) == CONNECTION_BAD)
		snprintf(out, size, "%s", said);
	else if (begins)
		snprintf(out, size, "%s%s\n", said, why);
	else
		snprintf(out, size, "%sconnection to server at \"%s\", port %s%s%s\n",
		    said, pq->host(conn), pq->port(conn), begun, why);
}

/*
 * Leaves a host that has had its share, or is a standby, for those behind it in the
 * list.
 */
static bool
pass_host(struct login *l, const char *why)
{
	PQconninfoOption *o = l->pq->conninfo(l->conn);
	struct hosts all, left;
	PGconn *next = NULL;
	size_t n;

	if (o) {
		all = (struct hosts){connection_option(o, "host"),
		    connection_option(o, "hostaddr"), connection_option(o, "port")};
		l->hosts = l->hosts > 0 ? l->hosts : hosts_count(&all);
		if (hosts_behind(&all, l->pq->host(l->conn), l->pq->port(l->conn), &left))
			next = begin_login(l, &left);
		l->pq->conninfoFree(o);
	}
	if (!next)
		return false;
	n = strlen(l->left);
	login_words(l->pq, l->conn, why, l->left + n, sizeof l->left - n);
	l->pq->finish(l->conn);
	l->conn = next;
	l->asked = l->stranger = NULL;
	l->give_up += l->share; /* the last one has all its time */
	return true;
}

static bool
is_undecided(const struct login *l)
{
	ConnStatusType status = l->pq->status(l->conn);

	return status != CONNECTION_OK && status != CONNECTION_BAD;
}

static bool
is_wanted_host(const struct login *l)
{
	return !atomic_load(&l->task.dropped) && instant_now() < l->give_up;
}

/*
 * A login has come to its end, well or not.  Goes on to the next host where it was at a
 * standby's.
 */
static bool
leave_standby(struct login *l)
{
	if (!is_standby(l))
		return false;
	l->standbys++;
	if (pass_host(l, "it is a standby"))
		return true;
	l->is_standby = true;
	l->primary_is_away = l->standbys < l->hosts;
	return false;
}

static void
login_work(struct task *t)
{
	struct login *l = (struct login *)t;

	l->conn = begin_login(l, &(struct hosts){NULL, NULL, NULL});
	do {
		while (l->conn && is_undecided(l) && is_wanted_host(l)) {
			carry_on(l, l->conn);
			if (!is_undecided(l) || pass_host(l, LOGIN_SILENT))
				continue;
			if (l->stranger)
				break;
			/* all that is left, for the last one */
			l->share = l->give_up - instant_now();
		}
	} while (l->conn && !is_undecided(l) && is_wanted_host(l) && leave_standby(l));
	bounds_watch(&l->bounds, -1, false);
}

struct login *
login_start(
    const struct pq *pq, const char *conninfo, bool elsewhere, int64_t ttl, int64_t most)
{
	struct login *l = calloc(1, sizeof *l);
	char *copy = strdup(conninfo);

	if (!l || !copy) {
		free(l);
		free(copy);
		return NULL;
	}
	*l = (struct login){
	    .task = {.work = login_work, .free = login_free},
	    .pq = pq,
	    .conninfo = copy,
	    .elsewhere = elsewhere,
	    .ttl = ttl,
	    .share = ttl / 6 < SHARE_MAX ? ttl / 6 : SHARE_MAX,
	    .give_up = instant_now() + most,
	};
	return task_start(&l->task, 0) ? l : NULL;
}
