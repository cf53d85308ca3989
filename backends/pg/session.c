/* session.c - see session.h. */
#include "session.h"

#include "connecting.h"
#include "guard.h"

#include "backends/secret.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define RACES (2 * NS_PER_S)          /* so long a transaction may lose races against others */
#define CONNECT_PATIENCE (15 * NS_PER_S) /* for one attempt to connect, whoever waits for it how long */

enum {
	OLDEST_SERVER = 100000, /* PostgreSQL 10 */
};

/* ---- what a server has to say ---- */

/* The first line of what libpq says, without what it says of the place; we say that better. */
static void
first_line(char *out, size_t size, const char *text)
{
	const char *end = strchrnul(text, '\n'), *failed = strstr(text, " failed: ");

	if (strncmp(text, "connection to server", 20) == 0 && failed && failed < end)
		text = failed + 9;
	snprintf(out, size, "%.*s", (int)(end - text), text);
}

/* The first line of what a server says, which may repeat the password that it was told. */
static void
server_line(const struct session *s, char *out, size_t size, const char *text)
{
	first_line(out, size, text);
	if (s->conn)
		secret_blot(out, s->pq->pass(s->conn));
}

/* What looks like a name to libpq, "secret@db1", has the end of a password in it where a '@' in a URL was not encoded. */
static void
hide_password(const struct session *s, char *text)
{
	char *name = strchr(text, '"'), *at = strrchr(text, '@');

	if (!name || at <= name || !strstr(s->conninfo, "://"))
		return;
	name++;
	if (memmem(s->conninfo, strlen(s->conninfo), name, at + 1 - name))
		memmove(name, at, strlen(at) + 1);
}

static bool
is_sqlstate(const char *s)
{
	return strspn(s, "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ") == 5;
}

bool
session_said(const struct session *s, const char *sqlstate)
{
	return strncmp(s->sqlstate, sqlstate, strlen(sqlstate)) == 0;
}

static void
remember_sqlstate(struct session *s, const char *state)
{
	snprintf(s->sqlstate, sizeof s->sqlstate, "%.5s", state && is_sqlstate(state) ? state : "");
}

/* What an SQLSTATE, or the beginning of one, means for a lock. */
static enum rc
rc_of(const struct session *s, const char **hint)
{
	static const struct {
		const char *state;
		enum rc rc;
		const char *hint;
	} rows[] = {
	    {"28", RC_DENIED, "check user, password and pg_hba.conf"},
	    {"42501", RC_DENIED, NULL},
	    {"25006", RC_CONFIG, "this is a standby, or a read-only role; a lock needs the primary"},
	    {"0A000", RC_CONFIG, NULL},
	    {"3D000", RC_CONFIG, NULL},
	    {"3F000", RC_CONFIG, NULL},
	    {"22P05", RC_CONFIG, "the encoding of this database lacks characters of the key or the record"},
	    {"53300", RC_AGAIN, "the server has no room for another connection"},
	    {"53", RC_AGAIN, NULL},
	    {"57", RC_AGAIN, NULL},
	    {"08", RC_AGAIN, NULL},
	    {"55006", RC_AGAIN, NULL},
	    {"55P03", RC_AGAIN, "somebody keeps rows of the schema dlock locked"},
	    {"40", RC_AGAIN, NULL},
	    {"23505", RC_AGAIN, NULL},
	    {"58", RC_AGAIN, NULL},
	};

	*hint = NULL;
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
		if (session_said(s, rows[i].state)) {
			*hint = rows[i].hint;
			return rows[i].rc;
		}
	return RC_PROTOCOL;
}

/* A refusal by PgBouncer has one SQLSTATE for everything, but always the same words. */
static void
understand_pooler(struct session *s, const char *text)
{
	if (session_said(s, "08P01") && strstr(text, "auth"))
		remember_sqlstate(s, "28P01");
	if (session_said(s, "08P01") && strstr(text, "no such database"))
		remember_sqlstate(s, "3D000");
	if (session_said(s, "08P01") && strstr(text, "pooling mode"))
		remember_sqlstate(s, "0A000");
}

static enum rc
say(struct session *s, const char *text, struct fault *f)
{
	const char *hint;
	enum rc rc;

	understand_pooler(s, text);
	rc = rc_of(s, &hint);
	return fault_set(f, rc, "%s says '%.240s' (%s)%s%s", s->where, text, s->sqlstate, hint ? ": " : "",
	    hint ? hint : "");
}

/* The server's error as the outcome of a question. */
static enum rc
server_said(struct session *s, const PGresult *r, struct fault *f)
{
	const char *message = s->pq->resultErrorField(r, PG_DIAG_MESSAGE_PRIMARY);
	char text[256];

	remember_sqlstate(s, s->pq->resultErrorField(r, PG_DIAG_SQLSTATE));
	if (!*s->sqlstate)
		return fault_set(f, RC_AGAIN, "%s closed the connection", s->where);
	server_line(s, text, sizeof text, message ? message : "");
	return say(s, text, f);
}

/* What comes unasked: a warning, or the last words before the server hangs up. */
static void
overhear(void *arg, const PGresult *notice)
{
	struct session *s = arg;
	const char *state = s->pq->resultErrorField(notice, PG_DIAG_SQLSTATE);
	const char *text = s->pq->resultErrorField(notice, PG_DIAG_MESSAGE_PRIMARY);
	const char *function = s->pq->resultErrorField(notice, PG_DIAG_SOURCE_FUNCTION);

	if (function && strcmp(function, "SyncRepWaitForLSN") == 0)
		s->unreplicated = true;
	if (state && text && (strncmp(state, "57P", 3) == 0 || strcmp(state, "25P03") == 0)) {
		remember_sqlstate(s, state);
		server_line(s, s->last_words, sizeof s->last_words, text);
	}
}

/* ---- connecting ---- */

/* A server's name from what was stated or what libpq has used; a slip of the pen may have put a password there. */
static void
name_place(struct session *s, const char *host, const char *port, const char *db)
{
	bool v6 = host && strchr(host, ':');

	if (host && strchr(host, '@'))
		host = strrchr(host, '@') + 1;
	if (db && strchr(db, '@'))
		db = strrchr(db, '@') + 1;
	if (port && port[strspn(port, "0123456789,")])
		port = NULL;
	snprintf(s->where, sizeof s->where, "pg %s%.200s%s%s%.30s%s%.64s", v6 ? "[" : "",
	    host && *host ? host : "local", v6 ? "]" : "", port && *port ? ":" : "",
	    port && *port ? port : "", db && *db ? "/" : "", db && *db ? db : "");
}

static bool
is_about_standby(const char *line)
{
	return strstr(line, "standby mode") || strstr(line, "session is read-only");
}

/*
 * libpq says a line for each host.  Of these one counts that is not about a
 * standby, if there is any: for where a primary may yet be found among the
 * hosts, a standby is no mistake of the user's.
 */
static void
telling_line(char *out, size_t size, const char *text)
{
	const char *next = text;

	do {
		first_line(out, size, next);
		next = strchr(next, '\n');
	} while (next && *++next && is_about_standby(out));
}

/* A failure to connect has its SQLSTATE in its text alone: "FATAL:  28P01: no such user". */
static enum rc
refused(struct session *s, const char *text, struct fault *f)
{
	const char *colon = strstr(text, ":  "), *state = colon ? colon + 3 : "";
	bool stated = is_sqlstate(state) && strncmp(state + 5, ": ", 2) == 0;

	remember_sqlstate(s, stated ? state : NULL);
	if (stated)
		return say(s, state + 7, f);
	if (is_about_standby(text)) {
		if (s->left_a_host)
			return fault_set(f, RC_AGAIN, "%s: no primary answers, only a standby", s->where);
		remember_sqlstate(s, "25006");
		return fault_set(f, RC_CONFIG, "%s: %.240s: a lock needs the primary", s->where, text);
	}
	if (strstr(text, "no password supplied"))
		return fault_set(f, RC_DENIED,
		    "%s asks for a password (the URL, or ~/.pgpass or PGPASSFILE with mode 0600)",
		    s->where);
	return fault_set(f, strstr(text, strerror(EMFILE)) ? RC_SYSTEM : RC_AGAIN,
	    "cannot reach %s: %.240s", s->where, text);
}

/* Is this about the words of the user, and not about a network or a server? */
static bool
is_about_words(const char *text)
{
	return strncmp(text, "invalid ", 8) == 0 || strncmp(text, "could not match", 15) == 0 ||
	       strncmp(text, "service file", 12) == 0;
}

/* "invalid integer value "x" for connection option "port"": what is quoted first may be a password. */
static enum rc
not_taken(const char *text, struct fault *f)
{
	static const char of[] = " for connection option ";
	const char *option = strstr(text, of), *next;
	size_t n = strcspn(text, "\"");

	while (option && (next = strstr(option + 1, of)))
		option = next; /* the value may look like this too */
	while (n > 0 && strchr(" :", text[n - 1]))
		n--;
	return fault_set(f, RC_USAGE, "libpq does not take the URL, or a PG* variable: %.*s%s", (int)n,
	    text, option ? option : "");
}

static enum rc
connect_failed(struct session *s, struct fault *f)
{
	const char *why = s->pq->errorMessage(s->conn);
	char text[256];
	enum rc rc;

	if (s->is_default)
		name_place(s, s->pq->host(s->conn), s->pq->port(s->conn), s->pq->db(s->conn));
	telling_line(text, sizeof text, why);
	secret_blot(text, s->pq->pass(s->conn));
	hide_password(s, text);
	if (s->met_another)
		rc = fault_set(f, RC_PROTOCOL, "%s does not speak PostgreSQL's language: is this a PostgreSQL?", s->where);
	else if (strncmp(why, "definition of service", 21) == 0)
		rc = fault_set(f, RC_USAGE, "%s", text);
	else if (is_about_words(why))
		rc = not_taken(text, f);
	else if (!*text)
		rc = fault_set(f, RC_AGAIN, "%s does not answer", s->where);
	else
		rc = refused(s, text, f);
	session_close(s);
	return rc;
}

/* A connection has come: makes it ours. */
static enum rc
adopt(struct session *s, PGconn *conn, struct fault *f)
{
	if (!conn)
		return fault_set(f, RC_SYSTEM, "out of memory");
	s->conn = conn;
	s->serial++;
	s->trusted = false;
	s->last_words[0] = '\0';
	s->pq->setNoticeReceiver(conn, overhear, s);
	if (s->pq->status(conn) != CONNECTION_OK)
		return connect_failed(s, f);
	name_place(s, s->pq->host(conn), s->pq->port(conn), s->pq->db(conn));
	if (s->pq->serverVersion(conn) < OLDEST_SERVER) {
		session_close(s);
		return fault_set(
		    f, RC_CONFIG, "%s is older than PostgreSQL 10 (and mode=advisory needs 14)", s->where);
	}
	if (s->pq->setnonblocking(conn, 1) == 0)
		return RC_OK;
	session_close(s);
	return fault_set(f, RC_SYSTEM, "out of memory");
}

enum rc
session_connect(struct session *s, instant until, struct fault *f)
{
	PGconn *conn;

	if (s->conn)
		return RC_OK;
	if (!s->connecting)
		s->connecting = connecting_start(s->pq, s->conninfo, s->ttl, CONNECT_PATIENCE);
	if (!s->connecting)
		return fault_set(f, RC_SYSTEM, "cannot start a thread: %s", strerror(errno));
	switch (s->host->wait(s->host, connecting_fd(s->connecting), POLLIN, until)) {
	case WOKE_STOP:
		return RC_STOP;
	case WOKE_TIMEOUT:
		return fault_set(f, RC_AGAIN, "%s does not answer", s->where);
	case WOKE_READY:
		break;
	}
	conn = connecting_take(s->connecting);
	s->met_another = connecting_met_another(s->connecting);
	s->left_a_host = connecting_left_a_host(s->connecting);
	connecting_drop(s->connecting);
	s->connecting = NULL;
	return adopt(s, conn, f);
}

/* ---- asking ---- */

static enum rc
broken(struct session *s, struct fault *f)
{
	session_close(s);
	return fault_set(f, RC_AGAIN, "%s closed the connection%s%s", s->where, *s->last_words ? ": " : "",
	    s->last_words);
}

static enum rc
await(struct session *s, short events, instant until, struct fault *f)
{
	switch (s->host->wait(s->host, s->pq->socket(s->conn), events, until)) {
	case WOKE_READY:
		return RC_OK;
	case WOKE_TIMEOUT:
		return fault_set(f, RC_AGAIN, "%s does not answer", s->where);
	case WOKE_STOP:
		break;
	}
	return RC_STOP;
}

bool
session_is_open(struct session *s)
{
	struct fault ignored;

	if (s->conn && (!s->pq->consumeInput(s->conn) || s->pq->status(s->conn) != CONNECTION_OK))
		broken(s, &ignored);
	else if (s->conn && !s->pending)
		s->pq->isBusy(s->conn); /* lets last words be heard */
	return s->conn != NULL;
}

/* Everything out onto the wire; seldom more than one packet. */
static enum rc
push(struct session *s, instant until, struct fault *f)
{
	int left;
	enum rc rc;

	while ((left = s->pq->flush(s->conn)) > 0) {
		rc = await(s, POLLIN | POLLOUT, until, f);
		if (rc != RC_OK)
			return rc;
		if (!s->pq->consumeInput(s->conn))
			return broken(s, f);
	}
	return left == 0 ? RC_OK : broken(s, f);
}

static bool
send_alone(struct session *s, const struct question *q)
{
	return q->n > 0 ? s->pq->sendQueryParams(s->conn, q->sql, q->n, NULL, q->values, NULL, NULL, 0)
			: s->pq->sendQuery(s->conn, q->sql);
}

/* Both in one packet: if the guard fails, the server skips what follows. */
static bool
send_guarded(struct session *s, const struct question *q)
{
	return s->pq->enterPipelineMode(s->conn) &&
	       s->pq->sendQueryParams(s->conn, guard_first, 0, NULL, NULL, NULL, NULL, 0) &&
	       s->pq->sendQueryParams(s->conn, q->sql, q->n, NULL, q->values, NULL, NULL, 0) &&
	       s->pq->pipelineSync(s->conn);
}

/* Does it call what may be a stranger's? */
static bool
calls_functions(const struct question *q)
{
	return strstr(q->sql, "dlock.") != NULL;
}

enum rc
session_send(struct session *s, const struct question *q, instant until, struct fault *f)
{
	s->sqlstate[0] = '\0';
	s->unreplicated = s->stopped = false;
	s->guarded = !s->trusted && calls_functions(q);
	if (s->guarded ? !send_guarded(s, q) : !send_alone(s, q))
		return broken(s, f);
	s->pending = true;
	return push(s, until, f);
}

/* Of several results the first error counts, or else the last one. */
static void
keep(struct session *s, PGresult *r)
{
	if (s->kept && s->pq->resultStatus(s->kept) == PGRES_FATAL_ERROR) {
		s->pq->clear(r);
		return;
	}
	s->pq->clear(s->kept);
	s->kept = r;
}

/* The guard's answer comes first. */
static void
note_guard(struct session *s, const PGresult *r)
{
	if (s->kept || s->pq->resultStatus(r) != PGRES_FATAL_ERROR)
		return;
	remember_sqlstate(s, s->pq->resultErrorField(r, PG_DIAG_SQLSTATE));
	s->stopped = session_said(s, GUARD_STOPS);
}

/* The end of what was sent together; the connection is as ever again. */
static void
end_guarded(struct session *s, PGresult *r)
{
	s->pq->clear(r);
	s->guarded = false;
	s->trusted = s->pq->exitPipelineMode(s->conn) && !s->stopped;
}

static bool
is_copy(const struct session *s, const PGresult *r)
{
	ExecStatusType status = s->pq->resultStatus(r);

	return status == PGRES_COPY_IN || status == PGRES_COPY_OUT || status == PGRES_COPY_BOTH;
}

/* Reads until the server has said all. */
static enum rc
collect(struct session *s, instant until, struct fault *f)
{
	for (;;) {
		PGresult *r;
		bool endless;
		enum rc rc;

		while (s->pq->isBusy(s->conn)) {
			rc = await(s, POLLIN, until, f);
			if (rc != RC_OK)
				return rc;
			if (!s->pq->consumeInput(s->conn))
				break; /* the reason comes as a result */
			if (instant_now() >= until)
				return fault_set(f, RC_AGAIN, "%s does not come to an end", s->where);
		}
		r = s->pq->getResult(s->conn);
		if (!r && s->guarded && s->pq->status(s->conn) == CONNECTION_OK && instant_now() < until)
			continue; /* between the guard and the question */
		if (!r)
			break;
		if (s->pq->resultStatus(r) == PGRES_PIPELINE_SYNC) {
			end_guarded(s, r);
			break;
		}
		if (s->guarded)
			note_guard(s, r);
		endless = is_copy(s, r);
		keep(s, r);
		if (endless || s->pq->status(s->conn) != CONNECTION_OK)
			break; /* libpq would give the same result for ever */
		if (instant_now() >= until)
			return fault_set(f, RC_AGAIN, "%s does not come to an end", s->where);
	}
	s->pending = false;
	return RC_OK;
}

/* What was asked for: one row of so many fields; or, for none, that it was done. */
static bool
is_as_asked(struct session *s, const PGresult *r, int fields)
{
	ExecStatusType status = s->pq->resultStatus(r);

	if (fields == 0)
		return status == PGRES_COMMAND_OK || status == PGRES_TUPLES_OK;
	return status == PGRES_TUPLES_OK && s->pq->ntuples(r) == 1 && s->pq->nfields(r) == fields;
}

static enum rc
judge(struct session *s, PGresult *r, int fields, PGresult **ret, struct fault *f)
{
	enum rc rc;

	if (!r)
		return broken(s, f);
	if (s->pq->resultStatus(r) == PGRES_FATAL_ERROR) {
		rc = server_said(s, r, f);
		if (s->pq->status(s->conn) != CONNECTION_OK)
			session_close(s);
	} else if (!is_as_asked(s, r, fields)) {
		session_close(s);
		rc = fault_set(
		    f, RC_PROTOCOL, "%s gave an answer that dlock's functions do not give", s->where);
	} else if (ret) {
		*ret = r;
		return RC_OK;
	} else {
		rc = RC_OK;
	}
	s->pq->clear(r);
	return rc;
}

enum rc
session_receive(struct session *s, int fields, instant until, PGresult **ret, struct fault *f)
{
	enum rc rc = collect(s, until, f);
	PGresult *r = s->kept;

	if (rc != RC_OK)
		return rc;
	s->kept = NULL;
	return judge(s, r, fields, ret, f);
}

static enum rc
ask_once(struct session *s, const struct question *q, int fields, instant until, instant *sent,
    PGresult **ret, struct fault *f)
{
	enum rc rc;

	*sent = instant_now();
	rc = session_send(s, q, until, f);
	if (rc == RC_OK)
		rc = session_receive(s, fields, until, ret, f);
	if (s->pending)
		session_close(s);
	return rc;
}

/* The role has more rights than a stranger's function should get: is the schema a stranger's? */
static enum rc
inspect_schema(struct session *s, instant until, struct fault *f)
{
	const struct question q = {guard_last, 0, NULL, NULL, NULL};
	PGresult *r = NULL;
	instant sent;
	bool fine;
	enum rc rc;

	rc = ask_once(s, &q, 1, until, &sent, &r, f);
	if (rc != RC_OK)
		return rc;
	if (s->pq->getisnull(r, 0, 0)) { /* and who asked for one of its functions now might get a stranger's */
		s->pq->clear(r);
		remember_sqlstate(s, "3F000");
		return fault_set(f, RC_CONFIG, "%s: there is no schema dlock", s->where);
	}
	s->trusted = true;
	if (!field_boolean(s, r, 0, &fine))
		rc = fault_set(f, RC_PROTOCOL, "%s gave an answer that makes no sense", s->where);
	else if (!fine)
		rc = fault_set(f, RC_CONFIG,
		    "%s: the schema dlock, or something in it, is neither a superuser's nor this role's, which has "
		    "too many rights to call a stranger's functions: use an ordinary role",
		    s->where);
	s->pq->clear(r);
	if (rc != RC_OK)
		session_close(s);
	return rc;
}

/* What is known without a question. */
static bool
is_surely_powerful(const struct session *s)
{
	const char *super = s->pq->parameterStatus(s->conn, "is_superuser");

	return !s->pq->enterPipelineMode || (super && strcmp(super, "on") == 0);
}

enum rc
session_vet(struct session *s, instant until, struct fault *f)
{
	const struct question q = {guard_first, 0, NULL, NULL, NULL};
	instant sent;
	enum rc rc = session_connect(s, until, f);

	if (rc != RC_OK || s->trusted)
		return rc;
	if (is_surely_powerful(s))
		return inspect_schema(s, until, f);
	rc = ask_once(s, &q, 0, until, &sent, NULL, f);
	s->trusted = rc == RC_OK;
	return session_said(s, GUARD_STOPS) ? inspect_schema(s, until, f) : rc;
}

enum rc
session_ask_here(struct session *s, const struct question *q, int fields, instant until, instant *sent,
    PGresult **ret, struct fault *f)
{
	enum rc rc = RC_OK;

	if (!session_is_open(s))
		return broken(s, f);
	if (q->prepare)
		q->prepare(q->ctx);
	if (!s->trusted && calls_functions(q) && is_surely_powerful(s))
		rc = inspect_schema(s, until, f);
	if (rc == RC_OK)
		rc = ask_once(s, q, fields, until, sent, ret, f);
	if (!s->stopped)
		return rc;
	s->stopped = false;
	rc = inspect_schema(s, until, f);
	return rc == RC_OK ? ask_once(s, q, fields, until, sent, ret, f) : rc;
}

/* Serialization, deadlock; and, where the default isolation is stricter than dlock needs, a slot that it could not see taken. */
static bool
is_lost_race(const struct session *s)
{
	return session_said(s, "40001") || session_said(s, "40P01") || session_said(s, "23505");
}

/* A transaction has lost a race, and changed nothing: a moment, not the same for all, before the next attempt. */
static bool
stopped_after_race(struct session *s)
{
	instant now = instant_now();

	return s->host->wait(s->host, -1, 0, now + 2 * NS_PER_MS + now % (18 * NS_PER_MS)) == WOKE_STOP;
}

/* An answer that a fail-over may undo is none: the same again writes, and waits, again. */
static enum rc
distrust(struct session *s, PGresult **ret, struct fault *f)
{
	if (ret)
		s->pq->clear(*ret);
	return fault_set(f, RC_AGAIN, "%s does not wait for its standby", s->where);
}

enum rc
session_ask(struct session *s, const struct question *q, bool again, int fields, instant until,
    instant *sent, PGresult **ret, struct fault *f)
{
	instant races_end = instant_first(until, instant_now() + RACES);
	bool was_open;
	enum rc rc;

	s->repeated = false;
	for (;;) {
		was_open = session_is_open(s);
		s->sqlstate[0] = '\0';
		s->unreplicated = false;
		rc = session_connect(s, until, f);
		if (rc == RC_OK)
			rc = session_ask_here(s, q, fields, until, sent, ret, f);
		if (rc == RC_OK && again && s->unreplicated)
			rc = distrust(s, ret, f);
		if (rc != RC_AGAIN || !again || instant_now() >= until)
			return rc;
		if (s->unreplicated)
			continue;
		if (is_lost_race(s) && instant_now() < races_end) {
			if (stopped_after_race(s))
				return RC_STOP;
		} else if (was_open && !s->conn && !s->repeated) {
			s->repeated = true; /* the connection was only found broken */
		} else {
			return rc;
		}
	}
}

static enum rc
run(struct session *s, const char *script, instant until, struct fault *f)
{
	enum rc rc;

	if (!s->pq->sendQuery(s->conn, script))
		return broken(s, f);
	s->pending = true;
	rc = push(s, until, f);
	if (rc == RC_OK)
		rc = session_receive(s, 0, until, NULL, f);
	if (s->pending)
		session_close(s);
	return rc;
}

enum rc
session_run(struct session *s, const char *script, instant until, struct fault *f)
{
	enum rc rc = session_connect(s, until, f);

	if (rc != RC_OK)
		return rc;
	s->sqlstate[0] = '\0';
	rc = run(s, script, until, f);
	if (rc != RC_OK && s->conn) { /* it may have stopped within its transaction; the reason stays */
		char state[sizeof s->sqlstate];

		memcpy(state, s->sqlstate, sizeof state);
		(void)run(s, "ROLLBACK", until, &(struct fault){""});
		memcpy(s->sqlstate, state, sizeof state);
	}
	return rc;
}

/* ---- the beginning and the end ---- */

/* What the user has not stated.  In the environment, where a service and the URL overrule it. */
static void
state_defaults(const struct pq *pq)
{
	setenv("PGTARGETSESSIONATTRS", pq->libVersion() >= 140000 ? "primary" : "read-write", false);
	setenv("PGGSSENCMODE", "disable", false);
	setenv("PGAPPNAME", "dlock", false);
}

static const char *
option(const PQconninfoOption *o, const char *keyword)
{
	for (; o->keyword; o++)
		if (strcmp(o->keyword, keyword) == 0)
			return o->val ? o->val : o->envvar ? getenv(o->envvar) : NULL;
	return NULL;
}

enum rc
session_init(struct session *s, struct host *host, const char *conninfo, struct fault *f)
{
	PQconninfoOption *options;
	const char *at;
	enum rc rc;

	*s = (struct session){.host = host, .conninfo = conninfo ? conninfo : ""};
	rc = pq_load(&s->pq, f);
	if (rc != RC_OK)
		return rc;
	state_defaults(s->pq);
	options = s->pq->conninfoParse(s->conninfo, NULL);
	if (!options)
		return fault_set(f, RC_USAGE,
		    "the URL is none that libpq understands: postgresql://user@host:port/database, or "
		    "host=... dbname=...");
	at = option(options, "hostaddr");
	at = at ? at : option(options, "host");
	s->is_default = !at || !*at;
	name_place(s, at, option(options, "port"), option(options, "dbname"));
	s->pq->conninfoFree(options);
	return RC_OK;
}

void
session_close(struct session *s)
{
	if (!s->pq)
		return;
	s->pq->clear(s->kept);
	s->kept = NULL;
	if (s->conn)
		s->pq->finish(s->conn);
	s->conn = NULL;
	s->pending = s->trusted = s->guarded = s->stopped = false;
}

void
session_free(struct session *s)
{
	session_close(s);
	connecting_drop(s->connecting);
	s->connecting = NULL;
}

/* ---- fields ---- */

bool
field_integer(const struct session *s, const PGresult *r, int field, int64_t low, int64_t high, int64_t *ret)
{
	const char *text = s->pq->getvalue(r, 0, field);
	char *end;

	if (s->pq->getisnull(r, 0, field) || !*text ||
	    strlen(text) != (size_t)s->pq->getlength(r, 0, field))
		return false;
	errno = 0;
	*ret = strtoll(text, &end, 10);
	return errno == 0 && *end == '\0' && *ret >= low && *ret <= high;
}

bool
field_boolean(const struct session *s, const PGresult *r, int field, bool *ret)
{
	const char *text = s->pq->getvalue(r, 0, field);

	*ret = strcmp(text, "t") == 0;
	return !s->pq->getisnull(r, 0, field) && (*ret || strcmp(text, "f") == 0);
}

bool
field_text(const struct session *s, const PGresult *r, int field, char *out, size_t size)
{
	size_t n = s->pq->getlength(r, 0, field);

	if (n >= size)
		return false;
	memcpy(out, s->pq->getvalue(r, 0, field), n);
	out[n] = '\0';
	return true;
}
