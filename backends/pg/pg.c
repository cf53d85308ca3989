/*
 * pg.c - locks in a PostgreSQL database: settings, and what all modes need.
 *
 *  1. `-O mode=` chooses how a lock is kept; everything else is a mode's.
 *  2. The schema is created on first use, or brought up to date, by whoever may.  Whoever
 *     may not is told what an administrator has to run.
 *  3. Keys are parameters, never part of a statement.
 */
#include "pg.h"

#include "backends/pg/schema.sql.h"
#include "backends/common/setting.h"
#include "derive.h"
#include "guard.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct mode *const modes[] = {&lease_mode, &advisory_mode, &row_mode, NULL};

/* ---- the schema ---- */

/* The oldest one whose tables are the same: there the script changes functions only. */
enum { SAME_TABLES = 4 };

/*
 * One number: the version of the schema that is there; 0: there is none, or an empty
 * one.
 */
static const char version_sql[] =
    "SELECT CASE WHEN EXISTS (SELECT FROM pg_catalog.pg_class c WHERE c.relnamespace OPERATOR(pg_catalog.=) n.oid AND "
    "(c.relname OPERATOR(pg_catalog.=) 'claims' OR c.relname OPERATOR(pg_catalog.=) 'holds')) THEN "
    "COALESCE(pg_catalog.substring(pg_catalog.obj_description(n.oid, 'pg_namespace'), '^dlock ([0-9]{1,9}):'), '1') "
    "ELSE '0' END FROM (SELECT 1) one LEFT JOIN pg_catalog.pg_namespace n ON n.nspname OPERATOR(pg_catalog.=) 'dlock'";

bool
pg_is_missing(const struct pg *pg)
{
	return pg_lacks_table(pg) || said_state(&pg->conn, NO_FUNCTION);
}

bool
pg_lacks_table(const struct pg *pg)
{
	return said_state(&pg->conn, "3F000") || said_state(&pg->conn, "42P01");
}

enum rc
pg_explain_denial(struct pg *pg, enum rc rc, struct fault *f)
{
	if (rc != RC_DENIED || !said_state(&pg->conn, "42501"))
		return rc;
	if (!pg->conn.pgconn)
		return rc; /* it may not even enter the database */
	return fault_set(f, RC_DENIED,
	    "%s: this role may not use, or not create, the schema dlock; as its administrator run dlock "
	    "help pg-schema "
	    "| psql DATABASE, then GRANT USAGE ON SCHEMA dlock TO the role",
	    pg->conn.where);
}

static enum rc
read_version(struct pg *pg, int64_t *version, instant until, struct fault *f)
{
	const struct question q = {.sql = version_sql, .harmless = true};
	PGresult *r;
	instant sent;
	enum rc rc = ask_server(&pg->conn, &q, 1, until, &sent, &r, f);

	if (rc != RC_OK)
		return rc;
	if (!field_integer(pg->conn.pq, r, 0, 0, INT32_MAX, version))
		rc = pg_makes_no_sense(pg, RC_PROTOCOL, f);
	pg->conn.pq->clear(r);
	return rc;
}

static enum rc
refuse_newer(const struct pg *pg, struct fault *f)
{
	return fault_set(f, RC_CONFIG,
	    "%s: the schema dlock is a newer version's, which does not serve this one: use the dlock that has made it",
	    pg->conn.where);
}

static enum rc
refuse_older(const struct pg *pg, int64_t version, struct fault *f)
{
	return fault_set(f, RC_CONFIG,
	    version < SAME_TABLES
		? "%s: the schema dlock is an older version's, of which no release knows: when nobody uses it any more, "
		  "DROP SCHEMA dlock CASCADE"
		: "%s: the schema dlock is an older version's: as the role that owns it, bring it up to date with dlock "
		  "help pg-schema | psql DATABASE (those who use it need not stop)",
	    pg->conn.where);
}

static bool
is_older(int64_t version)
{
	return version > 0 && version < SCHEMA_VERSION;
}

enum rc
pg_create_schema(struct pg *pg, instant until, struct fault *f)
{
	int64_t version;
	enum rc rc = read_version(pg, &version, until, f);

	if (rc != RC_OK)
		return rc;
	if (version > SCHEMA_VERSION)
		return refuse_newer(pg, f);
	if (is_older(version) && version < SAME_TABLES)
		return refuse_older(pg, version, f);
	rc = ask_script(&pg->conn, schema_sql, until, f);
	pg->conn.trust.full = false; /* somebody may have made it before us */
	if (rc == RC_DENIED && said_state(&pg->conn, "42501") && is_older(version))
		rc = refuse_older(pg, version, f);
	return rc;
}

enum rc
pg_ask(struct pg *pg, const struct question *q, int fields, instant until, instant *sent,
    PGresult **ret, struct fault *f)
{
	enum rc rc = ask_server(&pg->conn, q, fields, until, sent, ret, f);

	if (rc != RC_OK && rc != RC_STOP && pg_is_missing(pg)) {
		rc = pg_create_schema(pg, until, f);
		if (rc == RC_OK)
			rc = ask_server(&pg->conn, q, fields, until, sent, ret, f);
	}
	return pg_explain_denial(pg, rc, f);
}

/* A function is missing: because there is nothing, or because it is another version's. */
static enum rc
weigh_absence(struct pg *pg, instant until, struct fault *f)
{
	int64_t version;
	enum rc rc = read_version(pg, &version, until, f);

	if (rc != RC_OK || version == 0)
		return rc;
	if (is_older(version))
		return refuse_older(pg, version, f);
	if (version > SCHEMA_VERSION)
		return refuse_newer(pg, f);
	return fault_set(f, RC_CONFIG,
	    "%s: the schema dlock lacks a function: dlock help pg-schema | psql DATABASE brings it back",
	    pg->conn.where);
}

enum rc
pg_ask_existing(struct pg *pg, const struct question *q, int fields, instant until,
    PGresult **ret, struct fault *f)
{
	instant sent;
	enum rc rc = ask_server(&pg->conn, q, fields, until, &sent, ret, f);

	if (rc != RC_OK)
		*ret = NULL;
	if (rc != RC_OK && rc != RC_STOP && pg_is_missing(pg))
		rc = weigh_absence(pg, until, f);
	return pg_explain_denial(pg, rc, f);
}

enum rc
pg_makes_no_sense(const struct pg *pg, enum rc rc, struct fault *f)
{
	return fault_set(f, rc, "%s gave an answer that dlock's functions do not give",
	    pg->conn.where);
}

/* ---- patience ---- */

enum rc
pg_try_again(struct pg *pg, enum rc rc, bool queued, instant until)
{
	bool promotion = queued && rc == RC_CONFIG && said_state(&pg->conn, READ_ONLY);
	enum rc next = retry_wait(
	    &pg->patience, pg->base.host, promotion ? RC_AGAIN : rc, queued, until);

	return next == RC_AGAIN ? rc : next;
}

/* ---- settings ---- */

static enum rc
set_mode(struct store *s, const char *value, struct fault *f)
{
	for (size_t i = 0; modes[i]; i++)
		if (strcmp(modes[i]->name, value) == 0) {
			pg_of(s)->stated.mode = modes[i];
			return RC_OK;
		}
	return fault_set(f, RC_USAGE,
	    "the pg backend has no mode '%s' (there are lease, advisory, row)", value);
}

static enum rc
set_key(struct store *s, const char *value, struct fault *f)
{
	struct number unused;

	pg_of(s)->stated.key = value;
	s->caps |= ONE_LOCK;
	if (derive_read_number(&unused, value))
		return RC_OK;
	return fault_set(f, RC_USAGE,
	    "key is written as a number of 64 bits, or as two of 32: key=42, key=7,-1");
}

static enum rc
set_derive(struct store *s, const char *value, struct fault *f)
{
	pg_of(s)->stated.derive = value;
	if (derive_named(value))
		return RC_OK;
	return fault_set(
	    f, RC_USAGE, "derive knows no '%s' (there are %s)", value, derive_names);
}

static enum rc
pg_set_patience(struct store *s, const char *value, struct fault *f)
{
	return setting_timeout(value, &pg_of(s)->patience.first, f);
}

static const struct setting_row settings[] = {
    {"mode", "lease|advisory|row", "how a key is locked (default: lease)", set_mode},
    {"key", "NUMBER|A,B", "mode=advisory: the lock of this number", set_key},
    {"derive", "TOOL", "mode=advisory: the lock that this tool would take", set_derive},
    {"connect-timeout", "DURATION", "for the first answer, without --wait (default: 5s)",
	pg_set_patience},
    {0},
};

/* What makes sense by itself, but not together. */
static enum rc
check_stated(const struct stated *stated, struct fault *f)
{
	if (stated->key && stated->derive)
		return fault_set(f, RC_USAGE, "key= and derive= contradict each other");
	if ((stated->key || stated->derive) && stated->mode != &advisory_mode)
		return fault_set(f, RC_USAGE, "%s= goes with mode=advisory only",
		    stated->key ? "key" : "derive");
	return RC_OK;
}

/* ---- the calls ---- */

static void
pg_close(struct store *s)
{
	struct pg *pg = s ? pg_of(s) : NULL;

	if (!pg)
		return;
	connection_free(&pg->conn);
	free(pg->own);
	free(pg);
}

static enum rc
pg_open(struct store **ret, struct host *host, const struct site *site, struct fault *f)
{
	struct pg *pg = calloc(1, sizeof *pg);
	enum rc rc = RC_OK;

	if (!pg)
		return fault_set(f, RC_SYSTEM, "out of memory");
	pg->base = (struct store){&pg_backend, host, pg->conn.where, 0};
	pg->stated.mode = &lease_mode;
	retry_init(&pg->patience);
	rc = setting_read(&pg->base, site, f);
	if (rc == RC_OK)
		rc = check_stated(&pg->stated, f);
	if (rc == RC_OK)
		rc = connection_init(&pg->conn, host, site->url, f);
	pg->base.caps |= pg->stated.mode->caps;
	pg->own = calloc(1, pg->stated.mode->bytes);
	if (rc == RC_OK && !pg->own)
		rc = fault_set(f, RC_SYSTEM, "out of memory");
	if (rc == RC_OK)
		*ret = &pg->base;
	else
		pg_close(&pg->base);
	return rc;
}

static enum rc
pg_identify(struct store *s, struct identity *id, struct fault *f)
{
	const struct pg *pg = pg_of(s);

	identity_add(id, "mode", pg->stated.mode->name);
	identity_add(id, "key", pg->stated.key);
	identity_add(id, "derive", pg->stated.derive);
	if (pg->stated.derive)
		derive_identify(id);
	return connection_identify(&pg->conn, id, f);
}

static enum rc
pg_acquire(struct store *s, const struct claim *claim, instant until, struct grant *g,
    struct fault *f)
{
	struct pg *pg = pg_of(s);

	pg->claim = claim;
	pg->conn.ttl = claim->ttl;
	snprintf(pg->lease_ms, sizeof pg->lease_ms, "%" PRId64, ns_to_ms(claim->ttl));
	retry_begin(&pg->patience, claim);
	return pg->stated.mode->acquire(pg, until, g, f);
}

static enum rc
pg_renew(struct store *s, instant until, struct grant *g, struct fault *f)
{
	return pg_of(s)->stated.mode->renew(pg_of(s), until, g, f);
}

static enum rc
pg_release(struct store *s, int status, instant until, struct fault *f)
{
	return pg_of(s)->stated.mode->release(pg_of(s), status, until, f);
}

/* Of who has no lease: what a server that hangs is given. */
#define ADMIN_PATIENCE (30 * NS_PER_S)

/* The mode's, for one that has no claim. */
static const struct steering *
steering_of(struct pg *pg)
{
	pg->conn.ttl = ADMIN_PATIENCE;
	return pg->stated.mode->steering;
}

static enum rc
pg_cannot(const struct pg *pg, const char *what, struct fault *f)
{
	return fault_set(f, RC_CONFIG, "pg's mode=%s cannot %s a lock (mode=lease can)",
	    pg->stated.mode->name, what);
}

static enum rc
pg_each(struct store *s, const struct look *look, struct fault *f)
{
	return steering_of(pg_of(s))->each(pg_of(s), look, f);
}

static enum rc
pg_revoke(struct store *s, const struct target *target, const char *record, bool force,
    instant until, struct fault *f)
{
	struct pg *pg = pg_of(s);

	if (!force && !(s->caps & CAP_REVOKE))
		return pg_cannot(pg, "ask for", f);
	return steering_of(pg)->revoke(pg, target, record, force, until, f);
}

static enum rc
pg_freeze(struct store *s, const char *key, const char *record, int64_t length,
    instant until, struct fault *f)
{
	struct pg *pg = pg_of(s);

	if (!(s->caps & CAP_FREEZE))
		return pg_cannot(pg, "freeze", f);
	return steering_of(pg)->freeze(pg, key, record, length, until, f);
}

static enum rc
pg_thaw(struct store *s, const char *key, instant until, struct fault *f)
{
	struct pg *pg = pg_of(s);

	if (!(s->caps & CAP_FREEZE))
		return pg_cannot(pg, "thaw", f);
	return steering_of(pg)->thaw(pg, key, until, f);
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
    .lock = &(const struct lock_ops){pg_acquire, pg_renew, pg_release},
    .admin = &(const struct admin_ops){pg_each, pg_revoke, pg_freeze, pg_thaw},
};
