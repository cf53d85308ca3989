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
 *  2. Waiting is done in the server, in its fair queue, in chunks of CHUNK for
 *     the snapshot's sake (see lease.c); at the end of each one loses the place.
 *     So that readers do not get in there while a writer waits, there is a second
 *     advisory lock, the order lock: a writer that waits keeps it, and a reader takes it,
 *     shared, for the statement in which it asks.  Nobody who holds the lock waits
 *     for the order lock.
 *  3. A timeout, or a cancel, may come together with the grant: after either we
 *     look into pg_locks before anything else.
 *  4. Tokens are numbers of dlock's sequence.  Where there is no schema dlock
 *     and we may not make one, they are microseconds of the server's clock,
 *     behind which a sequence made later begins.
 *  5. What holds for all locks bound to a session: bound.h.
 */
#include "bound.h"

#include "derive.h"
#include "sessions.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define CHUNK (3 * NS_PER_S)

enum { LEASES = 140000 }; /* the first server that ends idle sessions */

/* mode=advisory's own. */
struct advisory {
	struct bound bound;
	unsigned serial;     /* of the session that has been made fit */
	bool queued;         /* in some session */
	bool no_schema;      /* there is none, and we may not make it */
	char lock_args[80];  /* the lock in SQL: as the functions take it, */
	char lock_is[256];   /* and as a condition on pg_locks l; */
	char listed_is[120]; /* and on what a look lists */
	bool has_door;       /* the session does */
	char order_args[40]; /* that lock as the functions take it, */
	char order_is[256];  /* and as a condition */
};

static struct advisory *
advisory_of(const struct pg *pg)
{
	return pg_own(pg, &advisory_mode);
}

/* What the server calls a lock of ours: the end of a function's name. */
static const char *
shared_suffix(const struct pg *pg)
{
	return pg->claim->kind == KIND_SHARED ? "_shared" : "";
}

/* ---- the session ---- */

static const char settle_sql[] =
    "SELECT s.direct, s.standby, CASE WHEN s.direct AND NOT s.standby THEN pg_catalog.concat("
    "pg_catalog.set_config('idle_session_timeout', $2, false), "
    "pg_catalog.set_config('client_connection_check_interval', '1s', false), "
    "pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', false), "
    "pg_catalog.set_config('statement_timeout', '0', false), "
    "pg_catalog.set_config('application_name', " BOUND_NAME(
	"$3") ", false)) END "
	      "FROM (SELECT pg_catalog.pg_backend_pid() OPERATOR(pg_catalog.=) $1::pg_catalog.int4 AS "
	      "direct, "
	      "pg_catalog.pg_is_in_recovery() AS standby OFFSET 0) s";

/* Makes a new session fit, or finds that it cannot be. */
static enum rc
settle_session(struct pg *pg, instant until, struct fault *f)
{
	struct connection *c = &pg->conn;
	char pid[16];
	const char *values[] = {pid, pg->lease_ms, pg->claim->record};
	const struct question q = {
	    .sql = settle_sql, .n = 3, .values = values, .harmless = true};
	bool direct = false, standby = false;
	instant sent;
	PGresult *r;
	enum rc rc;

	if (c->pq->serverVersion(c->pgconn) < LEASES)
		return bound_refuse(pg,
		    "is older than PostgreSQL 14, which advisory locks need to end (mode=lease does not)",
		    f);
	snprintf(pid, sizeof pid, "%d", c->pq->backendPID(c->pgconn));
	rc = ask_here(c, &q, 3, until, &sent, &r, f);
	if (rc != RC_OK)
		return rc;
	if (!field_boolean(c->pq, r, 0, &direct) || !field_boolean(c->pq, r, 1, &standby))
		rc = fault_set(f, RC_PROTOCOL, "%s gave no sense", c->where);
	c->pq->clear(r);
	if (rc == RC_OK && !direct)
		return bound_refuse(pg,
		    "is a pooler: it would lend our session to others (mode=lease can live with that)",
		    f);
	if (rc == RC_OK && standby)
		return bound_refuse(pg,
		    "is a standby, which has advisory locks of its own: a lock needs the primary",
		    f);
	advisory_of(pg)->serial = c->serial;
	advisory_of(pg)->has_door = false;
	return rc;
}

/*
 * A condition on pg_locks l: it is this lock.  `form` 1: of 64 bits; 2: of two times 32.
 */
static void
write_condition(char *sql, size_t size, uint32_t high, uint32_t low, int form)
{
	snprintf(sql, size,
	    "l.locktype = 'advisory' AND l.database = (SELECT d.oid FROM pg_catalog.pg_database d "
	    "WHERE d.datname = pg_catalog.current_database()) AND l.classid = '%" PRIu32
	    "' AND l.objid = '%" PRIu32 "' AND l.objsubid = %d",
	    high, low, form);
}

enum { ORDER = 1684828013 };

/*
 * Writes the lock, and its order lock, as SQL has them.  Only numbers get into a
 * statement.
 */
static void
write_lock(struct advisory *own, const struct number *n)
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
	write_condition(own->lock_is, sizeof own->lock_is, high, low, n->pair ? 2 : 1);
	snprintf(own->listed_is, sizeof own->listed_is,
	    "high = %" PRIu32 " AND low = %" PRIu32 " AND form = %d", high, low,
	    n->pair ? 2 : 1);
	snprintf(own->order_args, sizeof own->order_args, "%d, '%" PRId32 "'", ORDER,
	    (int32_t)order);
	write_condition(own->order_is, sizeof own->order_is, ORDER, order, 2);
}

/* Which lock it is; some tools put the name of the database in. */
static enum rc
name_lock(struct pg *pg, const char *key, struct fault *f)
{
	struct number n;
	enum rc rc = RC_OK;

	if (pg->stated.key)
		derive_read_number(&n, pg->stated.key);
	else
		rc = derive_number(&n, derive_named(pg->stated.derive), key,
		    pg->conn.pq->db(pg->conn.pgconn), f);
	if (rc == RC_OK)
		write_lock(advisory_of(pg), &n);
	return rc;
}

/* A connection that is fit, and still there. */
static enum rc
get_session(struct pg *pg, instant until, struct fault *f)
{
	enum rc rc;

	(void)connection_is_open(&pg->conn);
	rc = connection_open(&pg->conn, until, f);
	if (rc == RC_OK && advisory_of(pg)->serial != pg->conn.serial) {
		rc = name_lock(pg, pg->claim->key, f);
		if (rc == RC_OK)
			rc = settle_session(pg, until, f);
	}
	return rc;
}

/* ---- acquire ---- */

/* Where the next token comes from, as an expression. */
static const char *
token_sql(const struct pg *pg)
{
	return advisory_of(pg)->no_schema
	    ? "(1000000 * EXTRACT(epoch FROM pg_catalog.clock_timestamp()))::pg_catalog.int8"
	    : "dlock.number()";
}

/*
 * After a question that wanted a token: was it in vain because there is no schema?  Sees
 * to that; RC_OK: ask again.
 */
static enum rc
get_numbers(struct pg *pg, enum rc rc, instant until, struct fault *f)
{
	struct advisory *own = advisory_of(pg);

	if (rc == RC_OK || rc == RC_STOP || own->no_schema || !pg_is_missing(pg))
		return rc == RC_OK ? RC_PROTOCOL : pg_explain_denial(pg, rc, f);
	rc = pg_create_schema(pg, until, f);
	if (rc == RC_DENIED && said_state(&pg->conn, "42501")) {
		own->no_schema = true;
		rc = RC_OK;
	}
	return rc;
}

static enum rc
ask_for_token(struct pg *pg, const char *sql, int fields, instant until, instant *sent,
    PGresult **r, struct fault *f)
{
	const struct question q = {.sql = sql, .harmless = advisory_of(pg)->no_schema};

	return ask_here(&pg->conn, &q, fields, until, sent, r, f);
}

static enum rc
read_token(struct pg *pg, const PGresult *r, int field, instant sent, struct grant *g,
    struct fault *f)
{
	int64_t token;

	if (!field_integer(pg->conn.pq, r, field, 1, INT64_MAX, &token))
		return fault_set(f, RC_PROTOCOL, "%s gave no sense", pg->conn.where);
	*g = (struct grant){.token = token,
	    .sent = sent,
	    .lease = pg->claim->ttl,
	    .anchor = pg->conn.pq->socket(pg->conn.pgconn)};
	bound_watch(pg, &advisory_of(pg)->bound);
	return RC_OK;
}

/* Takes it if it is free; *got: it was. */
static enum rc
try_lock(struct pg *pg, instant until, bool *got, struct grant *g, struct fault *f)
{
	char sql[600], order[120] = "true";
	PGresult *r;
	instant sent;
	enum rc rc;

	*got = false;
	if (pg->claim->kind == KIND_SHARED)
		snprintf(order, sizeof order,
		    "pg_catalog.pg_try_advisory_xact_lock_shared(%s)",
		    advisory_of(pg)->order_args);
	do {
		snprintf(sql, sizeof sql,
		    "SELECT t.got, CASE WHEN t.got THEN %s END FROM "
		    "(SELECT CASE WHEN %s THEN pg_catalog.pg_try_advisory_lock%s(%s) ELSE false END OFFSET 0) t(got)",
		    token_sql(pg), order, shared_suffix(pg), advisory_of(pg)->lock_args);
		rc = ask_for_token(pg, sql, 2, until, &sent, &r, f);
		if (rc == RC_OK)
			break;
		rc = get_numbers(pg, rc, until, f);
	} while (rc == RC_OK);
	if (rc != RC_OK)
		return rc;
	if (!field_boolean(pg->conn.pq, r, 0, got))
		rc = fault_set(f, RC_PROTOCOL, "%s gave no sense", pg->conn.where);
	if (rc == RC_OK && *got)
		rc = read_token(pg, r, 1, sent, g, f);
	pg->conn.pq->clear(r);
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
	char sql[300];
	PGresult *r;
	instant sent;
	enum rc rc;

	snprintf(sql, sizeof sql,
	    own->has_door ? "SELECT %s, pg_catalog.pg_advisory_unlock(%s)"
			  : "SELECT %s, NULL",
	    token_sql(pg), own->order_args);
	rc = ask_for_token(pg, sql, 2, until, &sent, &r, f);
	if (rc != RC_OK)
		return pg_explain_denial(pg, rc, f);
	rc = read_token(pg, r, 0, sent, g, f);
	pg->conn.pq->clear(r);
	return rc;
}

/* Who is there?  *ours: it is we who hold it.  And have we the order lock? */
static enum rc
look_at_locks(struct pg *pg, instant until, bool *ours, struct fault *f)
{
	struct advisory *own = advisory_of(pg);
	char sql[4200];
	const struct question q = {.sql = sql, .harmless = true};
	PGresult *r;
	instant sent;
	enum rc rc;

	snprintf(sql, sizeof sql,
	    "SELECT EXISTS (SELECT FROM pg_catalog.pg_locks l WHERE %s AND l.granted AND l.pid = "
	    "pg_catalog.pg_backend_pid()), "
	    "(SELECT pg_catalog.count(*) FROM pg_catalog.pg_locks l WHERE (%s OR %s) AND NOT l.granted), "
	    "(SELECT " BOUND_RECORD
	    " FROM pg_catalog.pg_locks l LEFT JOIN pg_catalog.pg_stat_activity a ON a.pid = l.pid "
	    "WHERE %s AND l.granted LIMIT 1), h.*, "
	    "EXISTS (SELECT FROM pg_catalog.pg_locks l WHERE %s AND l.granted AND l.pid = pg_catalog.pg_backend_pid()) "
	    "FROM (SELECT pg_catalog.count(*), pg_catalog.bool_or(l.mode OPERATOR(pg_catalog.=) 'ShareLock') "
	    "FROM pg_catalog.pg_locks l WHERE %s AND l.granted) h",
	    own->lock_is, own->lock_is, own->order_is, own->lock_is, own->order_is,
	    own->lock_is);
	rc = ask_here(&pg->conn, &q, 6, until, &sent, &r, f);
	if (rc != RC_OK)
		return rc;
	if (!field_boolean(pg->conn.pq, r, 0, ours) || (!*ours && !bound_see(pg, r, 1)) ||
	    !field_boolean(pg->conn.pq, r, 5, &own->has_door))
		rc = fault_set(f, RC_PROTOCOL, "%s gave no sense", pg->conn.where);
	pg->conn.pq->clear(r);
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
	bool shared = pg->claim->kind == KIND_SHARED;

	*sql = '\0';
	if (shared || !own->has_door)
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
sleep_in_queue(struct pg *pg, instant until, struct fault *f)
{
	char sql[800], ms[24], order[520];
	const char *values[] = {ms};
	const struct question q = {
	    .sql = sql, .n = 1, .values = values, .harmless = true};
	instant now = instant_now(), wake = instant_first(now + CHUNK, until), sent;
	enum rc rc;

	write_order(pg, order, sizeof order);
	snprintf(sql, sizeof sql,
	    "SELECT %spg_catalog.pg_advisory_lock%s(%s) FROM pg_catalog.set_config('lock_timeout', $1, false)",
	    order, shared_suffix(pg), advisory_of(pg)->lock_args);
	snprintf(ms, sizeof ms, "%" PRId64, wake > now ? ns_to_ms(wake - now) : 1);
	rc = ask_here(&pg->conn, &q, *order ? 3 : 1, wake + ASK_LEAST, &sent, NULL, f);
	if (rc == RC_AGAIN &&
	    (said_state(&pg->conn, "55P03") || said_state(&pg->conn, "57014")))
		return RC_OK;
	return rc;
}

/* Waits on one session, until it is granted or something is wrong. */
static enum rc
wait_in_session(struct pg *pg, instant until, struct grant *g, struct fault *f)
{
	bool ours = false;
	instant by;
	enum rc rc;

	for (;;) {
		by = retry_answer(instant_now(), ASK_PATIENCE, until);
		rc = look_at_locks(pg, by, &ours, f);
		if (rc == RC_OK && ours)
			return confirm_lock(pg, by, g, f);
		if (rc == RC_OK && instant_now() >= until)
			return fault_set(f, RC_BUSY, "%s: still held", pg->conn.where);
		advisory_of(pg)->queued = true;
		if (rc == RC_OK)
			rc = sleep_in_queue(pg, until, f);
		if (rc != RC_OK)
			return rc;
	}
}

/* The whole of it on one connection, however often one is needed. */
static enum rc
try_session(
    struct pg *pg, instant patience, instant until, struct grant *g, struct fault *f)
{
	bool got = false, ours;
	enum rc rc = get_session(pg, patience, f);

	if (rc == RC_OK)
		rc = try_lock(pg, patience, &got, g, f);
	if (rc != RC_OK || got)
		return rc;
	if (until)
		return wait_in_session(pg, until, g, f);
	rc = look_at_locks(pg, patience, &ours, f);
	return rc == RC_OK ? fault_set(f, RC_BUSY, "%s: held", pg->conn.where) : rc;
}

static enum rc
advisory_acquire(struct pg *pg, instant until, struct grant *g, struct fault *f)
{
	struct advisory *own = advisory_of(pg);
	struct retry *p = &pg->patience;
	instant first_by = retry_first(p, until);
	unsigned serial;
	enum rc rc, next = RC_OK;

	do {
		serial = own->serial;
		rc = try_session(pg,
		    own->queued ? retry_answer(instant_now(), p->first, until)
				: retry_attempt_by(p, first_by),
		    until, g, f);
		if (own->serial != serial)
			retry_end_outage(p);
		if (rc != RC_OK)
			next = until ? pg_try_again(pg, rc, own->queued,
					   own->queued ? until : first_by)
				     : rc;
	} while (rc != RC_OK && next == RC_OK);
	if (rc != RC_OK)
		rc = next;
	if (rc != RC_OK)
		connection_close(&pg->conn); /* whatever it may have got */
	return rc;
}

/* ---- renew and release ---- */

static enum rc
advisory_renew(struct pg *pg, instant until, struct grant *g, struct fault *f)
{
	struct advisory *own = advisory_of(pg);
	char sql[500];
	const struct question q = {.sql = sql, .harmless = true};

	snprintf(sql, sizeof sql,
	    "SELECT EXISTS (SELECT FROM pg_catalog.pg_locks l WHERE %s AND l.granted AND l.pid = "
	    "pg_catalog.pg_backend_pid())",
	    own->lock_is);
	return bound_renew(pg, &own->bound, &q, false, until, g, f);
}

static enum rc
advisory_release(struct pg *pg, int status, instant until, struct fault *f)
{
	struct advisory *own = advisory_of(pg);
	char sql[160];
	const struct question q = {.sql = sql, .harmless = true};
	bool ours;
	PGresult *r;
	instant sent;
	enum rc rc;

	(void)status;
	if (!own->bound.held)
		return RC_OK;
	rc = bound_settle(pg, until, f);
	if (rc == RC_OK) {
		snprintf(sql, sizeof sql, "SELECT pg_catalog.pg_advisory_unlock%s(%s)",
		    shared_suffix(pg), own->lock_args);
		rc = ask_here(&pg->conn, &q, 1, until, &sent, &r, f);
		if (rc == RC_OK && (!field_boolean(pg->conn.pq, r, 0, &ours) || !ours))
			rc = fault_set(
			    f, RC_LOST, "%s no longer has it as ours", pg->conn.where);
		if (rc == RC_OK || rc == RC_LOST)
			pg->conn.pq->clear(r);
	}
	own->bound.held = false;
	connection_close(&pg->conn); /* if nothing else, this gives it back */
	return rc;
}

/* ---- looking and steering ---- */

enum { PAGE = 1000 };

/* The columns of a look before those of a session. */
enum { HIGH, LOW, FORM, CAME, SESSION, LISTED_FIELDS = SESSION + SESSION_FIELDS };

/* Where a look has come to: all of its statement's order. */
struct listed {
	int64_t high, low, form, waits, came, pid;
};

/* Since PostgreSQL 14 */
#define WAITSTART SESSION_US("(to_jsonb(k) ->> 'waitstart')::timestamptz")

/* dlock waits in pieces, with nothing before in its session. */
#define WAITS_SINCE \
	SESSION_US( \
	    "CASE WHEN " BOUND_IS_DLOCK " THEN a.backend_start ELSE a.query_start END")

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
    "WITH l AS (SELECT coalesce(k.pid, 0) AS pid, k.classid::bigint AS high, k.objid::bigint AS low, k.objsubid AS form, "
    "NOT k.granted AS waits, k.mode = 'ShareLock' AS shared, CASE WHEN k.granted THEN 0 ELSE coalesce(" WAITSTART
    ", 0) END AS came FROM pg_locks k WHERE k.locktype = 'advisory' AND k.database = "
    "(SELECT d.oid FROM pg_database d WHERE d.datname = current_database())), "
    "d AS (SELECT * FROM l WHERE form = 2 AND high = %d AND waits), "
    "o AS (SELECT * FROM l WHERE %s AND NOT (form = 2 AND high BETWEEN 1684828011 AND 1684828013)), "
    "t AS (SELECT DISTINCT high, low, form, mod((high::numeric * 2 + form - 1) * 2654435761, 4294967296)::bigint # low "
    "AS ordered FROM o WHERE EXISTS (SELECT FROM d)), "
    "q AS (SELECT * FROM (SELECT * FROM o UNION ALL SELECT d.pid, t.high, t.low, t.form, true, d.shared, d.came "
    "FROM d JOIN t ON d.low = t.ordered) u WHERE (high, low, form, waits::integer, came, pid) > (%s) "
    "ORDER BY high, low, form, waits, came, pid LIMIT %d) "
    "SELECT q.high, q.low, q.form, q.came, q.pid, q.waits, q.shared, CASE WHEN q.waits THEN " WAITS_SINCE
    " END, " SESSION_COLUMNS " FROM q LEFT JOIN pg_stat_activity a ON a.pid = q.pid "
    "ORDER BY q.high, q.low, q.form, q.waits, q.came, q.pid";

/*
 * What to call a lock whose key nobody can know: by the setting that names it.
 */
static void
write_number(char *key, size_t size, const struct listed *at)
{
	if (at->form == 2)
		snprintf(key, size, "-O key=%" PRId32 ",%" PRId32, (int32_t)at->high,
		    (int32_t)at->low);
	else
		snprintf(key, size, "-O key=%" PRId64,
		    (int64_t)((uint64_t)at->high << 32 | (uint64_t)at->low));
}

/* What the next page is behind. */
static void
write_listed(char *out, size_t size, const struct listed *at)
{
	snprintf(out, size,
	    "%" PRId64 ", %" PRId64 ", %" PRId64 ", %" PRId64 ", %" PRId64 ", %" PRId64,
	    at->high, at->low, at->form, at->waits, at->came, at->pid);
}

static bool
read_listed(const struct row *r, struct listed *at)
{
	bool waits;

	if (!row_boolean(r, SESSION + SESSION_WAITS, &waits))
		return false;
	at->waits = waits;
	return row_integer(r, HIGH, 0, UINT32_MAX, &at->high) &&
	    row_integer(r, LOW, 0, UINT32_MAX, &at->low) &&
	    row_integer(r, FORM, 1, 2, &at->form) &&
	    row_integer(r, CAME, 0, INT64_MAX, &at->came) &&
	    row_integer(r, SESSION + SESSION_PID, 0, INT32_MAX, &at->pid);
}

static bool
see_lock(struct sighting *s, const struct row *r, struct listed *at)
{
	char number[48];

	if (!read_listed(r, at))
		return false;
	write_number(number, sizeof number, at);
	return sessions_see(s, r, SESSION, s->look->key ? s->look->key : number);
}

#define NOT_DLOCKS_OWN \
	"(form = 2 OR pid NOT IN " \
	"(SELECT a.pid FROM pg_stat_activity a WHERE a.application_name = 'dlock'))"

/* The next page; *n: how many rows it had. */
static enum rc
see_locks(struct pg *pg, struct sighting *s, struct listed *at, int *n, struct fault *f)
{
	const struct pq *pq = pg->conn.pq;
	char sql[4096], behind[160];
	const struct question q = {.sql = sql, .harmless = true, .many = true};
	struct fields room;
	struct row row;
	PGresult *r;
	instant sent;
	enum rc rc;

	write_listed(behind, sizeof behind, at);
	snprintf(sql, sizeof sql, list_locks_sql, ORDER,
	    s->look->key ? advisory_of(pg)->listed_is : NOT_DLOCKS_OWN, behind, PAGE);
	*n = 0;
	rc = ask_server(&pg->conn, &q, LISTED_FIELDS, s->look->until, &sent, &r, f);
	if (rc != RC_OK)
		return rc;
	*n = pq->ntuples(r);
	for (int i = 0; i < *n && rc == RC_OK && !s->enough; i++) {
		row = field_row(pq, r, i, &room);
		if (!see_lock(s, &row, at))
			rc = pg_makes_no_sense(pg, RC_PROTOCOL, f);
	}
	pq->clear(r);
	return rc;
}

/* Connects if need be, and names the lock of `key`, if there is one. */
static enum rc
reach_lock(struct pg *pg, const char *key, instant until, struct fault *f)
{
	enum rc rc = connection_open(&pg->conn, until, f);

	return rc == RC_OK && key ? name_lock(pg, key, f) : rc;
}

static enum rc
advisory_each(struct pg *pg, const struct look *look, struct fault *f)
{
	struct sighting s = {.look = look};
	struct listed at = {.high = -1};
	enum rc rc = reach_lock(pg, look->key, look->until, f);
	int n = PAGE;

	while (rc == RC_OK && n == PAGE && !s.enough)
		rc = see_locks(pg, &s, &at, &n, f);
	if (rc == RC_OK)
		sighting_tell_waiting(&s);
	return rc;
}

/* Ends the session that holds it: nothing else takes such a lock away. */
static enum rc
advisory_revoke(struct pg *pg, const struct target *target, const char *record,
    bool force, instant until, struct fault *f)
{
	char sql[1024];
	const struct question q = {.sql = sql, .harmless = true, .many = true};
	struct session session;
	PGresult *r = NULL;
	instant sent;
	enum rc rc = reach_lock(pg, target->key, until, f);

	(void)record, (void)force;
	if (rc != RC_OK || !session_of_owner(target->owner, &session))
		return sessions_ended(pg, rc, NULL, f);
	snprintf(sql, sizeof sql,
	    "SET LOCAL search_path = pg_catalog, pg_temp; SELECT " SESSION_ENDING
	    " FROM pg_stat_activity a WHERE a.pid = %" PRId64
	    " AND (a.backend_start IS NULL OR " SESSION_US(
		"a.backend_start") " = %" PRId64
				   ") AND EXISTS (SELECT FROM pg_locks l WHERE %s AND l.granted AND l.pid = a.pid)",
	    sessions_patience(pg), session.pid, session.began, advisory_of(pg)->lock_is);
	rc = ask_here(&pg->conn, &q, 1, until, &sent, &r, f);
	return sessions_ended(pg, rc, r, f);
}

const struct steering advisory_steering = {
    .each = advisory_each,
    .revoke = advisory_revoke,
};

const struct mode advisory_mode = {
    .name = "advisory",
    .caps = CAP_SHARED | CAP_FORCE,
    .bytes = sizeof(struct advisory),
    .acquire = advisory_acquire,
    .renew = advisory_renew,
    .release = advisory_release,
    .steering = &advisory_steering,
};
