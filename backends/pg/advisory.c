/*
 * advisory.c - mode=advisory: the lock is the session's advisory lock, as
 * other programs take it.
 *
 *  1. The session is made fit first: a lease (idle_session_timeout), a look now
 *     and then whether we still live (client_connection_check_interval), no
 *     other timeouts, a search path that nobody can tamper with, and a name for
 *     others to read.  The statement that does
 *     it does nothing on a standby, or where a pooler stands between; then the
 *     session is left as it was, and refused.
 *  2. Waiting is done in the server, in its fair queue, in chunks for the snapshot's
 *     sake (see lease.c); at the end of each one loses the place.
 *     So that readers do not get in there while a writer waits, there is a second
 *     advisory lock, the order lock: a writer that waits keeps it, and a reader takes it,
 *     shared, for the statement in which it asks.  Nobody who holds the lock waits
 *     for the order lock.
 *  3. A timeout, or a cancel, may come together with the grant: after either we
 *     look into pg_locks before anything else.
 *  4. Tokens are numbers of dlock's sequence.  Where there is no schema dlock
 *     and we may not make one, they are microseconds of the server's clock,
 *     behind which a sequence made later begins.
 */
#include "derive.h"
#include "sessions.h"

#include "errors.h"

#include "backends/sql/session_lock.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { LEASES = 140000 }; /* the first server that ends idle sessions */

/* mode=advisory's own. */
struct advisory {
	struct session_lock lock; /* its serial: of the session that has been made fit */
	bool no_schema;           /* there is none, and we may not make it */
	char lock_args[80];       /* the lock in SQL: as the functions take it, */
	char lock_is[160];        /* and as a condition on a row l of LOCKS; */
	bool has_order;           /* the session has its order lock: */
	char order_args[40], order_is[160];
};

static struct advisory *
advisory_of(const struct pg *pg)
{
	return sql_own(&pg->db, &advisory_mode);
}

/* What the server calls a lock of ours: the end of a function's name. */
static const char *
shared_suffix(const struct pg *pg)
{
	return pg->db.claim->kind == KIND_SHARED ? "_shared" : "";
}

/* ---- the session ---- */

static const char settle_sql[] =
    "SELECT s.direct, s.standby, CASE WHEN s.direct AND NOT s.standby THEN pg_catalog.concat("
    "pg_catalog.set_config('idle_session_timeout', $2, false), "
    "pg_catalog.set_config('client_connection_check_interval', '1s', false), "
    "pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', false), "
    "pg_catalog.set_config('statement_timeout', '0', false), "
    "pg_catalog.set_config('application_name', " SESSION_CALLED(
	"$3") ", false)) END "
	      "FROM (SELECT pg_catalog.pg_backend_pid() OPERATOR(pg_catalog.=) $1::pg_catalog.int4 AS "
	      "direct, "
	      "pg_catalog.pg_is_in_recovery() AS standby OFFSET 0) s";

static enum rc
refuse_session(struct pg *pg, const char *why, struct fault *f)
{
	connection_close(&pg->db);
	return fault_set(f, RC_CONFIG, "%s %s", pg->db.where, why);
}

/* Makes a new session fit, or finds that it cannot be. */
static enum rc
settle_session(struct pg *pg, instant until, struct fault *f)
{
	struct connection *c = &pg->conn;
	const struct question q = {.text = settle_sql,
	    SQL_VALUES(SQL_INT(c->pq->backendPID(c->pgconn)),
		SQL_INT(ns_to_ms(pg->db.claim->ttl)), SQL_TEXT(pg->db.claim->record)),
	    .fields = 3,
	    .harmless = true};
	bool direct = false, standby = false;
	struct answer a = {.db = NULL};
	enum rc rc;

	if (c->pq->serverVersion(c->pgconn) < LEASES)
		return refuse_session(pg,
		    "is older than PostgreSQL 14, which advisory locks need to end (mode=lease does not)",
		    f);
	rc = sql_exec(c->db, &q, until, &a, f);
	if (rc != RC_OK)
		return rc;
	if (!row_boolean(&a.row, 0, &direct) || !row_boolean(&a.row, 1, &standby))
		rc = sql_makes_no_sense(&pg->db, RC_PROTOCOL, f);
	answer_drop(&a);
	if (rc == RC_OK && !direct)
		return refuse_session(pg,
		    "is a pooler: it would give our session to other clients (mode=lease works there)",
		    f);
	if (rc == RC_OK && standby)
		return refuse_session(pg,
		    "is a standby, which has advisory locks of its own: a lock needs the primary",
		    f);
	advisory_of(pg)->lock.serial = pg->db.serial;
	advisory_of(pg)->has_order = false;
	return rc;
}

/* The advisory locks of this database. */
#define LOCKS \
	"(SELECT k.*, k.classid::pg_catalog.int8 AS high, k.objid::pg_catalog.int8 AS low, k.objsubid AS form " \
	"FROM pg_catalog.pg_locks k WHERE k.locktype OPERATOR(pg_catalog.=) 'advisory' " \
	"AND k.database OPERATOR(pg_catalog.=) (SELECT d.oid FROM pg_catalog.pg_database d " \
	"WHERE d.datname OPERATOR(pg_catalog.=) pg_catalog.current_database()))"

/* `form` 1: of 64 bits; 2: of two times 32. */
static void
write_condition(char sql[160], uint32_t high, uint32_t low, int form)
{
	snprintf(sql, 160,
	    "l.high OPERATOR(pg_catalog.=) %" PRIu32
	    " AND l.low OPERATOR(pg_catalog.=) %" PRIu32
	    " AND l.form OPERATOR(pg_catalog.=) %d",
	    high, low, form);
}

enum { ORDER = 1684828013 };

/*
 * Writes the lock, and its order lock, as SQL has them.  Only numbers get into a
 * statement.
 */
static void
write_number_as_sql(struct advisory *own, const struct number *n)
{
	uint32_t high = n->pair ? (uint32_t)n->two[0]
				: (uint32_t)((uint64_t)n->one >> 32);
	uint32_t low = n->pair ? (uint32_t)n->two[1] : (uint32_t)n->one;
	/* two locks with the same one only delay each other */
	uint32_t order = (high * 2 + n->pair) * 2654435761U ^ low;

	if (n->pair)
		snprintf(own->lock_args, sizeof own->lock_args,
		    "'%" PRId32 "'::pg_catalog.int4, '%" PRId32 "'::pg_catalog.int4",
		    n->two[0], n->two[1]);
	else
		snprintf(own->lock_args, sizeof own->lock_args,
		    "'%" PRId64 "'::pg_catalog.int8", n->one);
	write_condition(own->lock_is, high, low, n->pair ? 2 : 1);
	snprintf(own->order_args, sizeof own->order_args, "%d, '%" PRId32 "'", ORDER,
	    (int32_t)order);
	write_condition(own->order_is, ORDER, order, 2);
}

/* Which lock it is; some tools put the name of the database in. */
static enum rc
choose_number(struct pg *pg, const char *key, struct fault *f)
{
	struct number n;
	enum rc rc = RC_OK;

	if (pg->key)
		derive_read_number(&n, pg->key);
	else
		rc = derive_number(&n, pg->derive, pg->name ? pg->name : key,
		    pg->conn.pq->db(pg->conn.pgconn), f);
	if (rc == RC_OK)
		write_number_as_sql(advisory_of(pg), &n);
	return rc;
}

/* A connection that is fit, and still there. */
static enum rc
get_session(struct pg *pg, instant until, struct fault *f)
{
	enum rc rc;

	rc = sql_open(&pg->db, until, f);
	if (rc == RC_OK && advisory_of(pg)->lock.serial != pg->db.serial) {
		rc = choose_number(pg, pg->db.claim->key, f);
		if (rc == RC_OK)
			rc = settle_session(pg, until, f);
	}
	return rc;
}

/* ---- acquire ---- */

/*
 * A question with a token in it.  Where there is no schema to draw that from, and we may not
 * make it, it is a time.
 */
static enum rc
ask_for_token(struct pg *pg, const char *before, const char *behind, instant until,
    struct answer *a, struct fault *f)
{
	struct advisory *own = advisory_of(pg);
	char sql[800];
	struct question q = {.text = sql, .fields = 2};
	unsigned session = pg->db.serial;
	enum rc rc;

	do {
		snprintf(sql, sizeof sql, "SELECT %s%s%s", before,
		    own->no_schema
			? "(1000000 * EXTRACT(epoch FROM pg_catalog.clock_timestamp()))::pg_catalog.int8"
			: "dlock.number()",
		    behind);
		q.harmless = own->no_schema;
		rc = sql_exec(&pg->db, &q, until, a, f);
		if (rc == RC_OK || rc == RC_STOP || own->no_schema ||
		    !sql_is_missing(&pg->db))
			return sql_explain_denial(&pg->db, rc, f);
		rc = pg_create_schema(&pg->db, until, f);
		if (rc == RC_DENIED && sql_is_failure(&pg->db, SQL_NO_RIGHT)) {
			own->no_schema = true;
			rc = RC_OK;
		}
		/* another session has no lock of ours, and has not been made fit */
		if (rc == RC_OK && pg->db.serial != session)
			rc = connection_broken(&pg->conn, f);
	} while (rc == RC_OK);
	return rc;
}

static enum rc
read_token(struct pg *pg, const struct row *r, int field, instant sent, struct grant *g,
    struct fault *f)
{
	int64_t token;

	if (!row_integer(r, field, 1, INT64_MAX, &token))
		return sql_makes_no_sense(&pg->db, RC_PROTOCOL, f);
	session_lock_granted(&pg->db, token, sent, g);
	return RC_OK;
}

/* Takes it if it is free; *got: it was. */
static enum rc
try_lock(struct pg *pg, instant until, bool *got, struct grant *g, struct fault *f)
{
	struct advisory *own = advisory_of(pg);
	char behind[500], order[120] = "true";
	struct answer a = {.db = NULL};
	enum rc rc;

	*got = false;
	if (pg->db.claim->kind == KIND_SHARED)
		snprintf(order, sizeof order,
		    "pg_catalog.pg_try_advisory_xact_lock_shared(%s)", own->order_args);
	snprintf(behind, sizeof behind,
	    " END FROM (SELECT CASE WHEN %s THEN pg_catalog.pg_try_advisory_lock%s(%s) ELSE false END OFFSET 0) t(got)",
	    order, shared_suffix(pg), own->lock_args);
	rc = ask_for_token(pg, "t.got, CASE WHEN t.got THEN ", behind, until, &a, f);
	if (rc != RC_OK)
		return rc;
	if (!row_boolean(&a.row, 0, got))
		rc = sql_makes_no_sense(&pg->db, RC_PROTOCOL, f);
	if (rc == RC_OK && *got)
		rc = read_token(pg, &a.row, 1, a.sent, g, f);
	answer_drop(&a);
	return rc;
}

/*
 * The lock has been granted while we waited: a token, and by that question the lease.
 * The order lock is for who is next.
 */
static enum rc
confirm_lock(struct pg *pg, instant until, struct grant *g, struct fault *f)
{
	struct advisory *own = advisory_of(pg);
	char behind[120] = ", NULL";
	struct answer a = {.db = NULL};
	enum rc rc;

	if (own->has_order)
		snprintf(behind, sizeof behind, ", pg_catalog.pg_advisory_unlock(%s)",
		    own->order_args);
	rc = ask_for_token(pg, "", behind, until, &a, f);
	if (rc != RC_OK)
		return rc;
	rc = read_token(pg, &a.row, 0, a.sent, g, f);
	answer_drop(&a);
	return rc;
}

/* Has this session the lock that a condition names? */
#define OURS \
	"EXISTS (SELECT FROM l WHERE %s AND l.granted AND l.pid = pg_catalog.pg_backend_pid())"

/* Who is there?  *ours: it is we who hold it.  And have we the order lock? */
static enum rc
look_at_locks(struct pg *pg, instant until, bool *ours, struct fault *f)
{
	struct advisory *own = advisory_of(pg);
	char sql[3000];
	const struct question q = {.text = sql, .fields = 6, .harmless = true};
	struct answer a = {.db = NULL};
	enum rc rc;

	snprintf(sql, sizeof sql,
	    "WITH l AS " LOCKS " SELECT " OURS ", "
	    "(SELECT pg_catalog.count(*) FROM l WHERE (%s OR %s) AND NOT l.granted), "
	    "(SELECT " SESSION_ANY_RECORD
	    " FROM l LEFT JOIN pg_catalog.pg_stat_activity a ON a.pid = l.pid "
	    "WHERE %s AND l.granted LIMIT 1), h.*, " OURS " "
	    "FROM (SELECT pg_catalog.count(*), pg_catalog.bool_or(l.mode OPERATOR(pg_catalog.=) 'ShareLock') "
	    "FROM l WHERE %s AND l.granted) h",
	    own->lock_is, own->lock_is, own->order_is, own->lock_is, own->order_is,
	    own->lock_is);
	rc = sql_exec(&pg->db, &q, until, &a, f);
	if (rc != RC_OK)
		return rc;
	if (!row_boolean(&a.row, 0, ours) ||
	    (!*ours && !session_lock_read_queue(pg->db.base.host, &a.row, 1)) ||
	    !row_boolean(&a.row, 5, &own->has_order))
		rc = sql_makes_no_sense(&pg->db, RC_PROTOCOL, f);
	answer_drop(&a);
	return rc;
}

/*
 * How one comes to the lock through the order lock.  lock_timeout is the time for each of
 * them: for the second, it is what the first has left, and no more where the clock was set back.
 */
static void
write_order(const struct pg *pg, char *sql, size_t size)
{
	const struct advisory *own = advisory_of(pg);
	bool shared = pg->db.claim->kind == KIND_SHARED;

	*sql = '\0';
	if (shared || !own->has_order)
		snprintf(sql, size,
		    "pg_catalog.pg_advisory_%slock%s(%s), pg_catalog.set_config('lock_timeout', "
		    "GREATEST(1, $1::pg_catalog.text::pg_catalog.int8 OPERATOR(pg_catalog.-) GREATEST(0, "
		    "pg_catalog.date_part('epoch', pg_catalog.clock_timestamp() OPERATOR(pg_catalog.-) "
		    "pg_catalog.statement_timestamp()) OPERATOR(pg_catalog.*) 1000)::pg_catalog.int8)"
		    "::pg_catalog.text, false), ",
		    shared ? "xact_" : "", shared ? "_shared" : "", own->order_args);
}

/* One chunk in the server's queue.  RC_OK: it is over, whatever the reason. */
static enum rc
sleep_in_queue(struct pg *pg, int64_t ms, struct fault *f)
{
	instant wake = instant_now() + ms * NS_PER_MS;
	char sql[800], order[520];
	struct question q = {
	    .text = sql, SQL_VALUES(SQL_INT(ms)), .fields = 1, .harmless = true};
	enum rc rc;

	write_order(pg, order, sizeof order);
	if (*order)
		q.fields = 3;
	snprintf(sql, sizeof sql,
	    "SELECT %spg_catalog.pg_advisory_lock%s(%s) FROM pg_catalog.set_config('lock_timeout', $1, false)",
	    order, shared_suffix(pg), advisory_of(pg)->lock_args);
	rc = sql_exec(&pg->db, &q, wake + ASK_LEAST, NULL, f);
	if (rc == RC_AGAIN && sql_error_is(&pg->db, LOCK_TIMEOUT " " CANCELLED))
		return RC_OK;
	return rc;
}

/* Takes it if it is free, and otherwise looks who is there. */
static enum rc
advisory_ask(struct sql *db, instant until, bool *got, struct grant *g, struct fault *f)
{
	struct pg *pg = pg_of(db);
	bool ours;
	enum rc rc = get_session(pg, until, f);

	*got = false;
	if (rc == RC_OK)
		rc = try_lock(pg, until, got, g, f);
	return rc == RC_OK && !*got ? look_at_locks(pg, until, &ours, f) : rc;
}

/*
 * One chunk, and a look whether it has been granted.
 */
static enum rc
advisory_wait(struct sql *db, int64_t ms, instant until, bool *got, struct grant *g,
    struct fault *f)
{
	struct pg *pg = pg_of(db);
	instant by = retry_answer(instant_now(), db->retry.first, until);
	enum rc rc = get_session(pg, by, f);

	*got = false;
	if (rc == RC_OK)
		rc = sleep_in_queue(pg, ms, f);
	by = retry_answer(instant_now(), ASK_PATIENCE, until);
	if (rc == RC_OK)
		rc = look_at_locks(pg, by, got, f);
	return rc == RC_OK && *got ? confirm_lock(pg, by, g, f) : rc;
}

static struct question
advisory_still(const struct sql *db, bool ends, char *text)
{
	const struct advisory *own = advisory_of(pg_const(db));

	if (ends)
		snprintf(text, STILL_BYTES, "SELECT pg_catalog.pg_advisory_unlock%s(%s)",
		    shared_suffix(pg_const(db)), own->lock_args);
	else
		snprintf(
		    text, STILL_BYTES, "WITH l AS " LOCKS " SELECT " OURS, own->lock_is);
	return (struct question){.text = text, .fields = 1, .harmless = true};
}

/* ---- looking and steering ---- */

enum { PAGE = 1000 };

/* The columns of a look: how to name a lock whose key nobody can know; all of the order. */
enum { NAME, AT, SESSION, LISTED_FIELDS = SESSION + SESSION_FIELDS };

/* Since PostgreSQL 14 */
#define WAITSTART SESSION_US("(to_jsonb(k) ->> 'waitstart')::timestamptz")

/* dlock waits in pieces, with nothing before in its session. */
#define WAITS_SINCE \
	SESSION_US("CASE WHEN " SESSION_IS_DLOCK \
		   " THEN a.backend_start ELSE a.query_start END")

/*
 * Who has an advisory lock of this database, or waits for it: also those who wait for its
 * order lock.  Not dlock's own: order locks and the like (one of two numbers), and the
 * wake-up locks of mode=lease, whose sessions have no name of their own.
 *
 * Only numbers get into it.  The first statement makes operators what they are; both are
 * one transaction, so that it is nothing to whom a pooler lends the session next.
 */
static const char list_locks_sql[] =
    "SET LOCAL search_path = pg_catalog, pg_temp; "
    "WITH l AS (SELECT coalesce(k.pid, 0) AS pid, k.high, k.low, k.form, NOT k.granted AS waits, "
    "k.mode = 'ShareLock' AS shared, CASE WHEN k.granted THEN 0 ELSE coalesce(" WAITSTART
    ", 0) END AS came FROM " LOCKS " k), "
    "d AS (SELECT * FROM l WHERE form = 2 AND high = %d AND waits), "
    "o AS (SELECT * FROM l WHERE %s AND NOT (form = 2 AND high BETWEEN 1684828011 AND 1684828013)), "
    "t AS (SELECT DISTINCT high, low, form, mod((high::numeric * 2 + form - 1) * 2654435761, 4294967296)::bigint # low "
    "AS ordered FROM o WHERE EXISTS (SELECT FROM d)), "
    "q AS (SELECT * FROM (SELECT * FROM o UNION ALL SELECT d.pid, t.high, t.low, t.form, true, d.shared, d.came "
    "FROM d JOIN t ON d.low = t.ordered) u WHERE (high, low, form, waits::integer, came, pid) > (%s) "
    "ORDER BY high, low, form, waits, came, pid LIMIT %d) "
    "SELECT concat('-O key=', CASE form WHEN 2 THEN concat(high::bit(32)::integer, ',', low::bit(32)::integer) "
    "ELSE (high << 32 | low)::text END), concat_ws(', ', high, low, form, waits::integer, came, q.pid), "
    "q.pid, q.waits, q.shared, CASE WHEN q.waits THEN " WAITS_SINCE
    " END, " SESSION_COLUMNS " FROM q LEFT JOIN pg_stat_activity a ON a.pid = q.pid "
    "ORDER BY q.high, q.low, q.form, q.waits, q.came, q.pid";

/* A look, and where it has come to. */
struct advisory_look {
	struct sql_look seen;
	char at[128];
};

static bool
see_lock(void *ctx, const struct row *r)
{
	struct advisory_look *s = ctx;
	const char *key = s->seen.look->key;
	char name[48];

	if (!row_text(r, NAME, name, sizeof name) ||
	    !row_text(r, AT, s->at, sizeof s->at) ||
	    s->at[strspn(s->at, "-0123456789, ")])
		return false;
	return sessions_see(&s->seen, r, SESSION, key ? key : name);
}

#define NOT_DLOCKS_OWN \
	"(form = 2 OR pid NOT IN " \
	"(SELECT a.pid FROM pg_stat_activity a WHERE a.application_name = 'dlock'))"

/* Connects if need be, and names the lock of `key`, if there is one. */
static enum rc
reach_lock(struct pg *pg, const char *key, instant until, struct fault *f)
{
	enum rc rc = sql_open(&pg->db, until, f);

	return rc == RC_OK && key ? choose_number(pg, key, f) : rc;
}

static enum rc
advisory_each(struct sql *db, const struct look *look, struct fault *f)
{
	struct pg *pg = pg_of(db);
	struct advisory_look s = {.seen.look = look, .at = "-1, 0, 0, 0, 0, 0"};
	char sql[4096];
	const struct question q = {
	    .text = sql, .fields = LISTED_FIELDS, .harmless = true, .many = true};
	int n = PAGE;
	enum rc rc;

	db->reads = false; /* a standby has advisory locks of its own */
	rc = reach_lock(pg, look->key, look_answer_by(look), f);
	while (rc == RC_OK && n == PAGE && !s.seen.enough) {
		snprintf(sql, sizeof sql, list_locks_sql, ORDER,
		    look->key ? advisory_of(pg)->lock_is : NOT_DLOCKS_OWN, s.at, PAGE);
		rc = sql_look_page(db, &s.seen, &q, see_lock, &s, &n, f);
	}
	if (rc == RC_OK)
		sql_look_waiting(&s.seen);
	return rc;
}

/* Ends the session that holds it: nothing else takes such a lock away. */
static enum rc
advisory_revoke(struct sql *db, const struct target *target, const char *record,
    bool force, instant until, struct fault *f)
{
	struct pg *pg = pg_of(db);
	char from[800];
	enum rc rc = reach_lock(pg, target->key, until, f);

	(void)record, (void)force;
	if (rc != RC_OK)
		return rc;
	snprintf(from, sizeof from,
	    "pg_catalog.pg_stat_activity a WHERE EXISTS (SELECT FROM " LOCKS " l "
	    "WHERE %s AND l.granted AND l.pid OPERATOR(pg_catalog.=) a.pid)",
	    advisory_of(pg)->lock_is);
	return sessions_end(pg, target->owner, from, NULL, until, f);
}

static const struct session_lock_way way = {.ask = advisory_ask,
    .wait = advisory_wait,
    .wait_looks = true,
    .still = advisory_still};

const struct sql_mode advisory_mode = {
    .name = "advisory",
    .caps = CAP_SHARED | CAP_FORCE,
    .bytes = sizeof(struct advisory),
    .acquire = session_lock_acquire,
    .renew = session_lock_renew,
    .release = session_lock_release,
    .each = advisory_each,
    .revoke = advisory_revoke,
    .way = &way,
};
