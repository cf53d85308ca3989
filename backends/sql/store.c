/* store.c - what is asked of any database, and asked again; and which mode does it. */
#include "sql.h"

#include "backends/common/setting.h"
#include "backends/common/identity.h"
#include "backends/common/identity.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LOGIN_LEAST (5 * NS_PER_S)
#define RACES (2 * NS_PER_S) /* so long a transaction may lose races against others */

/* ---- answers ---- */

bool
answer_next(struct answer *a)
{
	bool any = a->db && a->next < a->rows && a->db->driver->read_row(a, a->next);

	a->next++;
	a->row = any ? (struct row){a->at, a->lengths} : (struct row){.at = NULL};
	return any;
}

void
answer_drop(struct answer *a)
{
	if (a->db)
		a->db->driver->drop(a);
	a->db = NULL;
}

enum rc
answer_boolean(struct answer *a, enum rc rc, bool *ret, struct fault *f)
{
	if (rc != RC_OK || !a->db)
		return rc;
	if (!row_boolean(&a->row, 0, ret))
		rc = sql_makes_no_sense(a->db, RC_PROTOCOL, f);
	answer_drop(a);
	return rc;
}

enum rc
sql_makes_no_sense(const struct sql *db, enum rc rc, struct fault *f)
{
	return fault_set(f, rc, "%s gave an answer that dlock's %s do not give",
	    db->where, db->driver->procedures);
}

/* ---- the connection ---- */

enum rc
sql_wait(struct sql *db, int fd, short events, instant until, struct fault *f)
{
	switch (db->base.host->wait(db->base.host, fd, events, until)) {
	case WOKE_READY:
		return RC_OK;
	case WOKE_TIMEOUT:
		return fault_set(f, RC_AGAIN, "%s does not answer", db->where);
	case WOKE_STOP:
		break;
	}
	return RC_STOP;
}

int64_t
sql_login_most(const struct sql *db)
{
	return db->retry.first > LOGIN_LEAST ? db->retry.first : LOGIN_LEAST;
}

enum { LOOK_MS = 100 }; /* so often a login looks whether anybody still waits */

bool
sql_login_wait(const struct task *t, int fd, short events, int beside, instant end)
{
	struct pollfd p[] = {
	    {.fd = fd, .events = events}, {.fd = beside, .events = POLLIN}};
	instant now;

	while (!atomic_load(&t->dropped) && (now = instant_now()) < end) {
		int64_t left = ns_to_ms(end - now);

		if (poll(p, 2, left < LOOK_MS ? (int)left : LOOK_MS) > 0)
			return p[0].revents != 0;
	}
	return false;
}

enum rc
sql_open(struct sql *db, instant until, struct fault *f)
{
	enum rc rc;

	*db->error = '\0';
	db->unreplicated = false;
	if (db->driver->is_open(db))
		return RC_OK;
	if (!db->login)
		db->login = db->driver->login(db);
	if (!db->login)
		return fault_set(
		    f, RC_SYSTEM, "cannot start a thread: %s", strerror(errno));
	rc = sql_wait(db, db->login->done, POLLIN, until, f);
	if (rc != RC_OK)
		return rc;
	rc = db->driver->adopt(db, db->login, until, f);
	task_drop(db->login);
	db->login = NULL;
	return rc;
}

enum rc
sql_broken(struct sql *db, struct fault *f)
{
	db->driver->close(db);
	return fault_set(f, RC_AGAIN, "%s closed the connection%s%s", db->where,
	    *db->last_words ? ": " : "", db->last_words);
}

enum rc
sql_endless(const struct sql *db, struct fault *f)
{
	return fault_set(f, RC_AGAIN, "%s does not end its answer", db->where);
}

/* ---- errors ---- */

bool
sql_error_is(const struct sql *db, const char *codes)
{
	while (*db->error) {
		size_t n = strcspn(codes, " ");

		if (strncmp(db->error, codes, n) == 0)
			return true;
		if (!codes[n])
			break;
		codes += n + 1;
	}
	return false;
}

bool
sql_is_failure(const struct sql *db, enum sql_failure failure)
{
	return sql_error_is(db, db->driver->failures[failure]);
}

enum rc
sql_refused(const struct sql *db, const char *text, struct fault *f)
{
	const struct sql_meaning *m = db->driver->meanings;

	while (*m->codes && !sql_error_is(db, m->codes))
		m++;
	return fault_set(f, m->rc, "%s says '%.240s' (%s)%s%s", db->where, text,
	    db->error, m->hint ? ": " : "", m->hint ? m->hint : "");
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

enum rc
sql_exec_plainly(struct sql *db, const struct question *q, instant until,
    struct answer *a, struct fault *f)
{
	const struct sql_driver *d = db->driver;
	enum rc rc;

	*db->error = '\0';
	if (!d->is_open(db))
		return sql_broken(db, f);
	if (a)
		a->sent = instant_now();
	rc = d->send(db, q, until, f);
	if (rc == RC_OK)
		rc = d->receive(db, q, until, a, f);
	if (rc == RC_OK && a && !q->many)
		(void)answer_next(a);
	if (d->is_pending(db))
		d->close(db);
	return rc;
}

void
sql_undo(struct sql *db, instant until)
{
	static const struct question rollback = {.text = "ROLLBACK", .harmless = true};
	char error[sizeof db->error];
	struct fault unheard;

	memcpy(error, db->error, sizeof error);
	if (sql_exec_plainly(db, &rollback, until, NULL, &unheard) != RC_OK)
		db->driver->close(db); /* which rolls back, too */
	memcpy(db->error, error, sizeof error);
}

/* One attempt. */
static enum rc
sql_ask_once(struct sql *db, const struct question *q, instant until, struct answer *a,
    struct fault *f)
{
	enum rc rc = sql_open(db, until, f);

	if (rc == RC_OK)
		rc = sql_exec(db, q, until, a, f);
	if (rc == RC_OK && db->unreplicated) {
		if (a)
			answer_drop(a);
		rc = fault_set(
		    f, RC_AGAIN, "%s does not wait for its standby", db->where);
	}
	return rc;
}

bool
sql_is_one_of_several(const struct sql *db)
{
	return db->driver->is_one_of_several && db->driver->is_one_of_several(db);
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
		if (db->unreplicated) {
			db->again = true; /* it may stand, without its standby */
			continue;
		}
		if (sql_is_failure(db, SQL_LOST_RACE) && now < races_end) {
			/*
			 * It has changed nothing; but a node of a cluster may say so of one that it
			 * has replayed, and that stands.
			 */
			db->again = db->again || sql_is_one_of_several(db);
			/* a moment, not the same for all */
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
	return sql_is_failure(db, SQL_NO_TABLE) || sql_is_failure(db, SQL_NO_PROCEDURE);
}

enum rc
sql_explain_denial(const struct sql *db, enum rc rc, struct fault *f)
{
	if (rc != RC_DENIED || !sql_is_connected(db) || !sql_is_failure(db, SQL_NO_RIGHT))
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
	bool promotion = queued && rc == RC_CONFIG && sql_is_failure(db, SQL_READ_ONLY);
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

enum rc
sql_store_open(struct store **ret, const struct backend *backend,
    const struct sql_driver *driver, struct host *host, const struct site *site,
    struct fault *f)
{
	struct sql *db = calloc(1, driver->bytes);
	enum rc rc;

	if (!db)
		return fault_set(f, RC_SYSTEM, "out of memory");
	db->base = (struct store){backend, host, db->where, 0};
	db->driver = driver;
	db->mode = driver->modes[0];
	retry_init(&db->retry);
	rc = setting_read(&db->base, site, f);
	if (rc == RC_OK)
		rc = driver->init(db, site->url, f);
	if (rc == RC_OK && !(db->own = calloc(1, db->mode->bytes)))
		rc = fault_set(f, RC_SYSTEM, "out of memory");
	db->base.caps |= db->mode->caps;
	if (rc == RC_OK)
		*ret = &db->base;
	else
		sql_store_close(&db->base);
	return rc;
}

void
sql_store_close(struct store *s)
{
	struct sql *db = sql_of(s);

	if (!db)
		return;
	db->driver->close(db);
	task_drop(db->login);
	free(db->own);
	explicit_bzero(db, db->driver->bytes); /* there may be a password */
	free(db);
}

enum rc
sql_store_identify(struct store *s, struct identity *id, struct fault *f)
{
	identity_add(id, "mode", sql_of(s)->mode->name);
	return sql_of(s)->driver->identify(sql_of(s), id, f);
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
sql_release(struct store *s, struct outcome o, instant until, struct fault *f)
{
	return sql_of(s)->mode->release(sql_of(s), o, until, f);
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

	return db->mode->revoke(db, target, record, force, until, f);
}

static enum rc
sql_freeze(struct store *s, const char *key, const char *record, int64_t length,
    instant until, struct fault *f)
{
	struct sql *db = without_claim(s, false);

	return db->mode->freeze(db, key, record, length, until, f);
}

static enum rc
sql_thaw(struct store *s, const char *key, instant until, struct fault *f)
{
	struct sql *db = without_claim(s, false);

	return db->mode->thaw(db, key, until, f);
}

static enum rc
sql_forget(
    struct store *s, const char *key, const char *once, instant until, struct fault *f)
{
	struct sql *db = without_claim(s, false);

	return db->mode->forget(db, key, once, until, f);
}

/* A server that is read-only is told of. */
static enum rc
sql_check(struct store *s, struct checkup *c, struct fault *f)
{
	struct sql *db = without_claim(s, !c->sweep);

	return db->driver->check(db, c, f);
}

const struct admin_ops sql_admin_ops = {
    sql_each, sql_revoke, sql_freeze, sql_thaw, sql_forget, sql_check, NULL};
