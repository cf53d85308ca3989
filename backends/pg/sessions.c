/* sessions.c - tells of sessions that hold a lock or wait, and ends one. */
#include "sessions.h"

#include "errors.h"

#include <inttypes.h>
#include <stdio.h>

enum { TERMINATE_WAITS = 140000 }; /* the first server that waits for a session's end */

/* ---- looking ---- */

/*
 * What is known of who is no dlock.  Of the process only the server's end is: that is no
 * pid of the client's, with whose address it would invite to end another one.
 */
static struct foreign
read_foreign(const struct row *r, int first, const struct session_name *session,
    char *what, size_t size)
{
	const char *name = row_words(r, first + SESSION_NAME);

	if (session->session == 0)
		snprintf(what, size, "a prepared transaction");
	else
		snprintf(what, size, "a session%s%.80s (server process %" PRId64 ")",
		    name && *name ? " of " : "", name ? name : "", session->session);
	return (struct foreign){.what = what,
	    .who = row_words(r, first + SESSION_USER),
	    .host = row_words(r, first + SESSION_HOST)};
}

bool
sessions_see(struct sql_look *s, const struct row *r, int first, const char *key)
{
	char owner[SESSION_NAME_BYTES], what[160];
	struct session_name session;
	struct foreign foreign;
	struct entry e = {.slot = -1, .until = EPOCH_NONE};
	bool waits, shared;

	if (!row_integer(r, first + SESSION_PID, 0, INT32_MAX, &session.session) ||
	    !row_boolean(r, first + SESSION_WAITS, &waits) ||
	    !row_boolean(r, first + SESSION_SHARED, &shared) ||
	    !row_integer(r, first + SESSION_MOMENT, 0, INT64_MAX, &s->now))
		return false;
	sql_look_key(s, key);
	if (!row_integer(r, first + SESSION_BEGAN, 1, INT64_MAX, &session.second))
		session.second = 0;
	e.since = row_time(r, first + SESSION_SINCE);
	session_name_write(owner, &session);
	e.kind = waits ? ENTRY_WAITER : ENTRY_HOLDER;
	e.key = s->key;
	e.lock = shared ? KIND_SHARED : KIND_EXCLUSIVE;
	e.owner = owner;
	e.record = row_words(r, first + SESSION_RECORD);
	if (!e.record) {
		foreign = read_foreign(r, first, &session, what, sizeof what);
		e.foreign = &foreign;
	}
	sql_look_claim(s, &e);
	return true;
}

/* ---- ending one ---- */

/* It takes rights over the session, and more to see which one it is. */
static enum rc
refuse_ending(struct pg *pg, struct fault *f)
{
	return fault_set(f, RC_DENIED,
	    "%s: this role may not end that session: use the role that holds it, a superuser, or "
	    "GRANT pg_signal_backend, pg_read_all_stats TO the role",
	    pg->db.where);
}

/*
 * The answer is true; false: not yet; NULL: when it began is not for this role to see.  No
 * row: there is no such session.
 */
static enum rc
read_ended(struct pg *pg, struct answer *a, struct fault *f)
{
	bool ended;

	if (!answer_next(a))
		return fault_set(
		    f, RC_LOST, "%s has no such session (any more)", pg->db.where);
	if (row_is_null(&a->row, 0))
		return refuse_ending(pg, f);
	if (!row_boolean(&a->row, 0, &ended))
		return sql_makes_no_sense(&pg->db, RC_PROTOCOL, f);
	return ended
	    ? RC_OK
	    : fault_set(f, RC_AGAIN,
		  "%s: the session was told to end, and has not ended yet", pg->db.where);
}

enum rc
sessions_end(struct pg *pg, const char *owner, const char *from, const char *key,
    instant until, struct fault *f)
{
	struct connection *c = &pg->conn;
	struct session_name session = {0};
	bool is_session = session_name_read(owner, &session);
	char sql[1600];
	const struct sql_value values[] = {
	    SQL_INT(session.session), SQL_INT(session.second), SQL_TEXT(key)};
	const struct question q = {.text = sql,
	    .values = values,
	    .n = key ? 3 : 2,
	    .fields = 1,
	    .many = true,
	    .harmless = !key};
	struct answer a = {.db = NULL};
	enum rc rc = sql_open(&pg->db, until, f);

	if (rc == RC_OK && is_session) {
		snprintf(sql, sizeof sql,
		    "SELECT CASE WHEN a.backend_start IS NOT NULL THEN pg_catalog.pg_terminate_backend(a.pid%s) END "
		    "FROM %s AND a.pid OPERATOR(pg_catalog.=) $1::pg_catalog.int8 AND (a.backend_start IS NULL OR " SESSION_US(
			"a.backend_start") " OPERATOR(pg_catalog.=) $2::pg_catalog.int8) LIMIT 1",
		    c->pq->serverVersion(c->pgconn) >= TERMINATE_WAITS ? ", 5000" : "",
		    from);
		rc = sql_ask_existing(&pg->db, &q, until, &a, f);
	}
	if (rc == RC_DENIED && sql_is_failure(&pg->db, SQL_NO_RIGHT))
		return refuse_ending(pg, f);
	if (rc == RC_OK)
		rc = read_ended(pg, &a, f);
	answer_drop(&a);
	/* asked twice: the first time may have ended it */
	return rc == RC_LOST && is_session && pg->db.again ? RC_OK : rc;
}
