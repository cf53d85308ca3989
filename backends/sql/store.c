/* store.c - what is asked of any database, and asked again; and which mode does it. */
#include "sql.h"

#include "backends/common/setting.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define RACES (2 * NS_PER_S) /* so long a transaction may lose races against others */

/* ---- answers ---- */

struct row
answer_next(struct answer *a)
{
	if (!a->db || a->next >= a->rows || !a->db->driver->read_row(a, a->next))
		return (struct row){.at = NULL};
	a->next++;
	return (struct row){a->at, a->lengths};
}

void
answer_drop(struct answer *a)
{
	if (a->db)
		a->db->driver->drop(a);
	a->db = NULL;
}

enum rc
sql_makes_no_sense(const struct sql *db, enum rc rc, struct fault *f)
{
	return fault_set(f, rc, "%s gave an answer that dlock's %s do not give",
	    db->where, db->driver->procedures);
}

/* ---- asking, and asking again ---- */

enum { CALL_BYTES = 160 };

/* "CALL dlock_thaw_3($1)" */
static void
write_call(const struct sql *db, const struct question *q, char *text)
{
	int used = snprintf(text, CALL_BYTES, "%s%s%s(", db->driver->call, q->procedure,
	    db->driver->version);

	for (size_t i = 1; i <= q->n; i++)
		used += snprintf(
		    text + used, CALL_BYTES - used, "%s$%zu", i > 1 ? ", " : "", i);
	snprintf(text + used, CALL_BYTES - used, ")");
}

enum rc
sql_exec(struct sql *db, const struct question *q, instant until, struct answer *a,
    struct fault *f)
{
	struct sql_value values[SQL_VALUES_MAX];
	struct question whole = *q;
	char text[CALL_BYTES];

	if (q->more && sql_is_connected(db)) {
		for (size_t i = 0; i < q->n; i++)
			values[i] = q->values[i];
		whole.values = values;
		whole.n += q->more(db, q->call, until, values + q->n);
	}
	if (!q->text) {
		write_call(db, &whole, text);
		whole.text = text;
	}
	return db->driver->exec(db, &whole, until, a, f);
}

/* One attempt. */
static enum rc
sql_ask_once(struct sql *db, const struct question *q, instant until, struct answer *a,
    struct fault *f)
{
	enum rc rc = db->driver->open(db, until, f);

	if (rc == RC_OK)
		rc = sql_exec(db, q, until, a, f);
	if (rc == RC_OK && db->driver->is_failure(db, SQL_UNREPLICATED)) {
		if (a)
			answer_drop(a);
		rc = fault_set(
		    f, RC_AGAIN, "%s does not wait for its standby", db->where);
	}
	return rc;
}

enum rc
sql_ask(struct sql *db, const struct question *q, instant until, struct answer *a,
    struct fault *f)
{
	instant races_end = instant_first(until, instant_now() + RACES);

	db->again = false;
	for (;;) {
		bool was_open = db->driver->is_open(db);
		enum rc rc = sql_ask_once(db, q, until, a, f);
		instant now = instant_now();

		if (rc != RC_AGAIN || now >= until)
			return rc;
		if (db->driver->is_failure(db, SQL_UNREPLICATED))
			continue;
		if (db->driver->is_failure(db, SQL_LOST_RACE) && now < races_end) {
			/* it has changed nothing: a moment, not the same for all */
			now += 2 * NS_PER_MS + now % (18 * NS_PER_MS);
			if (db->base.host->wait(db->base.host, -1, 0, now) == WOKE_STOP)
				return RC_STOP;
		} else if (was_open && !sql_is_connected(db) && !db->again) {
			db->again = true; /* it was only found broken */
		} else {
			return rc;
		}
	}
}

bool
sql_is_missing(const struct sql *db)
{
	return db->driver->is_failure(db, SQL_NO_TABLE) ||
	    db->driver->is_failure(db, SQL_NO_PROCEDURE);
}

enum rc
sql_explain_denial(const struct sql *db, enum rc rc, struct fault *f)
{
	if (rc != RC_DENIED || !db->driver->is_failure(db, SQL_NO_RIGHT))
		return rc;
	return db->driver->explain_denial(db, f);
}

enum rc
sql_ask_created(struct sql *db, const struct question *q, instant until, struct answer *a,
    struct fault *f)
{
	enum rc rc = sql_ask(db, q, until, a, f);

	if (rc != RC_OK && rc != RC_STOP && sql_is_missing(db)) {
		rc = db->driver->create(db, until, f);
		if (rc == RC_OK)
			rc = sql_ask(db, q, until, a, f);
	}
	return sql_explain_denial(db, rc, f);
}

enum rc
sql_ask_existing(struct sql *db, const struct question *q, instant until,
    struct answer *a, struct fault *f)
{
	enum rc rc = sql_ask(db, q, until, a, f);
	bool create = false;

	if (rc != RC_OK && rc != RC_STOP && sql_is_missing(db))
		rc = db->driver->explain_absence(db, until, &create, f);
	return create ? sql_ask_created(db, q, until, a, f)
		      : sql_explain_denial(db, rc, f);
}

enum rc
sql_try_again(struct sql *db, enum rc rc, bool queued, instant until)
{
	bool promotion = queued && rc == RC_CONFIG &&
	    db->driver->is_failure(db, SQL_READ_ONLY);
	enum rc next = retry_wait(
	    &db->retry, db->base.host, promotion ? RC_AGAIN : rc, queued, until);

	return next == RC_AGAIN ? rc : next;
}

/* ---- the store ---- */

/* A driver's own struct begins with this one, and that with the store. */
static struct sql *
sql_of(struct store *s)
{
	return (struct sql *)s;
}

void
sql_init(struct sql *db, const struct backend *backend, const struct sql_driver *driver,
    struct host *host)
{
	db->base = (struct store){backend, host, db->where, 0};
	db->driver = driver;
	db->mode = driver->modes[0];
	retry_init(&db->retry);
}

enum rc
sql_begin(struct sql *db, struct fault *f)
{
	db->base.caps |= db->mode->caps;
	db->own = calloc(1, db->mode->bytes);
	return db->own ? RC_OK : fault_set(f, RC_SYSTEM, "out of memory");
}

enum rc
sql_set_mode(struct store *s, const char *value, struct fault *f)
{
	struct sql *db = sql_of(s);
	const struct sql_mode *const *modes = db->driver->modes;

	for (; *modes; modes++)
		if (strcmp((*modes)->name, value) == 0) {
			db->mode = *modes;
			return RC_OK;
		}
	return fault_set(f, RC_USAGE, "the %s backend has no mode '%s' (there are %s)",
	    s->backend->name, value, db->driver->mode_names);
}

enum rc
sql_set_patience(struct store *s, const char *value, struct fault *f)
{
	return setting_timeout(value, &sql_of(s)->retry.first, f);
}

/* ---- the calls ---- */

static enum rc
sql_acquire(struct store *s, const struct claim *claim, instant until, struct grant *g,
    struct fault *f)
{
	struct sql *db = sql_of(s);

	db->claim = claim;
	db->ttl = claim->ttl;
	retry_begin(&db->retry, claim);
	return db->mode->acquire(db, until, g, f);
}

static enum rc
sql_renew(struct store *s, instant until, struct grant *g, struct fault *f)
{
	return sql_of(s)->mode->renew(sql_of(s), until, g, f);
}

static enum rc
sql_release(struct store *s, int status, instant until, struct fault *f)
{
	return sql_of(s)->mode->release(sql_of(s), status, until, f);
}

const struct lock_ops sql_lock_ops = {sql_acquire, sql_renew, sql_release};

/* Of who has no lease: what a server that hangs is given. */
#define ADMIN_PATIENCE (30 * NS_PER_S)

static struct sql *
without_claim(struct store *s, bool reads)
{
	struct sql *db = sql_of(s);

	db->ttl = ADMIN_PATIENCE;
	db->reads = reads;
	return db;
}

/* What the mode lacks. */
static enum rc
refuse_incapable(const struct sql *db, const char *what, struct fault *f)
{
	return fault_set(f, RC_CONFIG, "%s's mode=%s cannot %s a lock (mode=lease can)",
	    db->base.backend->name, db->mode->name, what);
}

static enum rc
sql_each(struct store *s, const struct look *look, struct fault *f)
{
	struct sql *db = without_claim(s, true);

	return db->mode->each(db, look, f);
}

static enum rc
sql_revoke(struct store *s, const struct target *target, const char *record, bool force,
    instant until, struct fault *f)
{
	struct sql *db = without_claim(s, false);

	if (!force && !(s->caps & CAP_REVOKE))
		return refuse_incapable(db, "ask for", f);
	return db->mode->revoke(db, target, record, force, until, f);
}

static enum rc
sql_freeze(struct store *s, const char *key, const char *record, int64_t length,
    instant until, struct fault *f)
{
	struct sql *db = without_claim(s, false);

	return db->mode->freeze ? db->mode->freeze(db, key, record, length, until, f)
				: refuse_incapable(db, "freeze", f);
}

static enum rc
sql_thaw(struct store *s, const char *key, instant until, struct fault *f)
{
	struct sql *db = without_claim(s, false);

	return db->mode->thaw ? db->mode->thaw(db, key, until, f)
			      : refuse_incapable(db, "thaw", f);
}

/* A server that is read-only is told of. */
static enum rc
sql_check(struct store *s, struct checkup *c, struct fault *f)
{
	struct sql *db = without_claim(s, !c->sweep);

	return db->driver->check(db, c, f);
}

const struct admin_ops sql_admin_ops = {
    sql_each, sql_revoke, sql_freeze, sql_thaw, sql_check};
