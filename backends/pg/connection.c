/* connection.c - opens, names and closes a connection to a PostgreSQL server; finds libpq. */
#include "errors.h"
#include "login.h"

#include "backends/common/dl.h"
#include "backends/common/setting.h"
#include "backends/common/identity.h"
#include "backends/common/url.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
	OLDEST_SERVER = 100000, /* PostgreSQL 10 */
};

/* ---- libpq ---- */

static struct pq functions;

static const struct dl_symbol symbols[] = {
#define X(name) {"PQ" #name, false, offsetof(struct pq, name)},
    PQ_FUNCTIONS(X)
#undef X
#define X(name) {"PQ" #name, true, offsetof(struct pq, name)},
	PQ_PIPELINE_FUNCTIONS(X)
#undef X
};

const struct dl_library libpq_library = {"libpq", "libpq.so.5", "libpq5", &functions,
    symbols, sizeof symbols / sizeof *symbols};

/* ---- what is stated ---- */

const char *
connection_option(const PQconninfoOption *o, const char *keyword)
{
	const char *value = NULL;

	for (; o->keyword; o++)
		if (strcmp(o->keyword, keyword) == 0)
			value = o->val ? o->val : o->envvar ? getenv(o->envvar) : NULL;
	return value && *value ? value : NULL;
}

/*
 * Names the server by what was stated or what libpq has used; a slip of the pen may have
 * put a password there.
 */
static void
name_server(struct connection *c, const char *host, const char *port, const char *db)
{
	bool v6 = host && strchr(host, ':');

	if (host && strchr(host, '@'))
		host = strrchr(host, '@') + 1;
	if (db && strchr(db, '@'))
		db = strrchr(db, '@') + 1;
	if (port && port[strspn(port, "0123456789,")])
		port = NULL;
	snprintf(c->db->where, sizeof c->db->where, "pg %s%.200s%s%s%.30s%s%.64s",
	    v6 ? "[" : "", host && *host ? host : "local", v6 ? "]" : "",
	    port && *port ? ":" : "", port && *port ? port : "", db && *db ? "/" : "",
	    db && *db ? db : "");
}

/* What names files, and is no option of a connection; the options are login.c's. */
static const char *const file_variables[] = {"PGSERVICEFILE", "PGSYSCONFDIR", "HOME",
    "KRB5_CONFIG", "KRB5CCNAME", "SSL_CERT_FILE", "SSL_CERT_DIR", NULL};

enum rc
connection_init(
    struct connection *c, struct sql *db, const char *conninfo, struct fault *f)
{
	PQconninfoOption *options;
	struct url u = {.path = {NULL, 0}};
	const char *at;
	enum rc rc;

	*c = (struct connection){.db = db, .conninfo = conninfo ? conninfo : ""};
	if (strstr(c->conninfo, "://"))
		(void)url_cut(&u, c->conninfo); /* libpq knows what is wrong with it */
	if (url_hides_login(&u))
		return fault_set(f, RC_USAGE, "the postgresql URL %s", URL_HIDES_LOGIN);
	rc = dl_load(&libpq_library, f);
	if (rc != RC_OK)
		return rc;
	c->pq = &functions;
	/*
	 * What the user has not stated: in the environment, where a service and the URL
	 * overrule it.
	 */
	setting_keep_directory(file_variables);
	setenv("PGGSSENCMODE", "disable", false);
	setenv("PGAPPNAME", "dlock", false);
	options = c->pq->conninfoParse(c->conninfo, NULL);
	if (!options)
		return fault_set(f, RC_USAGE,
		    "libpq does not understand the URL: say postgresql://user@host:port/database, or "
		    "host=... dbname=...");
	at = connection_option(options, "hostaddr");
	at = at ? at : connection_option(options, "host");
	c->is_default = !at;
	name_server(c, at, connection_option(options, "port"),
	    connection_option(options, "dbname"));
	c->pq->conninfoFree(options);
	return RC_OK;
}

/* ---- which locks its are ---- */

/*
 * What a host that libpq has resolved leads to here: a directory of sockets, where it begins
 * with a slash.  NULL or "": the usual ones.
 */
static void
identify_way(struct identity *id, const char *hosts, const char *ports)
{
	static const char usual[] = "/run/postgresql,/tmp";
	const char *host = hosts && *hosts ? hosts : usual;
	char path[512];

	for (size_t n; *host; host += n + (host[n] == ',')) {
		n = strcspn(host, ",");
		if (*host != '/')
			continue;
		snprintf(path, sizeof path, "%.*s", (int)n, host);
		identity_file(id, path);
		snprintf(path, sizeof path, "%.*s/.s.PGSQL.%.*s", (int)n, host,
		    (int)strcspn(ports, ","), ports);
		identity_file(id, path);
	}
	if (hosts && *hosts != '/')
		identity_hosts(id, hosts);
}

/*
 * libpq resolves all that it would go by (the words, a service, its variables, defaults)
 * before it looks at sslmode; with one that there is not it stops there, and connects to
 * nobody.
 */
PQconninfoOption *
connection_resolve(const struct pq *pq, const char *conninfo)
{
	static const char *const keywords[] = {"dbname", "sslmode", NULL};
	const char *const values[] = {conninfo, "connects-to-nobody", NULL};
	PGconn *conn = pq->connectStartParams(keywords, values, true);
	PQconninfoOption *options = conn ? pq->conninfo(conn) : NULL;

	pq->finish(conn);
	return options;
}

enum rc
connection_identify(const struct connection *c, struct identity *id, struct fault *f)
{
	static const char *const parts[] = {
	    "host", "hostaddr", "port", "dbname", "user", NULL};
	PQconninfoOption *options = c->pgconn ? c->pq->conninfo(c->pgconn)
					      : connection_resolve(c->pq, c->conninfo);
	const char *host = NULL, *port = "5432";
	bool found = false;

	for (const PQconninfoOption *o = options; o && o->keyword; o++)
		for (size_t i = 0; parts[i]; i++)
			if (strcmp(o->keyword, parts[i]) == 0) {
				found = found || (o->val && i == 4);
				identity_add(id, parts[i], o->val);
				host = i == 0 ? o->val : host;
				port = i == 2 && o->val ? o->val : port;
			}
	identify_way(id, host, port);
	c->pq->conninfoFree(options);
	return found
	    ? RC_OK
	    : fault_set(f, RC_CONFIG, "%s: libpq does not tell to whom it would connect",
		  c->db->where);
}

/* ---- the login ---- */

/*
 * The server that was reached is a standby.  Where a primary may yet be found among
 * the hosts, that is no mistake of the user's.
 */
static enum rc
refuse_standby(struct connection *c, bool primary_is_away, struct fault *f)
{
	if (primary_is_away)
		return fault_set(
		    f, RC_AGAIN, "%s: no primary answers, only a standby", c->db->where);
	error_set(c->db, READ_ONLY); /* as it would have said itself at the first write */
	return fault_set(
	    f, RC_CONFIG, "%s is a standby: a lock needs the primary", c->db->where);
}

struct task *
connection_login(struct sql *db)
{
	const struct connection *c = &pg_of(db)->conn;
	struct login *l = login_start(
	    c->pq, c->conninfo, db->serial > 0, db->ttl, sql_login_most(db));

	return l ? &l->task : NULL;
}

/* A connection has come, or has failed: makes it ours. */
enum rc
connection_adopt(struct sql *db, struct task *t, instant until, struct fault *f)
{
	struct connection *c = &pg_of(db)->conn;
	struct login *l = (struct login *)t;
	PGconn *pgconn = l->conn;
	bool made = pgconn && c->pq->status(pgconn) == CONNECTION_OK;
	enum rc rc;

	(void)until;
	if (!pgconn)
		return fault_set(f, RC_SYSTEM, "out of memory");
	l->conn = NULL;
	c->pgconn = pgconn;
	c->bounds = l->bounds;
	c->stranger = l->stranger;
	bounds_watch(&c->bounds, c->pq->socket(pgconn), false);
	c->db->serial++;
	snprintf(c->secret, sizeof c->secret, "%s", c->pq->pass(pgconn));
	c->db->base.host->secret = c->secret;
	c->db->last_words[0] = '\0';
	c->pq->setNoticeReceiver(pgconn, error_notice, c);
	if (made || l->is_standby || c->is_default)
		name_server(
		    c, c->pq->host(pgconn), c->pq->port(pgconn), c->pq->db(pgconn));
	if (l->is_standby && !(made && c->db->reads)) {
		rc = refuse_standby(c, l->primary_is_away, f);
	} else if (!made) {
		rc = c->bounds.endless ? connection_broken(c, f)
				       : error_of_login(c, l->left, f);
	} else if (c->pq->serverVersion(pgconn) < OLDEST_SERVER) {
		rc = fault_set(f, RC_CONFIG,
		    "%s is older than PostgreSQL 10 (and mode=advisory needs 14)",
		    c->db->where);
	} else if (c->pq->setnonblocking(pgconn, 1) != 0) {
		rc = fault_set(f, RC_SYSTEM, "out of memory");
	} else {
		if (l->is_standby)
			fault_set(&c->db->base.host->notice, RC_OK,
			    "%s is a standby, which may be behind", c->db->where);
		return RC_OK;
	}
	connection_close(c->db);
	return rc;
}

/* ---- the end ---- */

enum rc
connection_broken(struct connection *c, struct fault *f)
{
	enum rc rc = sql_broken(c->db, f);

	return c->bounds.endless ? sql_endless(c->db, f) : rc;
}

bool
connection_is_open(struct sql *db)
{
	struct connection *c = &pg_of(db)->conn;

	if (c->pgconn &&
	    (!c->pq->consumeInput(c->pgconn) ||
		c->pq->status(c->pgconn) != CONNECTION_OK))
		connection_close(c->db);
	else if (c->pgconn && !c->pending.out)
		c->pq->isBusy(c->pgconn); /* lets last words be heard */
	return c->pgconn != NULL;
}

bool
connection_was_notified(struct sql *db)
{
	struct connection *c = &pg_of(db)->conn;
	bool any = false;
	PGnotify *n;

	if (!connection_is_open(c->db))
		return false;
	while ((n = c->pq->notifies(c->pgconn))) {
		c->pq->freemem(n);
		any = true;
	}
	return any;
}

int
connection_descriptor(const struct sql *db)
{
	const struct connection *c = &pg_const(db)->conn;

	return c->pgconn ? c->pq->socket(c->pgconn) : -1;
}

void
connection_close(struct sql *db)
{
	struct connection *c = &pg_of(db)->conn;

	if (!c->pq)
		return;
	c->pq->clear(c->pending.kept);
	c->pending.kept = NULL;
	c->pending.out = false;
	bounds_watch(&c->bounds, -1, false);
	if (c->pgconn)
		c->pq->finish(c->pgconn);
	c->pgconn = NULL;
	c->trust = (struct trust){.full = false};
}
