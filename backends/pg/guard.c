/*
 * guard.c - looks who could have put something into the schema dlock.
 *
 * The search path may be anybody's here, so every operator has its schema.  And
 * so may be the role in which the session began (ALTER DATABASE SET role), from
 * which a function steps back to the one that logged in: that one counts.
 */
#include "guard.h"

#include "connection.h"
#include "said.h"

#include <string.h>

#define EQUALS " OPERATOR(pg_catalog.=) "

/*
 * In a new session this is what a start-up pays for the guard, 0.6 ms, most of it
 * for the view (there is no other way to CREATEROLE and the like).  So: no more
 * functions and casts than must be.  To look first whether the whole schema is our own
 * would need three catalogs instead of it, and 0.3 to 0.6 ms more.
 */
const char guard_first[] =
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
static const char last_sql[] =
    "WITH n AS (SELECT * FROM pg_catalog.pg_namespace s WHERE s.nspname" EQUALS
    "'dlock'), "
    "w(who) AS (" OWNERS ") "
    "SELECT CASE WHEN EXISTS (SELECT FROM n) THEN NOT EXISTS (SELECT FROM w WHERE NOT EXISTS (SELECT FROM pg_catalog.pg_roles r "
    "WHERE r.oid" EQUALS "w.who AND (r.rolsuper OR r.rolname" EQUALS
    "session_user))) END, EXISTS (SELECT FROM n JOIN pg_catalog.pg_proc p ON p.pronamespace" EQUALS
    "n.oid WHERE p.proname" EQUALS "'" SCHEMA_SERVES "')";

/* It is as if the function were not there that the question is about. */
static enum rc
refuse_absent(struct connection *c, const char *state, struct fault *f)
{
	c->trust.full = false;
	said_set(c, state);
	return fault_set(
	    f, RC_CONFIG, "%s: there is no schema dlock of this version", c->db->where);
}

static enum rc
inspect(struct connection *c, instant until, struct fault *f)
{
	const struct question q = {.text = last_sql, .fields = 2, .harmless = true};
	struct answer a = {.db = NULL};
	bool is_there, readable, fine, serves;
	struct row row;
	enum rc rc = question_ask(c, &q, until, &a, f);

	if (rc != RC_OK)
		return rc;
	row = answer_next(&a);
	is_there = !row_is_null(&row, 0);
	readable = row_boolean(&row, 0, &fine) && row_boolean(&row, 1, &serves);
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
	    "%s: the schema dlock, or something in it, is neither a superuser's nor this role's, which has "
	    "too many rights to call foreign functions: use an ordinary role",
	    c->db->where);
}

static bool
is_needed(const struct connection *c)
{
	const char *super = c->pq->parameterStatus(c->pgconn, "is_superuser");

	return !c->pq->enterPipelineMode || (super && strcmp(super, "on") == 0);
}

enum rc
guard_exec(struct sql *db, const struct question *q, instant until, struct answer *a,
    struct fault *f)
{
	struct connection *c = &pg_of(db)->conn;
	enum rc rc = RC_OK;

	said_set(c, NULL);
	if (!connection_is_open(c->db))
		return connection_broken(c, f);
	if (!c->trust.full && !q->harmless && is_needed(c))
		rc = inspect(c, until, f);
	if (rc == RC_OK)
		rc = question_ask(c, q, until, a, f);
	if (!c->trust.stopped)
		return rc;
	c->trust.stopped = false;
	rc = inspect(c, until, f);
	return rc == RC_OK ? question_ask(c, q, until, a, f) : rc;
}

enum rc
guard_pass(struct connection *c, instant until, struct fault *f)
{
	const struct question q = {.text = guard_first, .harmless = true};
	enum rc rc = connection_open(c->db, until, f);

	if (rc != RC_OK || c->trust.full)
		return rc;
	if (is_needed(c))
		return inspect(c, until, f);
	rc = question_ask(c, &q, until, NULL, f);
	c->trust.full = rc == RC_OK;
	return said_state(c, GUARD_STOPS) ? inspect(c, until, f) : rc;
}
