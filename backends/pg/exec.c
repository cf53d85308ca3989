/*
 * exec.c - sends a statement, and reads the answer until the server has said all; looks before who
 * could have put something into the schema dlock.
 *
 * A function of the schema dlock can do, in the name of whoever calls it, all
 * that this one may.  Whoever owns a database can make that schema.  So a role
 * that has rights beyond its databases (a superuser, BYPASSRLS, CREATEROLE,
 * REPLICATION, a member of one that has, or of pg_execute_server_program and the
 * like) calls nothing of a schema in which anything belongs to others than a
 * superuser or itself, or where others may put things.
 *
 * An ordinary role pays no round trip for that: the guard goes before the
 * first question of each connection in the same packet, and where it fails the
 * server does not even look at the question.
 */
#include "errors.h"

#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>

/* ---- the guard ---- */

/*
 * The search path may be anybody's here, so every operator has its schema.  And
 * so may be the role in which the session began (ALTER DATABASE SET role), from
 * which a function steps back to the one that logged in: that one counts.
 */
#define EQUALS " OPERATOR(pg_catalog.=) "

/*
 * An error (GUARD_STOPS, a division by zero) where the role has such rights; otherwise
 * no row.  An error of a missing function (or schema) where the schema does not serve this
 * version: a look at its name, behind that, for nothing of it may be called yet.
 *
 * In a new session this is what a start-up pays for the guard, 0.6 ms, most of it
 * for the view (there is no other way to CREATEROLE and the like).  So: no more
 * functions and casts than must be.  To look first whether the whole schema is our own
 * would need three catalogs instead of it, and 0.3 to 0.6 ms more.
 */
static const char guard_first[] =
    "SELECT /* dlock looks at the schema first, for this role has many rights */ "
    "r.rolconnlimit OPERATOR(pg_catalog./) 0 FROM pg_catalog.pg_roles r "
    "WHERE (r.rolsuper OR r.rolbypassrls OR r.rolcreaterole OR r.rolreplication OR r.rolname" EQUALS
    "ANY ('{pg_execute_server_program, pg_read_server_files, pg_write_server_files, pg_read_all_data, "
    "pg_write_all_data, pg_signal_backend, pg_maintain, pg_create_subscription}'::pg_catalog.name[])) "
    "AND pg_catalog.pg_has_role(session_user, r.oid, 'MEMBER') "
    "UNION ALL SELECT 0 WHERE 'dlock." SCHEMA_SERVES
    "()'::pg_catalog.text::pg_catalog.regprocedure IS NULL";

/* Whoever owns the schema or something in it, or may put something there. */
#define OWNERS \
	"SELECT n.nspowner FROM n UNION ALL " \
	"SELECT p.proowner FROM n JOIN pg_catalog.pg_proc p ON p.pronamespace" EQUALS \
	"n.oid UNION ALL " \
	"SELECT c.relowner FROM n JOIN pg_catalog.pg_class c ON c.relnamespace" EQUALS \
	"n.oid UNION ALL " \
	"SELECT t.typowner FROM n JOIN pg_catalog.pg_type t ON t.typnamespace" EQUALS \
	"n.oid UNION ALL " \
	"SELECT a.grantee FROM n, pg_catalog.aclexplode(n.nspacl) a WHERE a.privilege_type" EQUALS \
	"'CREATE' UNION ALL " \
	"SELECT a.grantee FROM n JOIN pg_catalog.pg_class c ON c.relnamespace" EQUALS \
	"n.oid, " \
	"pg_catalog.aclexplode(c.relacl) a WHERE a.privilege_type" EQUALS "'TRIGGER'"

/*
 * Two booleans: may such a role call what is there now, and does that serve this version?
 * NULL: there is no schema.
 */
static const char inspect_sql[] =
    "WITH n AS (SELECT * FROM pg_catalog.pg_namespace s WHERE s.nspname" EQUALS
    "'dlock'), "
    "w(who) AS (" OWNERS ") "
    "SELECT CASE WHEN EXISTS (SELECT FROM n) THEN NOT EXISTS (SELECT FROM w WHERE NOT EXISTS (SELECT FROM pg_catalog.pg_roles r "
    "WHERE r.oid" EQUALS "w.who AND (r.rolsuper OR r.rolname" EQUALS
    "session_user))) END, EXISTS (SELECT FROM n JOIN pg_catalog.pg_proc p ON p.pronamespace" EQUALS
    "n.oid WHERE p.proname" EQUALS "'" SCHEMA_SERVES "')";

#define GUARD_STOPS "22012"

/* ---- sending ---- */

/* Sends everything; seldom more than one packet. */
static enum rc
push(struct connection *c, instant until, struct fault *f)
{
	int left;
	enum rc rc;

	while ((left = c->pq->flush(c->pgconn)) > 0) {
		rc = sql_wait(
		    c->db, c->pq->socket(c->pgconn), POLLIN | POLLOUT, until, f);
		if (rc != RC_OK)
			return rc;
		if (!c->pq->consumeInput(c->pgconn))
			return connection_broken(c, f);
	}
	return left == 0 ? RC_OK : connection_broken(c, f);
}

/* With its values as libpq wants them: texts, or NULL. */
static bool
send_with_values(struct connection *c, const struct question *q)
{
	const char *texts[SQL_VALUES_MAX];
	char numbers[SQL_VALUES_MAX][24];

	for (size_t i = 0; i < q->n; i++) {
		texts[i] = q->values[i].bytes;
		if (q->values[i].type == SQL_NUMBER) {
			snprintf(numbers[i], sizeof numbers[i], "%" PRId64,
			    q->values[i].number);
			texts[i] = numbers[i];
		}
	}
	return c->pq->sendQueryParams(
	    c->pgconn, q->text, (int)q->n, NULL, texts, NULL, NULL, 0);
}

/*
 * Where the functions are not trusted yet, the guard goes first, in the same packet: if it
 * fails, the server skips what follows.  A statement without values goes the simple way,
 * which leaves nothing open in a transaction (a portal keeps a snapshot).
 */
enum rc
exec_send(struct sql *db, const struct question *q, instant until, struct fault *f)
{
	struct connection *c = &pg_of(db)->conn;
	bool sent;

	error_set(db, NULL);
	db->unreplicated = c->trust.stopped = c->trust.failed = false;
	c->bounds.read = 0;
	c->trust.asked = !c->trust.full && !q->harmless;
	if (c->trust.asked)
		sent = c->pq->enterPipelineMode(c->pgconn) &&
		    c->pq->sendQueryParams(
			c->pgconn, guard_first, 0, NULL, NULL, NULL, NULL, 0) &&
		    send_with_values(c, q) && c->pq->pipelineSync(c->pgconn);
	else
		sent = q->n > 0 ? send_with_values(c, q)
				: c->pq->sendQuery(c->pgconn, q->text);
	if (!sent)
		return connection_broken(c, f);
	c->pending.out = true;
	return push(c, until, f);
}

/* ---- receiving ---- */

/* Keeps a result: of several the first error, or else the last one.  True: it was the last. */
static bool
take_result(struct connection *c, PGresult *r)
{
	ExecStatusType status = c->pq->resultStatus(r);

	if (status == PGRES_PIPELINE_SYNC) {
		/* the end of what was sent together; the connection is as ever again */
		c->pq->clear(r);
		c->trust.asked = false;
		c->trust.full = c->pq->exitPipelineMode(c->pgconn) && !c->trust.failed;
		return true;
	}
	if (c->trust.asked && !c->pending.kept && status == PGRES_FATAL_ERROR) {
		/* the guard's answer comes first */
		error_set(c->db, c->pq->resultErrorField(r, PG_DIAG_SQLSTATE));
		c->trust.failed = true;
		c->trust.stopped = sql_error_is(c->db, GUARD_STOPS);
	}
	if (c->pending.kept &&
	    c->pq->resultStatus(c->pending.kept) == PGRES_FATAL_ERROR) {
		c->pq->clear(r);
	} else {
		c->pq->clear(c->pending.kept);
		c->pending.kept = r;
	}
	/* libpq would give the same one for ever */
	return status == PGRES_COPY_IN || status == PGRES_COPY_OUT ||
	    status == PGRES_COPY_BOTH || c->pq->status(c->pgconn) != CONNECTION_OK;
}

/*
 * Reads until the server has said all.  What has come is taken, however late we look at it: this
 * process may have been stopped meanwhile.
 */
static enum rc
collect_results(struct connection *c, instant until, struct fault *f)
{
	bool waited = false;

	for (;;) {
		PGresult *r;

		if (c->pq->isBusy(c->pgconn)) {
			enum rc rc;

			if (waited && instant_now() >= until)
				return sql_endless(c->db, f);
			rc = sql_wait(c->db, c->pq->socket(c->pgconn), POLLIN, until, f);
			if (rc != RC_OK)
				return c->bounds.endless ? connection_broken(c, f) : rc;
			waited = true;
			if (c->pq->consumeInput(c->pgconn) && !c->bounds.endless)
				continue;
			if (c->bounds.endless)
				return connection_broken(c, f);
			/* why it broke comes as a result */
		}
		r = c->pq->getResult(c->pgconn);
		if (!r && c->trust.asked && c->pq->status(c->pgconn) == CONNECTION_OK)
			continue; /* between the guard and the question */
		if (!r || take_result(c, r))
			break;
	}
	c->pending.out = false;
	return RC_OK;
}

/* What was asked for: one row, or any, of so many fields; or, for none, that it was done. */
static bool
is_as_asked(struct connection *c, const PGresult *r, const struct question *q)
{
	ExecStatusType status = c->pq->resultStatus(r);

	if (q->fields == 0)
		return status == PGRES_COMMAND_OK || status == PGRES_TUPLES_OK;
	return status == PGRES_TUPLES_OK && (q->many || c->pq->ntuples(r) == 1) &&
	    c->pq->nfields(r) == (int)q->fields;
}

enum rc
exec_receive(struct sql *db, const struct question *q, instant until, struct answer *a,
    struct fault *f)
{
	struct connection *c = &pg_of(db)->conn;
	enum rc rc = collect_results(c, until, f);
	PGresult *r = c->pending.kept;

	if (rc != RC_OK)
		return rc;
	c->pending.kept = NULL;
	if (!r || c->bounds.endless) {
		c->pq->clear(r);
		return connection_broken(c, f);
	}
	if (c->pq->resultStatus(r) == PGRES_FATAL_ERROR) {
		rc = error_of_result(c, r, f);
		if (c->pq->status(c->pgconn) != CONNECTION_OK)
			connection_close(c->db);
	} else if (!is_as_asked(c, r, q)) {
		connection_close(c->db);
		rc = sql_makes_no_sense(db, RC_PROTOCOL, f);
	} else if (a) {
		a->db = c->db;
		a->result = r;
		a->rows = c->pq->ntuples(r);
		a->next = 0;
		return RC_OK;
	}
	c->pq->clear(r);
	return rc;
}

/* It is as if the function were not there that the question is about. */
static enum rc
refuse_absent(struct connection *c, const char *state, struct fault *f)
{
	c->trust.full = false;
	error_set(c->db, state);
	return fault_set(
	    f, RC_CONFIG, "%s: there is no schema dlock of this version", c->db->where);
}

static enum rc
inspect(struct connection *c, instant until, struct fault *f)
{
	const struct question q = {.text = inspect_sql, .fields = 2, .harmless = true};
	struct answer a = {.db = NULL};
	bool is_there, readable, fine, serves;
	enum rc rc = sql_exec_plainly(c->db, &q, until, &a, f);

	if (rc != RC_OK)
		return rc;
	is_there = !row_is_null(&a.row, 0);
	readable = row_boolean(&a.row, 0, &fine) && row_boolean(&a.row, 1, &serves);
	answer_drop(&a);
	/* and who asked for one of its functions now might get another's */
	if (!is_there)
		return refuse_absent(c, "3F000", f);
	if (readable && fine && !serves)
		return refuse_absent(c, NO_FUNCTION, f);
	c->trust.full = readable && fine;
	if (c->trust.full)
		return RC_OK;
	connection_close(c->db);
	if (!readable)
		return fault_set(f, RC_PROTOCOL, "%s gave an answer that makes no sense",
		    c->db->where);
	return fault_set(f, RC_CONFIG,
	    "%s: the schema dlock, or something in it, is another ordinary role's, and this role has too many rights to call its functions: use an ordinary role",
	    c->db->where);
}

/* The server has said already that we have all rights; or the guard cannot go first. */
static bool
must_inspect(const struct connection *c)
{
	const char *super = c->pq->parameterStatus(c->pgconn, "is_superuser");

	return !c->pq->enterPipelineMode || (super && strcmp(super, "on") == 0);
}

enum rc
exec_question(struct sql *db, const struct question *q, instant until, struct answer *a,
    struct fault *f)
{
	struct connection *c = &pg_of(db)->conn;
	enum rc rc = RC_OK;

	if (c->pgconn && !c->trust.full && !q->harmless && must_inspect(c))
		rc = inspect(c, until, f);
	if (rc == RC_OK)
		rc = sql_exec_plainly(db, q, until, a, f);
	if (!c->trust.stopped)
		return rc;
	c->trust.stopped = false;
	rc = inspect(c, until, f);
	return rc == RC_OK ? sql_exec_plainly(db, q, until, a, f) : rc;
}

/* ---- rows ---- */

bool
exec_read_row(struct answer *a, int n)
{
	const struct pq *pq = pg_of(a->db)->conn.pq;
	int fields = pq->nfields(a->result);

	for (int i = 0; i < fields && i < FIELDS_MAX; i++) {
		a->at[i] = pq->getisnull(a->result, n, i) ? NULL
							  : pq->getvalue(a->result, n, i);
		a->lengths[i] = pq->getlength(a->result, n, i);
	}
	return true;
}

void
exec_drop(struct answer *a)
{
	pg_of(a->db)->conn.pq->clear(a->result);
}

bool
exec_is_pending(const struct sql *db)
{
	return pg_const(db)->conn.pending.out;
}
