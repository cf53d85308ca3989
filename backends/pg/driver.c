/*
 * driver.c - locks in a PostgreSQL database: settings, the schema, and what a driver is made of.
 *
 *  1. `-O mode=` chooses how a lock is kept; everything else is a mode's.
 *  2. The schema is created on first use, or brought up to date, by whoever may.  Whoever
 *     may not is told what an administrator has to run.
 *  3. Keys are parameters, never part of a statement.
 *
 * Of mode=lease, beside its schema.sql:
 *
 *  4. A waiter on a direct connection sleeps in the server, on the wake-up lock (an advisory
 *     lock) of the claim that is next before it, in chunks: a sleeping statement keeps a
 *     snapshot, for which CREATE INDEX CONCURRENTLY waits.  A release wakes those whom it
 *     grants, whoever else there is.  The first in the queue behind holders that are not exclusive
 *     sleeps in the client, for a notification: it cannot know which of them will make room.
 *  5. Behind a pooler (our server process is not the one that we were told of) nothing is
 *     kept in a session: every waiter asks now and then.
 *  6. What a confirmation writes is on disk before it is answered, together with the grant.
 *
 * Why locks, and not LISTEN and NOTIFY: a NOTIFY makes every listening session of
 * the database run, so its cost grows with the queue, and commits that notify take
 * turns in the cluster.
 */
#include "derive.h"
#include "errors.h"
#include "exec.h"

#include "backends/common/setting.h"
#include "backends/pg/schema.sql.h"
#include "backends/sql/lease.h"
#include "backends/sql/row.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- the schema ---- */

/*
 * One number: the version of the schema that is there; 0: there is none, or an empty
 * one.
 */
static const char version_sql[] =
    "SELECT CASE WHEN EXISTS (SELECT FROM pg_catalog.pg_class c WHERE c.relnamespace OPERATOR(pg_catalog.=) n.oid AND "
    "(c.relname OPERATOR(pg_catalog.=) 'claims' OR c.relname OPERATOR(pg_catalog.=) 'holds')) THEN "
    "COALESCE(pg_catalog.substring(pg_catalog.obj_description(n.oid, 'pg_namespace'), '^dlock ([0-9]{1,9}):'), '1') "
    "ELSE '0' END FROM (SELECT 1) one LEFT JOIN pg_catalog.pg_namespace n ON n.nspname OPERATOR(pg_catalog.=) 'dlock'";

static enum rc
read_version(struct sql *db, int64_t *version, instant until, struct fault *f)
{
	const struct question q = {.text = version_sql, .fields = 1, .harmless = true};
	struct answer a = {.db = NULL};
	struct row row;
	enum rc rc = sql_ask(db, &q, until, &a, f);

	if (rc != RC_OK)
		return rc;
	row = answer_next(&a);
	if (!row_integer(&row, 0, 0, INT32_MAX, version))
		rc = sql_makes_no_sense(db, RC_PROTOCOL, f);
	answer_drop(&a);
	return rc;
}

static enum rc
refuse_newer(const struct sql *db, struct fault *f)
{
	return fault_set(f, RC_CONFIG,
	    "%s: the schema dlock is a newer version's, which does not serve this one: use the dlock that has made it",
	    db->where);
}

static enum rc
refuse_older(const struct sql *db, struct fault *f)
{
	return fault_set(f, RC_CONFIG,
	    "%s: the schema dlock is an older version's: as the role that owns it, bring it up to date with dlock "
	    "help pg-schema | psql DATABASE (those who use it need not stop)",
	    db->where);
}

static bool
is_older(int64_t version)
{
	return version > 0 && version < SCHEMA_VERSION;
}

/* Runs several statements; rolls back what has failed. */
static enum rc
run_script(struct sql *db, const char *script, instant until, struct fault *f)
{
	static const struct question rollback = {.text = "ROLLBACK", .harmless = true};
	const struct question q = {.text = script, .harmless = true};
	struct connection *c = &pg_of(db)->conn;
	struct fault unheard;
	struct last last;
	enum rc rc = connection_open(db, until, f);

	if (rc == RC_OK)
		rc = exec_question(db, &q, until, NULL, f);
	/* it may have stopped within its transaction; the reason stays */
	last = c->last;
	if (rc != RC_OK && c->pgconn) {
		(void)exec_question(db, &rollback, until, NULL, &unheard);
		c->last = last;
	}
	return rc;
}

enum rc
pg_create_schema(struct sql *db, instant until, struct fault *f)
{
	struct connection *c = &pg_of(db)->conn;
	int64_t version;
	enum rc rc = read_version(db, &version, until, f);

	if (rc != RC_OK)
		return rc;
	if (version > SCHEMA_VERSION)
		return refuse_newer(db, f);
	rc = run_script(db, schema_sql, until, f);
	c->trust.full = false; /* somebody may have made it before us */
	if (rc == RC_DENIED && error_is(c, NO_RIGHT) && is_older(version))
		rc = refuse_older(db, f);
	return rc;
}

/* A function is missing: because there is nothing, or because it is another version's. */
static enum rc
pg_explain_absence(struct sql *db, instant until, bool *create, struct fault *f)
{
	int64_t version;
	enum rc rc = read_version(db, &version, until, f);

	(void)create;
	if (rc != RC_OK || version == 0)
		return rc;
	if (is_older(version))
		return refuse_older(db, f);
	if (version > SCHEMA_VERSION)
		return refuse_newer(db, f);
	return fault_set(f, RC_CONFIG,
	    "%s: the schema dlock lacks a function: dlock help pg-schema | psql DATABASE brings it back",
	    db->where);
}

static enum rc
pg_explain_denial(const struct sql *db, struct fault *f)
{
	char right[sizeof f->text / 2];

	(void)db;
	snprintf(right, sizeof right, "%.300s", f->text);
	return fault_set(f, RC_DENIED,
	    "%s; as an administrator of the database run dlock help pg-schema | psql DATABASE, "
	    "then GRANT USAGE ON SCHEMA dlock TO the role, and EXECUTE on a function that was taken from it",
	    right);
}

/* ---- the driver ---- */

static int64_t
server_process(const struct sql *db)
{
	const struct connection *c = &pg_const(db)->conn;

	return c->pq->backendPID(c->pgconn);
}

/* The first half of the owner. */
static int64_t
number_of_wake_lock(const struct sql *db)
{
	char first_half[17];

	snprintf(first_half, sizeof first_half, "%.16s", db->claim->owner);
	return (int64_t)strtoull(first_half, NULL, 16);
}

static const struct lease_driver pg_lease = {
    .any_order = true,
    .releases_alone = true,
    .damaged = "a row of dlock.claims that no dlock has written",
    .freeze =
	"SELECT dlock.freeze($1, $2, $3::pg_catalog.float8 OPERATOR(pg_catalog.*) '1 ms'::pg_catalog.interval)",
    .end_old_sessions = "SELECT dlock.end_old_sessions($1)",
    .end_old_fields = 1,
    .session_number = server_process,
    .wake_number = number_of_wake_lock,
    .is_notified = connection_was_notified,
};

static const struct sql_driver pg_driver = {
    .open = connection_open,
    .is_open = connection_is_open,
    .descriptor = connection_descriptor,
    .exec = exec_question,
    .send = exec_send,
    .receive = exec_receive,
    .is_pending = exec_is_pending,
    .close = connection_close,
    .is_failure = error_is_failure,
    .read_row = exec_read_row,
    .drop = exec_drop,
    .create = pg_create_schema,
    .explain_absence = pg_explain_absence,
    .check = pg_check,
    .explain_denial = pg_explain_denial,
    .procedures = "functions",
    .call = "SELECT * FROM dlock.",
    .version = "",
    .modes = (const struct sql_mode *const[]){&lease_mode, &advisory_mode, &row_mode,
	NULL},
    .mode_names = "lease, advisory, row",
    .lease = &pg_lease,
    .row = &pg_row,
};

/* ---- settings ---- */

extern const struct backend pg_backend;

static struct pg *
pg_of_store(struct store *s)
{
	return (struct pg *)store_of(s, &pg_backend);
}

static enum rc
set_key(struct store *s, const char *value, struct fault *f)
{
	struct number unused;

	pg_of_store(s)->key = value;
	s->caps |= ONE_LOCK;
	if (derive_read_number(&unused, value))
		return RC_OK;
	return fault_set(f, RC_USAGE,
	    "key is written as a number of 64 bits, or as two of 32: key=42, key=7,-1");
}

static enum rc
set_derive(struct store *s, const char *value, struct fault *f)
{
	pg_of_store(s)->derive = value;
	if (derive_knows(value))
		return RC_OK;
	return fault_set(
	    f, RC_USAGE, "derive knows no '%s' (there are %s)", value, derive_names);
}

static const struct setting_row settings[] = {
    {"mode", "lease|advisory|row", "how a key is locked (default: lease)", sql_set_mode},
    {"key", "NUMBER|A,B", "mode=advisory: the lock of this number", set_key},
    {"derive", "TOOL", "mode=advisory: the lock that this tool would take", set_derive},
    {"connect-timeout", "DURATION", "for the first answer, without --wait (default: 5s)",
	sql_set_patience},
    {0},
};

/* ---- the store ---- */

static void
pg_close(struct store *s)
{
	struct pg *pg = s ? pg_of_store(s) : NULL;

	if (!pg)
		return;
	connection_free(&pg->conn);
	free(pg->db.own);
	free(pg);
}

static enum rc
pg_open(struct store **ret, struct host *host, const struct site *site, struct fault *f)
{
	struct pg *pg = calloc(1, sizeof *pg);
	enum rc rc;

	if (!pg)
		return fault_set(f, RC_SYSTEM, "out of memory");
	sql_init(&pg->db, &pg_backend, &pg_driver, host);
	rc = setting_read(&pg->db.base, site, f);
	if (rc == RC_OK && pg->key && pg->derive)
		rc = fault_set(f, RC_USAGE, "key= and derive= contradict each other");
	else if (rc == RC_OK && (pg->key || pg->derive) && pg->db.mode != &advisory_mode)
		rc = fault_set(f, RC_USAGE, "%s= goes with mode=advisory only",
		    pg->key ? "key" : "derive");
	if (rc == RC_OK)
		rc = connection_init(&pg->conn, &pg->db, site->url, f);
	if (rc == RC_OK)
		rc = sql_begin(&pg->db, f);
	if (rc == RC_OK)
		*ret = &pg->db.base;
	else
		pg_close(&pg->db.base);
	return rc;
}

static enum rc
pg_identify(struct store *s, struct identity *id, struct fault *f)
{
	const struct pg *pg = pg_of_store(s);

	identity_add(id, "mode", pg->db.mode->name);
	identity_add(id, "key", pg->key);
	identity_add(id, "derive", pg->derive);
	if (pg->derive)
		derive_identify(id);
	return connection_identify(&pg->conn, id, f);
}

const struct backend pg_backend = {
    .name = "pg",
    .schemes = (const char *const[]){"postgresql", "postgres", NULL},
    .pairs = true,
    .settings = settings,
    .url_help = "postgresql://[user@]host[:port][/database], or host=... dbname=...",
    .schema = schema_sql,
    .open = pg_open,
    .close = pg_close,
    .identify = pg_identify,
    .lock = &sql_lock_ops,
    .admin = &sql_admin_ops,
};
