/*
 * pg.c - locks in a PostgreSQL database: settings, and what all modes need.
 *
 *  1. `-O mode=` chooses how a lock is kept; everything else is a mode's.
 *  2. The schema is created on first use, by whoever may.  Whoever may not is
 *     told what an administrator has to run.
 *  3. Keys are parameters, never part of a statement.
 */
#include "pg.h"

#include "backends/pg/schema.sql.h"
#include "backends/setting.h"
#include "derive.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct mode *const modes[] = {&lease_mode, &advisory_mode, &row_mode, NULL};

const struct backend pg_backend;

static struct pg *
pg_of(struct lock *l)
{
	return (struct pg *)l;
}

/* ---- the schema ---- */

bool
pg_is_missing(const struct pg *pg)
{
	const struct session *s = &pg->session;

	return session_said(s, "3F000") || session_said(s, "42883") || session_said(s, "42P01");
}

enum rc
pg_explain_denial(struct pg *pg, enum rc rc, struct fault *f)
{
	if (rc != RC_DENIED || !session_said(&pg->session, "42501"))
		return rc;
	if (!pg->session.conn)
		return rc; /* it may not even enter the database */
	return fault_set(f, RC_DENIED,
	    "%s: this role may not use, or not create, the schema dlock; as its administrator run dlock "
	    "help pg-schema "
	    "| psql DATABASE, then GRANT USAGE ON SCHEMA dlock TO the role",
	    pg->session.where);
}

enum rc
pg_create_schema(struct pg *pg, instant until, struct fault *f)
{
	enum rc rc = session_run(&pg->session, schema_sql, until, f);

	pg->session.trusted = false; /* somebody may have made it before us */
	return rc;
}

enum rc
pg_ask(struct pg *pg, const struct question *q, int fields, instant until, instant *sent, PGresult **ret,
    struct fault *f)
{
	enum rc rc = session_ask(&pg->session, q, true, fields, until, sent, ret, f);

	if (rc != RC_OK && rc != RC_STOP && pg_is_missing(pg)) {
		rc = pg_create_schema(pg, until, f);
		if (rc == RC_OK)
			rc = session_ask(&pg->session, q, true, fields, until, sent, ret, f);
	}
	return pg_explain_denial(pg, rc, f);
}

/* ---- patience ---- */

instant
pg_attempt_ends(const struct pg *pg, instant first_by)
{
	instant now = instant_now(), least = instant_first(now + ASK_LEAST, now + pg->patience.first);

	return first_by < least ? least : instant_first(first_by, instant_after(now, pg->patience.first));
}

enum rc
pg_try_again(struct pg *pg, enum rc rc, bool queued, instant until)
{
	bool promotion = queued && rc == RC_CONFIG && session_said(&pg->session, "25006");
	enum rc next = patience_retry(&pg->patience, pg->base.host, promotion ? RC_AGAIN : rc, queued, until);

	return next == RC_AGAIN ? rc : next;
}

/* ---- settings ---- */

static enum rc
read_mode(struct pg *pg, const char *value, struct fault *f)
{
	for (size_t i = 0; modes[i]; i++)
		if (strcmp(modes[i]->name, value) == 0) {
			pg->mode = modes[i];
			return RC_OK;
		}
	return fault_set(
	    f, RC_USAGE, "the pg backend has no mode '%s' (there are lease, advisory, row)", value);
}

static enum rc
read_setting(struct pg *pg, const struct setting *s, struct fault *f)
{
	if (strcmp(s->name, "mode") == 0)
		return read_mode(pg, s->value, f);
	if (strcmp(s->name, "key") == 0) {
		pg->key_is = s->value;
		return number_read(&(struct number){0}, s->value)
			   ? RC_OK
			   : fault_set(f, RC_USAGE,
				 "key is written as a number of 64 bits, or as two of 32: key=42, "
				 "key=7,-1");
	}
	if (strcmp(s->name, "derive") == 0) {
		pg->derive = s->value;
		return derivation_named(s->value)
			   ? RC_OK
			   : fault_set(f, RC_USAGE, "derive knows no '%s' (there are %s)", s->value,
				 derivation_names);
	}
	if (strcmp(s->name, "connect-timeout") == 0)
		return setting_patience(s->value, &pg->patience.first, f);
	return fault_set(
	    f, RC_USAGE, "the pg backend has no setting '%s' (there are %s)", s->name, pg_backend.settings);
}

/* What makes sense by itself, but not together. */
static enum rc
check_settings(const struct pg *pg, struct fault *f)
{
	if (pg->key_is && pg->derive)
		return fault_set(f, RC_USAGE, "key= and derive= contradict each other");
	if ((pg->key_is || pg->derive) && pg->mode != &advisory_mode)
		return fault_set(
		    f, RC_USAGE, "%s= goes with mode=advisory only", pg->key_is ? "key" : "derive");
	return RC_OK;
}

/* ---- the calls ---- */

static void
pg_close(struct lock *l)
{
	struct pg *pg = pg_of(l);

	if (!pg)
		return;
	session_free(&pg->session);
	free(pg);
}

static enum rc
pg_open(struct lock **ret, struct host *host, const struct want *want, struct fault *f)
{
	struct pg *pg = calloc(1, sizeof *pg);
	enum rc rc = RC_OK;

	if (!pg)
		return fault_set(f, RC_SYSTEM, "out of memory");
	pg->base = (struct lock){.ops = &pg_backend, .host = host, .where = pg->session.where};
	pg->want = want;
	pg->mode = &lease_mode;
	patience_init(&pg->patience, want);
	snprintf(pg->lease_ms, sizeof pg->lease_ms, "%" PRId64, ns_to_ms(want->ttl));
	snprintf(pg->weight, sizeof pg->weight, "%u", want->weight);
	snprintf(pg->capacity, sizeof pg->capacity, "%u", want->capacity);
	for (size_t i = 0; rc == RC_OK && i < want->nsettings; i++)
		rc = read_setting(pg, &want->settings[i], f);
	if (rc == RC_OK)
		rc = check_settings(pg, f);
	if (rc == RC_OK)
		rc = session_init(&pg->session, host, want->url, want->ttl, f);
	if (rc == RC_OK)
		*ret = &pg->base;
	else
		pg_close(&pg->base);
	return rc;
}

static enum rc
pg_acquire(struct lock *l, instant until, struct grant *g, struct fault *f)
{
	return pg_of(l)->mode->acquire(pg_of(l), until, g, f);
}

static enum rc
pg_renew(struct lock *l, instant until, struct grant *g, struct fault *f)
{
	return pg_of(l)->mode->renew(pg_of(l), until, g, f);
}

static enum rc
pg_release(struct lock *l, instant until, struct fault *f)
{
	return pg_of(l)->mode->release(pg_of(l), until, f);
}

const struct backend pg_backend = {
    .name = "pg",
    .schemes = "postgresql postgres = ",
    .settings = "mode, key, derive, connect-timeout",
    .url_help = "postgresql://[user@]host[:port][/database], or host=... dbname=...",
    .schema = schema_sql,
    .caps = CAP_FAIR | CAP_DURABLE,
    .open = pg_open,
    .acquire = pg_acquire,
    .renew = pg_renew,
    .release = pg_release,
    .close = pg_close,
};
