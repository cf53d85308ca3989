/*
 * driver.c - locks in a PostgreSQL database: settings, the schema, and what a driver is made of.
 *
 * The schema is created on first use, or brought up to date, by whoever may.  Whoever may not is
 * told what an administrator has to run.
 *
 * Of mode=lease, beside its schema.sql:
 *
 *  1. A waiter on a direct connection sleeps in the server, on the wake-up lock (an advisory
 *     lock) of the claim that is next before it, in chunks: a sleeping statement keeps a
 *     snapshot, for which CREATE INDEX CONCURRENTLY waits.  A release wakes those whom it
 *     grants, whoever else there is.  The first in the queue behind holders that are not exclusive
 *     sleeps in the client, for a notification: it cannot know which of them will make room.
 *  2. Behind a pooler (our server process is not the one that we were told of) nothing is
 *     kept in a session: every waiter asks now and then.
 *  3. What a confirmation writes is on disk before it is answered, together with the grant.
 *  4. A holder on a direct connection LISTENs, from its first renewal on, to dlock_ and its
 *     token; who breaks the lock notifies that.  Anybody may: it is a hint.
 *
 * Why waiters sleep on locks, and do not LISTEN: a NOTIFY makes every listening session of
 * the database run, so its cost grows with the queue, and commits that notify take
 * turns in the cluster.  Breaks are rare; but whoever holds for more than a second is woken by
 * every NOTIFY in the database, and looks whether it is of its channel.
 */
#include "derive.h"
#include "errors.h"

#include "backends/common/identity.h"
#include "backends/sql/names.h"
#include "backends/common/url.h"
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
	enum rc rc = sql_ask(db, &q, until, &a, f);

	if (rc != RC_OK)
		return rc;
	if (!row_integer(&a.row, 0, 0, INT32_MAX, version))
		rc = sql_makes_no_sense(db, RC_PROTOCOL, f);
	answer_drop(&a);
	return rc;
}

static enum rc
refuse_newer(const struct sql *db, struct fault *f)
{
	return fault_set(f, RC_CONFIG,
	    "%s: a newer dlock has made the schema dlock, and this dlock cannot use it: use that version",
	    db->where);
}

static enum rc
refuse_older(const struct sql *db, struct fault *f)
{
	return fault_set(f, RC_CONFIG,
	    "%s: an older dlock has made the schema dlock: as the role that owns it, bring it up to date with dlock help pg-schema | psql DATABASE (running jobs may go on meanwhile)",
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
	const struct question q = {.text = schema_sql, .harmless = true};
	int64_t version;
	enum rc rc = read_version(db, &version, until, f);

	if (rc != RC_OK)
		return rc;
	if (version > SCHEMA_VERSION)
		return refuse_newer(db, f);
	rc = sql_exec(db, &q, until, NULL, f);
	if (rc != RC_OK && sql_is_connected(db))
		sql_undo(db, until);
	pg_of(db)->conn.trust.full = false; /* somebody may have made it before us */
	if (rc == RC_DENIED && sql_is_failure(db, SQL_NO_RIGHT) && is_older(version))
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
	    "then GRANT USAGE ON SCHEMA dlock TO the role, and EXECUTE on a function that was taken from it "
	    "(SETTING UP in dlock-pg(7))",
	    right);
}

/* ---- mode=lease ---- */

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
    .damaged = "a row of dlock.claims that dlock has not written",
    .freeze =
	"SELECT dlock.freeze($1, $2, $3::pg_catalog.float8 OPERATOR(pg_catalog.*) '1 ms'::pg_catalog.interval)",
    .clock =
	"SELECT pg_catalog.int8(pg_catalog.date_part('epoch', pg_catalog.clock_timestamp()) OPERATOR(pg_catalog.*) 1000000.0::pg_catalog.float8)",
    .forget = "forget",
    .last = {"list_jobs", NULL},
    .done = {"list_done", NULL},
    .end_old_sessions = "SELECT dlock.end_old_sessions($1)",
    .end_old_fields = 1,
    .session_number = server_process,
    .wake_number = number_of_wake_lock,
    .listen = "LISTEN dlock_",
    .notify =
	"SELECT pg_catalog.pg_notify(pg_catalog.concat('dlock_', $1::pg_catalog.int8), '')",
    .is_notified = connection_was_notified,
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

/* A program that has no derivation calls its lock by a number. */
static enum rc
set_pg_name(struct store *s, const char *value, struct fault *f)
{
	pg_of_store(s)->name = value;
	s->caps |= ONE_LOCK;
	return *value && strlen(value) <= KEY_BYTES
	    ? RC_OK
	    : fault_set(f, RC_USAGE, "name has 1 to %d bytes", KEY_BYTES);
}

static enum rc
set_derive(struct store *s, const char *value, struct fault *f)
{
	pg_of_store(s)->derive = value;
	s->caps |= derive_is_one(value) ? ONE_LOCK : 0;
	if (derive_knows(value))
		return RC_OK;
	return fault_set(
	    f, RC_USAGE, "derive knows no '%s' (there are %s)", value, derive_names);
}

static const struct setting_row settings[] = {
    {"mode", "lease|advisory|row", "how a key is locked (default: lease)", sql_set_mode},
    {"name", "NAME",
	"mode=advisory: as another program calls the lock, with derive=; or key=",
	set_pg_name},
    {"key", "NUMBER|A,B", "mode=advisory: the lock of this number", set_key},
    {"derive", "TOOL", "mode=advisory: the lock that this tool would take", set_derive},
    {"connect-timeout", "DURATION", "for the first answer, without --wait (default: 5s)",
	sql_set_patience},
    {0},
};

/* ---- the store ---- */

static enum rc
pg_init(struct sql *db, const char *url, struct fault *f)
{
	struct pg *pg = pg_of(db);

	if (pg->name && !pg->derive && !pg->key &&
	    set_key(&db->base, pg->name, f) == RC_OK)
		pg->name = NULL;
	if (pg->name && !pg->derive)
		return fault_set(f, RC_USAGE,
		    "name= is a number (42, or 7,-1), or goes with derive=, the program that calls the lock so");
	if (pg->key && pg->derive)
		return fault_set(f, RC_USAGE, "key= and derive= contradict each other");
	if ((pg->key || pg->derive) && db->mode != &advisory_mode)
		return fault_set(f, RC_USAGE, "%s= goes with mode=advisory only",
		    pg->key ? "key" : "derive");
	db->names_nobodys = db->mode == &advisory_mode && !pg->key && !pg->derive;
	return connection_init(&pg->conn, db, url, f);
}

/* A lock whose number is known without the key and the database: however it was named. */
static bool
identify_number(const struct pg *pg, struct identity *id)
{
	struct number n;
	char text[48];

	if (pg->key ? !derive_read_number(&n, pg->key)
		    : !pg->derive || !derive_is_fixed(pg->derive, &n))
		return false;
	if (n.pair)
		snprintf(text, sizeof text, "%" PRId32 ",%" PRId32, n.two[0], n.two[1]);
	else
		snprintf(text, sizeof text, "%" PRId64, n.one);
	identity_add(id, "number", text);
	return true;
}

static enum rc
pg_identify(const struct sql *db, struct identity *id, struct fault *f)
{
	const struct pg *pg = pg_const(db);

	if (!identify_number(pg, id)) {
		identity_add(id, "derive", pg->derive);
		identity_add(id, "name", pg->name);
		if (pg->derive)
			derive_identify(id);
	}
	return connection_identify(&pg->conn, id, f);
}

static const struct sql_driver pg_driver = {
    .bytes = sizeof(struct pg),
    .init = pg_init,
    .identify = pg_identify,
    .login = connection_login,
    .adopt = connection_adopt,
    .is_open = connection_is_open,
    .descriptor = connection_descriptor,
    .exec = exec_question,
    .send = exec_send,
    .receive = exec_receive,
    .is_pending = exec_is_pending,
    .close = connection_close,
    .failures = error_failures,
    .meanings = error_meanings,
    .read_row = exec_read_row,
    .drop = exec_drop,
    .create = pg_create_schema,
    .explain_absence = pg_explain_absence,
    .check = pg_check,
    .explain_denial = pg_explain_denial,
    .procedures = "functions",
    .call = "SELECT * FROM dlock.",
    .version = "",
    .modes = (const struct sql_mode *const[]){&lease_mode, &advisory_mode, &pg_row_mode,
	NULL},
    .mode_names = "lease, advisory, row",
    .lease = &pg_lease,
    .row = &pg_row,
};

static enum rc
pg_open(struct store **ret, struct host *host, const struct site *site, struct fault *f)
{
	return sql_store_open(ret, &pg_backend, &pg_driver, host, site, f);
}

const struct backend pg_backend = {
    .name = "pg",
    .schemes = (const char *const[]){"postgresql", "postgres", NULL},
    .pairs = true,
    .settings = settings,
    .url_help = "postgresql://[user@]host[:port][/database], or host=... dbname=...",
    .schema = schema_sql,
    .open = pg_open,
    .close = sql_store_close,
    .identify = sql_store_identify,
    .lock = &sql_lock_ops,
    .runs_own = names_runs_own,
    .admin = &sql_admin_ops,
};
