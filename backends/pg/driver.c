/*
 * driver.c - locks in a PostgreSQL database: settings, the schema, and what a driver is made of.
 *
 *  1. `-O mode=` chooses how a lock is kept; everything else is a mode's.
 *  2. The schema is created on first use, or brought up to date, by whoever may.  Whoever
 *     may not is told what an administrator has to run.
 *  3. Keys are parameters, never part of a statement.
 */
#include "pg.h"

#include "connection.h"
#include "question.h"
#include "said.h"
#include "backends/sql/lease.h"
#include "backends/sql/row.h"

#include "backends/common/setting.h"
#include "backends/pg/schema.sql.h"
#include "derive.h"
#include "guard.h"

#include <inttypes.h>
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
	rc = question_script(c->db, schema_sql, until, f);
	c->trust.full = false; /* somebody may have made it before us */
	if (rc == RC_DENIED && said_state(c, "42501") && is_older(version))
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
	char said[sizeof f->text / 2]; /* which right it is */

	(void)db;
	snprintf(said, sizeof said, "%.300s", f->text);
	return fault_set(f, RC_DENIED,
	    "%s; as an administrator of the database run dlock help pg-schema | psql DATABASE, "
	    "then GRANT USAGE ON SCHEMA dlock TO the role, and EXECUTE on a function that was taken from it",
	    said);
}

/* ---- the driver ---- */

static const struct sql_driver pg_driver = {
    .open = connection_open,
    .is_open = connection_is_open,
    .descriptor = connection_descriptor,
    .exec = guard_exec,
    .send = question_send,
    .receive = question_receive,
    .is_pending = question_is_pending,
    .close = connection_close,
    .is_failure = said_is_failure,
    .read_row = question_read_row,
    .drop = question_drop,
    .create = pg_create_schema,
    .explain_absence = pg_explain_absence,
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
	if (derive_named(value))
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

/* What makes sense by itself, but not together. */
static enum rc
check_stated(const struct pg *pg, struct fault *f)
{
	if (pg->key && pg->derive)
		return fault_set(f, RC_USAGE, "key= and derive= contradict each other");
	if ((pg->key || pg->derive) && pg->db.mode != &advisory_mode)
		return fault_set(f, RC_USAGE, "%s= goes with mode=advisory only",
		    pg->key ? "key" : "derive");
	return RC_OK;
}

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
	if (rc == RC_OK)
		rc = check_stated(pg, f);
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
