/*
 * check.c - tells whether a PostgreSQL server is fit for locks, and removes what a probe has left.
 *
 *  1. One statement asks for all: it reads catalogs and settings, and calls nothing of the
 *     schema dlock.  Whether that may be called at all (exec.c) a probe finds out as a run does.
 *  2. A probe leaves nothing, but in two cases.  Where the schema is not there yet, or is an
 *     older one that our role would bring up to date, it would be made.  And mode=row has a
 *     row for each key, which only some may delete.
 */
#include "pg.h"

#include "backends/common/checkup.h"
#include "backends/sql/lease.h"
#include "backends/sql/row.h"

#include <inttypes.h>
#include <string.h>

/* A wait in the server, or a lock of a row, may take so long, ms. */
enum { STATEMENT_LEAST = 5000 };

#define SETTING(name) "pg_catalog.current_setting('" name "', true)"
/* in its unit, without one */
#define NUMBER(name) \
	"(SELECT s.setting::pg_catalog.int8 FROM pg_catalog.pg_settings s " \
	"WHERE s.name OPERATOR(pg_catalog.=) '" name "')"

/*
 * $1 is the process that serves us, as the protocol has named it; n is the namespace dlock,
 * of which the schema's version is NULL where there is none.
 */
/* clang-format off */
#define FACTS(fact) \
	fact(F_VERSION, SETTING("server_version")) \
	fact(F_DIRECT, "pg_catalog.pg_backend_pid() OPERATOR(pg_catalog.=) $1::pg_catalog.int4") \
	fact(F_STANDBY, "pg_catalog.pg_is_in_recovery()") \
	fact(F_READ_ONLY, SETTING("transaction_read_only") " OPERATOR(pg_catalog.=) 'on'") \
	fact(F_FSYNC, SETTING("fsync") " OPERATOR(pg_catalog.=) 'on'") \
	fact(F_COMMIT, SETTING("synchronous_commit")) \
	fact(F_STANDBYS, "(SELECT pg_catalog.count(*) FROM pg_catalog.pg_stat_replication)") \
	fact(F_WAITS, /* for standbys */ \
		"coalesce(" SETTING("synchronous_standby_names") ", '') OPERATOR(pg_catalog.<>) ''") \
	fact(F_TRANSACTION, NUMBER("idle_in_transaction_session_timeout")) \
	fact(F_IDLE, NUMBER("idle_session_timeout")) \
	fact(F_STATEMENT, NUMBER("statement_timeout")) \
	fact(F_USED, "(SELECT pg_catalog.sum(d.numbackends) FROM pg_catalog.pg_stat_database d)") \
	fact(F_MOST, NUMBER("max_connections")) \
	fact(F_SCHEMA, \
		"CASE WHEN n.oid IS NOT NULL THEN coalesce(pg_catalog.substring(" \
		"pg_catalog.obj_description(n.oid, 'pg_namespace'), " \
		"'^dlock ([0-9]{1,9}):'), '0') END") \
	fact(F_SERVES, \
		"EXISTS (SELECT FROM pg_catalog.pg_proc p " \
		"WHERE p.pronamespace OPERATOR(pg_catalog.=) n.oid " \
		"AND p.proname OPERATOR(pg_catalog.=) '" SCHEMA_SERVES "')") \
	fact(F_MAKES, \
		"pg_catalog.has_database_privilege(pg_catalog.current_database(), 'CREATE')") \
	fact(F_OWNS, "coalesce(pg_catalog.pg_has_role(n.nspowner, 'USAGE'), false)") \
	fact(F_SIGNALS, \
		"EXISTS (SELECT FROM pg_catalog.pg_roles r " \
		"WHERE r.rolname OPERATOR(pg_catalog.=) 'pg_signal_backend' " \
		"AND pg_catalog.pg_has_role(session_user, r.oid, 'USAGE'))") \
	fact(F_DELETES, \
		"coalesce((SELECT pg_catalog.has_table_privilege(c.oid, 'DELETE') " \
		"FROM pg_catalog.pg_class c " \
		"WHERE c.relnamespace OPERATOR(pg_catalog.=) n.oid " \
		"AND c.relname OPERATOR(pg_catalog.=) 'rows'), false)")

#define FIELD(name, sql) name,
#define COLUMN(name, sql) ", " sql
enum { F_USER, FACTS(FIELD) FIELDS };

static const char facts_sql[] =
    "SELECT session_user" FACTS(COLUMN)
    " FROM (SELECT 1) one LEFT JOIN pg_catalog.pg_namespace n "
    "ON n.nspname OPERATOR(pg_catalog.=) 'dlock'";
/* clang-format on */

/* 0: it has none, or the server is too old for it. */
static int64_t
row_count(const struct row *r, int field)
{
	int64_t n;

	return row_integer(r, field, 0, INT64_MAX, &n) ? n : 0;
}

static const char *
row_said(const struct row *r, int field)
{
	const char *text = row_words(r, field);

	return text ? text : "";
}

static void
tell_pg(const struct sql *db, struct checkup *c, const struct row *r)
{
	bool lends = !row_is(r, F_DIRECT), session = db->mode == &advisory_mode;

	if (row_is(r, F_STANDBY) || row_is(r, F_READ_ONLY) || (lends && session))
		c->refusal = RC_CONFIG;
	checkup_tell(c, FIT, "version", NULL, "%s: PostgreSQL %s", db->where,
	    row_said(r, F_VERSION));
	checkup_tell(c, FIT, "user", NULL, "%s", row_said(r, F_USER));
	if (row_is(r, F_STANDBY))
		checkup_tell(c, UNFIT, "role",
		    "name the primary, or all hosts: host1,host2 in the URL",
		    "it is a standby: a lock needs the primary");
	else
		checkup_tell(c, row_is(r, F_READ_ONLY) ? UNFIT : FIT, "role",
		    row_is(r, F_READ_ONLY)
			? "ALTER ROLE ... RESET default_transaction_read_only (or of the database)"
			: NULL,
		    row_is(r, F_READ_ONLY) ? "transactions of this role are read-only"
					   : "it is a primary that may be written");
	checkup_tell(c,
	    !lends        ? FIT
		: session ? UNFIT
			  : DOUBTFUL,
	    "pooler",
	    !lends ? NULL
		: session
		? "connect past the pooler, or use mode=lease"
		: "connect past the pooler: waiters that need not ask are woken at once",
	    lends ? "a pooler stands before it%s" : "nothing stands before it%s",
	    lends && !session ? ": waiters ask now and then" : "");
}

static void
tell_pg_disk(struct checkup *c, const struct row *r)
{
	int64_t standbys = row_count(r, F_STANDBYS);
	const char *commit = row_said(r, F_COMMIT);
	bool waits = row_is(r, F_WAITS) && strcmp(commit, "local") != 0,
	     fsync = row_is(r, F_FSYNC);

	checkup_tell(c, fsync ? FIT : DOUBTFUL, "persistence",
	    fsync ? NULL : "ALTER SYSTEM SET fsync = on, then SELECT pg_reload_conf()",
	    fsync
		? "it writes to disk before it answers (synchronous_commit %s)"
		: "a crash loses what it has answered (fsync off, synchronous_commit %s)",
	    commit);
	checkup_tell(c, standbys == 0 || waits ? FIT : DOUBTFUL, "replicas",
	    standbys == 0 || waits
		? NULL
		: "set synchronous_standby_names, so that a lock counts when a standby has it",
	    "%" PRId64 " standbys%s", standbys,
	    standbys == 0 ? ""
		: waits   ? ", for which it waits"
			  : ", and a fail-over may forget what they have not got yet");
}

static void
tell_limits(const struct sql *db, struct checkup *c, const struct row *r)
{
	int64_t idle = row_count(r, F_IDLE), statement = row_count(r, F_STATEMENT),
		used = row_count(r, F_USED), most = row_count(r, F_MOST);
	bool lease = db->mode == &lease_mode; /* the others set theirs for each lock */
	bool reconnects = lease && idle > 0 && idle < ns_to_ms(c->ttl / 3);
	bool stops = lease && statement > 0 && statement < STATEMENT_LEAST;
	bool crowded = most > 0 && used * 10 > most * 9;

	checkup_tell(c, reconnects || stops ? DOUBTFUL : FIT, "timeouts",
	    stops            ? "ALTER ROLE ... SET statement_timeout = 0"
		: reconnects ? "ALTER ROLE ... SET idle_session_timeout = 0"
			     : NULL,
	    "idle_in_transaction_session_timeout %" PRId64
	    " ms, idle_session_timeout %" PRId64 " ms%s, statement_timeout %" PRId64
	    " ms%s",
	    row_count(r, F_TRANSACTION), idle,
	    reconnects ? " (each renewal would connect anew)" : "", statement,
	    stops ? " (a slow answer would be cut off)" : "");
	if (most > 0)
		checkup_tell(c, crowded ? DOUBTFUL : FIT, "connections",
		    crowded ? "raise max_connections, or end sessions that idle" : NULL,
		    "%" PRId64 " of %" PRId64
		    " connections are used (each holder and waiter needs one)",
		    used, most);
}

static void
tell_schema(const struct sql *db, struct checkup *c, const struct row *r)
{
	const char *version = row_words(r, F_SCHEMA);
	bool serves = row_is(r, F_SERVES),
	     makes = version ? row_is(r, F_OWNS) : row_is(r, F_MAKES);

	if (db->mode == &advisory_mode && !serves && !makes)
		return; /* it does without */
	if (version && !serves && makes)
		checkup_tell(c, DOUBTFUL, "schema",
		    "the next run brings it up to date; or dlock help pg-schema | psql DATABASE",
		    "the schema dlock is of version %s, not %d", version, SCHEMA_VERSION);
	else if (version)
		checkup_tell(c, serves ? FIT : UNFIT, "schema",
		    serves
			? NULL
			: "as the role that owns it: dlock help pg-schema | psql DATABASE",
		    "the schema dlock is of version %s", version);
	else
		checkup_tell(c, makes ? DOUBTFUL : UNFIT, "schema",
		    makes
			? "the first run makes it; or dlock help pg-schema | psql DATABASE"
			: "as an administrator: dlock help pg-schema | psql DATABASE, then GRANT USAGE ON SCHEMA dlock TO the role",
		    "there is no schema dlock yet");
	if (!serves && makes)
		fault_set(&c->hands_off, RC_OK, "the schema dlock would be made for it");
	else if (db->mode == &pg_row_mode && !row_is(r, F_DELETES))
		fault_set(&c->hands_off, RC_OK,
		    "its row of dlock.rows would stay, which this role may not delete");
}

/* A session lock is broken by ending its session: the probe's is our own. */
static void
tell_others(const struct sql *db, struct checkup *c, const struct row *r)
{
	if (db->mode != &lease_mode && !row_is(r, F_SIGNALS))
		checkup_tell(c, DOUBTFUL, "right-break",
		    "break them as an administrator, or as a role with pg_signal_backend",
		    "locks of other users cannot be broken");
}

static enum rc
pg_sweep(struct sql *db, struct checkup *c, struct fault *f)
{
	const struct question q = {
	    .text = "DELETE FROM dlock.rows WHERE key OPERATOR(pg_catalog.=) $1",
	    SQL_VALUES(SQL_TEXT(c->probe))};

	return db->mode == &pg_row_mode ? sql_ask(db, &q, c->until, NULL, f) : RC_OK;
}

enum rc
pg_check(struct sql *db, struct checkup *c, struct fault *f)
{
	const struct connection *conn = &pg_of(db)->conn;
	struct answer a = {.db = NULL};
	enum rc rc;

	if (c->sweep)
		return pg_sweep(db, c, f);
	rc = sql_open(db, c->until, f);
	if (rc == RC_OK) {
		const struct question q = {.text = facts_sql,
		    SQL_VALUES(SQL_INT(conn->pq->backendPID(conn->pgconn))),
		    .fields = FIELDS,
		    .harmless = true};

		rc = sql_exec(db, &q, c->until, &a, f);
	}
	if (rc != RC_OK)
		return rc;
	tell_pg(db, c, &a.row);
	tell_pg_disk(c, &a.row);
	tell_limits(db, c, &a.row);
	tell_schema(db, c, &a.row);
	tell_others(db, c, &a.row);
	answer_drop(&a);
	return RC_OK;
}
