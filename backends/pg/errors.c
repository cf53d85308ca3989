/*
 * errors.c - reads errors, notices and libpq's words, and keeps passwords out of what is
 * quoted.
 */
#include "errors.h"

#include "login.h"

#include "backends/common/secret.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* ---- what may be quoted ---- */

/* What stands in a line behind these words; NULL: they are not there. */
static char *
behind(const char *line, const char *words)
{
	char *at = strstr(line, words);

	return at ? at + strlen(words) : NULL;
}

/* The first line of what a server or libpq says.  It may repeat the password that it was told. */
static void
first_line(const struct connection *c, char *out, size_t size, const char *text)
{
	snprintf(out, size, "%.*s", (int)strcspn(text, "\n"), text);
	if (c->pgconn)
		secret_blot(out, c->pq->pass(c->pgconn));
}

/*
 * What looks like a name to libpq, "secret@db1", has the end of a password in it where a
 * '@' in a URL was not encoded.
 */
static void
hide_password(const struct connection *c, char *text)
{
	char *name = strchr(text, '"'), *at = strrchr(text, '@');

	if (!name || at <= name || !strstr(c->conninfo, "://"))
		return;
	name++;
	if (memmem(c->conninfo, strlen(c->conninfo), name, at + 1 - name))
		memmove(name, at, strlen(at) + 1);
}

/* ---- SQLSTATEs ---- */

static bool
is_sqlstate(const char *s)
{
	return strspn(s, "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ") == 5;
}

void
error_set(struct sql *db, const char *state)
{
	snprintf(db->error, sizeof db->error, "%.5s",
	    state && is_sqlstate(state) ? state : "");
}

const char *const error_failures[SQL_FAILURES] = {
    /*
     * serialization, deadlock; and, where the default isolation is stricter than dlock needs,
     * a slot that it could not see taken
     */
    [SQL_LOST_RACE] = "40001 40P01 23505",
    [SQL_NO_TABLE] = "3F000 42P01",
    [SQL_NO_PROCEDURE] = NO_FUNCTION,
    [SQL_NO_RIGHT] = "42501",
    [SQL_INTERRUPTED] = CANCELLED,
    [SQL_READ_ONLY] = READ_ONLY,
};

const struct sql_meaning error_meanings[] = {
    {RC_DENIED, "28", "check user, password and pg_hba.conf"},
    {RC_DENIED, "42501", NULL},
    {RC_CONFIG, READ_ONLY,
	"this is a standby, or a read-only role; a lock needs the primary"},
    {RC_CONFIG, "0A000 0P 3D000 3F000 55P02 F0", NULL},
    {RC_CONFIG, "22P05",
	"the encoding of this database lacks characters of the key or the record"},
    {RC_CONFIG, "54001", "raise its max_stack_depth"},
    {RC_CONFIG, "HV", "dlock's tables must not be foreign ones"},
    {RC_CONFIG, "P0", "a trigger or a rule of this database refuses it"},
    {RC_CONFIG, "XX001 XX002", "its data is damaged"},
    {RC_AGAIN, "53300", "the server has no room for another connection"},
    {RC_AGAIN, LOCK_TIMEOUT, "somebody keeps rows of the schema dlock locked"},
    {RC_AGAIN, NO_FUNCTION,
	"somebody has dropped dlock's functions: dlock help pg-schema | psql DATABASE"},
    {RC_AGAIN, "23505 42P05", NULL},
    {RC_PROTOCOL, "42601 42704", "it does not understand dlock's SQL"},
    {RC_CONFIG, "21 22 23 42 44",
	"dlock's tables and functions are not as it has made them (dlock help pg-schema)"},
    /*
     * what passes: no connection, a lost race, no room on a disk or below a limit (54000:
     * before a wraparound), an end of the server; and what nobody has foreseen
     */
    {RC_AGAIN, "", NULL},
};

/*
 * PgBouncer refuses whatever it refuses with this one SQLSTATE.  So its words must tell which
 * refusal this is; they are always the same.
 */
static const struct {
	const char *words, *state;
} of_pgbouncer[] = {
    {"no such database", "3D000"}, /* first: its name follows, which may be "auth" */
    {"auth", "28P01"},
    {"pooling mode", "0A000"},
};

static enum rc
quote(struct connection *c, const char *text, struct fault *f)
{
	const size_t n = sizeof of_pgbouncer / sizeof *of_pgbouncer;

	for (size_t i = 0; i < n && sql_error_is(c->db, "08P01"); i++)
		if (strstr(text, of_pgbouncer[i].words))
			error_set(c->db, of_pgbouncer[i].state);
	return sql_refused(c->db, text, f);
}

enum rc
error_of_result(struct connection *c, const PGresult *r, struct fault *f)
{
	const char *message = c->pq->resultErrorField(r, PG_DIAG_MESSAGE_PRIMARY);
	char text[256];

	error_set(c->db, c->pq->resultErrorField(r, PG_DIAG_SQLSTATE));
	if (!*c->db->error)
		return fault_set(f, RC_AGAIN, "%s closed the connection", c->db->where);
	first_line(c, text, sizeof text, message ? message : "");
	return quote(c, text, f);
}

void
error_notice(void *arg, const PGresult *notice)
{
	struct connection *c = arg;
	const char *state = c->pq->resultErrorField(notice, PG_DIAG_SQLSTATE);
	const char *text = c->pq->resultErrorField(notice, PG_DIAG_MESSAGE_PRIMARY);
	const char *function = c->pq->resultErrorField(notice, PG_DIAG_SOURCE_FUNCTION);

	/* somebody has cancelled the wait for a standby */
	if (function && strcmp(function, "SyncRepWaitForLSN") == 0)
		c->db->unreplicated = true;
	if (state && text &&
	    (strncmp(state, "57P", 3) == 0 || strcmp(state, "25P03") == 0)) {
		error_set(c->db, state);
		first_line(c, c->db->last_words, sizeof c->db->last_words, text);
	}
}

/* ---- why there is no connection ---- */

/*
 * "invalid integer value "x" for connection option "port"": what is quoted first may be
 * a password.
 */
static enum rc
not_taken(const char *text, struct fault *f)
{
	static const char of[] = " for connection option ";
	const char *option = NULL, *rest = text;
	size_t n = strcspn(text, "\"");

	while ((rest = behind(rest, of)))
		option = rest; /* the value may look like this too */
	while (n > 0 && strchr(" :", text[n - 1]))
		n--;
	return fault_set(f, RC_USAGE,
	    "libpq does not take the URL, or a PG* variable: %.*s%s%s", (int)n, text,
	    option ? of : "", option ? option : "");
}

/* EMFILE or ENFILE: this process, or the machine, has no descriptor left for a socket. */
static int
find_descriptor_error(const struct connection *c)
{
	int copy = fcntl(c->pq->socket(c->pgconn), F_DUPFD_CLOEXEC, 0);

	if (copy < 0 && errno == EBADF)
		copy = open("/", O_RDONLY | O_CLOEXEC);
	if (copy >= 0)
		close(copy);
	return copy < 0 && (errno == EMFILE || errno == ENFILE) ? errno : 0;
}

static enum rc
unreached(struct connection *c, const char *text, struct fault *f)
{
	int number = find_descriptor_error(c);

	if (!*text && !number)
		return fault_set(f, RC_AGAIN, "%s does not answer", c->db->where);
	if (c->pq->connectionNeedsPassword(c->pgconn))
		return fault_set(f, RC_DENIED,
		    "%s asks for a password (the URL, or ~/.pgpass or PGPASSFILE with mode 0600)",
		    c->db->where);
	/* libpq 17 says nothing of a socket that it could not open */
	return fault_set(f, number ? RC_SYSTEM : RC_AGAIN, "cannot reach %s: %.240s",
	    c->db->where, *text ? text : strerror(number));
}

enum { STATE_BYTES = sizeof "28P01: " - 1 };

/* "FATAL:  28P01: no such user": where its text begins; else all of it. */
static char *
behind_state(char *reason)
{
	char *state = behind(reason, ":  ");

	return state && is_sqlstate(state) && strncmp(state + 5, ": ", 2) == 0 ? state + 7
									       : reason;
}

/*
 * Libpq's words about a failed connection are about a service file, another word of the
 * user's, a server's refusal, or how to reach one.  Libpq has no code for the first two,
 * and hands out no result in which the SQLSTATE of a refusal would be a field, but writes
 * it into its text ("FATAL:  28P01: no such user").  So this reads them: nothing else does.
 */
static enum rc
error_of_first(struct connection *c, struct fault *f)
{
	static const char *const of_settings[] = {
	    "invalid ", "could not match", "service file"};
	char why[512], *text = NULL, *refusal;

	first_line(c, why, sizeof why, c->pq->errorMessage(c->pgconn));
	/* what it says of the server, we say better */
	if (strncmp(why, "connection to server", 20) == 0)
		text = behind(why, " failed: ");
	if (!text)
		text = why;
	hide_password(c, text);
	error_set(c->db, NULL);
	if (c->bounds.foreign)
		return fault_set(f, RC_PROTOCOL,
		    "%s does not answer as PostgreSQL does: is this a PostgreSQL?",
		    c->db->where);
	if (c->stranger)
		return fault_set(f, RC_PROTOCOL,
		    "%s is no PostgreSQL: %s answers there (check the port)",
		    c->db->where, c->stranger);
	if (strncmp(why, "definition of service", 21) == 0)
		return fault_set(f, RC_USAGE, "%s", text);
	for (size_t i = 0; i < sizeof of_settings / sizeof *of_settings; i++)
		if (strncmp(why, of_settings[i], strlen(of_settings[i])) == 0)
			return not_taken(text, f);
	refusal = behind_state(text);
	if (refusal == text)
		return unreached(c, text, f);
	error_set(c->db, refusal - STATE_BYTES);
	return quote(c, refusal, f);
}

/*
 * One line of libpq's, whose end is cut off: the host that it is about as "h:5432", and what is
 * wrong there.  False: it is about none.
 */
static bool
read_host(char *line, char *host, size_t size, char **reason)
{
	char *name = behind(line, "connection to server at \""),
	     *port = behind(line, ", port ");
	bool v6;

	*reason = behind(line, " failed: ");
	if (!name) {
		name = behind(line, "could not translate host name \"");
		port = NULL;
		*reason = behind(line, " to address: ");
	}
	if (!name || !*reason)
		return false;
	v6 = memchr(name, ':', strcspn(name, "\""));
	snprintf(host, size, "%s%.*s%s%s%.*s", v6 ? "[" : "", (int)strcspn(name, "\""),
	    name, v6 ? "]" : "", port ? ":" : "",
	    port ? (int)strspn(port, "0123456789") : 0, port ? port : "");
	*reason = behind_state(*reason);
	return true;
}

/* "Connection refused (h1:5432), no answer (h2:5432)".  False: it is the same everywhere. */
static bool
tell_each(const struct connection *c, const char *said, char *out, size_t size)
{
	char line[512], first[256] = "", host[300], *reason;
	bool differ = false;

	for (size_t used = 0; *said; said += strcspn(said, "\n"), said += *said != '\0') {
		first_line(c, line, sizeof line, said);
		hide_password(c, line);
		if (!read_host(line, host, sizeof host, &reason))
			continue;
		if (used < size)
			used += snprintf(out + used, size - used, "%s%s (%s)",
			    used ? ", " : "", reason, host);
		differ = differ ||
		    (*first && strncmp(first, reason, sizeof first - 1) != 0);
		snprintf(first, sizeof first, "%s", reason);
	}
	return differ;
}

/* Of several hosts each is told of, unless all have failed alike: the first hides no other. */
enum rc
error_of_login(struct connection *c, const char *left, struct fault *f)
{
	enum rc rc = error_of_first(c, f);
	char said[4096], each[420];
	int n = snprintf(said, sizeof said, "%s", left); /* of struct login: it fits */

	login_words(c->pq, c->pgconn, LOGIN_SILENT, said + n, sizeof said - n);
	if (rc == RC_AGAIN && tell_each(c, said, each, sizeof each))
		fault_set(f, rc, "cannot reach %s: %s", c->db->where, each);
	explicit_bzero(said, sizeof said);
	return rc;
}
