/* session.c - opens a session, asks in it, and closes it. */
#include "mysql.h"

#include "connect.h"
#include "errors.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* a page of a look is less than one */
#define ANSWER_MOST ((size_t)4 << 20)

enum { IDLE_MORE_S = 5, IDLE_LEAST_S = 10, IDLE_MOST_S = 31536000, RESULTS_MAX = 8 };

#define TIME_MOST (INT64_MAX / 2) /* microseconds: what is reckoned with them fits */

/*
 * ---- the text of a statement ----
 *
 * What the user named stands there as hexadecimal literals: there is nothing to escape, and no
 * character set that changes it.
 */

/* A text that grows; its end, and how many bytes are left behind it (0: something did not fit). */
struct text {
	char *end;
	size_t left;
};

static void
append(struct text *t, const char *text, size_t n)
{
	if (n >= t->left) {
		t->left = 0;
		return;
	}
	memcpy(t->end, text, n);
	t->end += n;
	t->left -= n;
	*t->end = '\0';
}

static void
put_literal(struct text *t, const struct sql_value *v)
{
	static const char digits[] = "0123456789abcdef";
	char number[24];

	if (v->type == SQL_NUMBER) {
		snprintf(number, sizeof number, "%" PRId64, v->number);
		append(t, number, strlen(number));
		return;
	}
	if (!v->bytes) {
		append(t, "NULL", 4);
		return;
	}
	/* x'6a6f62' is binary, as are the columns that it is compared with */
	append(t, "x'", 2);
	for (const unsigned char *c = (const unsigned char *)v->bytes; *c; c++)
		append(t, (const char[]){digits[*c >> 4], digits[*c & 15]}, 2);
	append(t, "'", 1);
}

/* The text of a question with its values in place of $1 and so on.  False: it does not fit. */
static bool
write_statement(char out[STATEMENT_BYTES], const struct question *q)
{
	struct text t = {out, STATEMENT_BYTES};
	const char *text = q->text, *mark;

	while ((mark = strchr(text, '$'))) {
		char *end = NULL;
		unsigned long n = strtoul(mark + 1, &end, 10);

		append(&t, text, mark - text);
		text = mark + 1;
		if (n > 0 && n <= q->n) {
			put_literal(&t, &q->values[n - 1]);
			text = end;
		} else {
			append(&t, "$", 1);
		}
	}
	append(&t, text, strlen(text));
	return t.left > 0;
}

/* ---- one statement ---- */

/* Begins a stage (ready: 0), or goes on with it: what libmariadb waits for now. */
static void
run_stage(struct session *s, enum stage stage, int ready)
{
	struct pending *p = &s->pending;
	const struct libmariadb *my = s->my;

	p->stage = stage;
	libmariadb_enter(s->mysql, &p->left, NULL);
	switch (stage) {
	case STAGE_QUERY:
		p->status = ready ? my->real_query_cont(&p->error, s->mysql, ready)
				  : my->real_query_start(&p->error, s->mysql,
					s->statement, strlen(s->statement));
		break;
	case STAGE_STORE:
		p->status = ready ? my->store_result_cont(&p->came, s->mysql, ready)
				  : my->store_result_start(&p->came, s->mysql);
		break;
	case STAGE_NEXT:
		p->status = ready ? my->next_result_cont(&p->error, s->mysql, ready)
				  : my->next_result_start(&p->error, s->mysql);
		break;
	case STAGE_NONE:
		break;
	}
	libmariadb_leave();
}

/* A stage is over: begins the one behind it.  False: it has ended in an error. */
static bool
end_stage(struct session *s)
{
	struct pending *p = &s->pending;
	bool stored = p->stage == STAGE_STORE;

	if (p->stage == STAGE_NEXT && p->error == -1 &&
	    s->my->error_number(s->mysql) == 0) {
		p->stage = STAGE_NONE; /* that was all */
		return true;
	}
	if (stored ? !p->came : p->error != 0)
		return false;
	if (stored) {
		p->results++;
		if (p->kept) /* of several results the first is what was asked for */
			s->my->free_result(p->came);
		else
			p->kept = p->came;
		p->came = NULL;
	}
	run_stage(
	    s, !stored && s->my->field_count(s->mysql) > 0 ? STAGE_STORE : STAGE_NEXT, 0);
	return true;
}

/* Waits for what libmariadb waits for, and lets it go on. */
static enum rc
wait_in_stage(struct session *s, instant until, struct fault *f)
{
	int status = s->pending.status;
	enum rc rc = sql_wait(
	    s->db, session_fd(s->db), libmariadb_events(status), until, f);

	if (rc == RC_OK)
		run_stage(
		    s, s->pending.stage, status & (MYSQL_WAIT_READ | MYSQL_WAIT_WRITE));
	return rc;
}

enum rc
session_send(struct sql *db, const struct question *q, instant until, struct fault *f)
{
	struct session *s = &mysql_of(db)->session;
	enum rc rc = RC_OK;

	*db->error = '\0';
	if (!write_statement(s->statement, q))
		return fault_set(f, RC_SYSTEM, "a statement is too long");
	s->pending = (struct pending){.left = ANSWER_MOST};
	run_stage(s, STAGE_QUERY, 0);
	while (rc == RC_OK && s->pending.status & MYSQL_WAIT_WRITE)
		rc = wait_in_stage(s, until, f);
	return rc;
}

bool
session_is_busy(const struct sql *db)
{
	return mysql_const(db)->session.pending.stage != STAGE_NONE;
}

static void
forget_answer(struct session *s)
{
	if (s->pending.kept)
		s->my->free_result(s->pending.kept);
	s->pending = (struct pending){.stage = STAGE_NONE};
}

/* An error of the server's, or the end of the session. */
static enum rc
session_failed(struct session *s, struct fault *f)
{
	enum rc rc = errors_of_statement(s, f);

	if (s->pending.left == 0)
		rc = sql_endless(s->db, f);
	forget_answer(s);
	/* the server's clock may have been set: a new session asks it again */
	if (!*s->db->error || sql_error_is(s->db, ERROR_LATE))
		session_close(s->db);
	return rc;
}

/* One row, or any, of so many fields; or, for none, that it was done. */
static bool
session_is_as_asked(const struct session *s, const struct question *q)
{
	MYSQL_RES *r = s->pending.kept;

	if (q->fields == 0)
		return !r;
	return r && s->pending.results == 1 && s->my->num_fields(r) == q->fields &&
	    (q->many || s->my->num_rows(r) == 1);
}

enum rc
session_receive(struct sql *db, const struct question *q, instant until, struct answer *a,
    struct fault *f)
{
	struct session *s = &mysql_of(db)->session;
	struct pending *p = &s->pending;
	enum rc rc;

	while (session_is_busy(db)) {
		if (p->status) {
			rc = wait_in_stage(s, until, f);
			if (rc != RC_OK)
				return rc;
		} else if (!end_stage(s)) {
			return session_failed(s, f);
		}
		if (session_is_busy(db) &&
		    (p->results > RESULTS_MAX || instant_now() >= until))
			return sql_endless(db, f);
	}
	if (!session_is_as_asked(s, q)) {
		session_close(db);
		return fault_set(f, RC_PROTOCOL,
		    "%s sent an answer that does not fit the question", db->where);
	}
	if (a && p->kept) {
		a->db = db;
		a->result = p->kept;
		a->rows = (int)s->my->num_rows(a->result);
		a->next = 0;
		p->kept = NULL;
	}
	forget_answer(s);
	return RC_OK;
}

/* ---- a new session ---- */

/*
 * The setup of a session of dlock's: neither option files nor the server's own settings change
 * what its statements do.
 */
static void
write_setup(const struct session *s, char *sql, size_t size)
{
	bool is_mariadb = s->server.is_mariadb;
	int64_t ttl_s = s->db->ttl / NS_PER_S;
	int64_t idle_s = s->unfit_sql
	    ? (s->db->ttl + NS_PER_S - 1) / NS_PER_S /* never less than the lease */
	    : (ttl_s < IDLE_LEAST_S ? IDLE_LEAST_S : ttl_s) + IDLE_MORE_S;

	snprintf(sql, size,
	    "SET NAMES utf8mb4; "
	    "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED, READ WRITE; "
	    "SET autocommit = 1, time_zone = '+00:00', completion_type = 0, "
	    "sql_mode = 'STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION', innodb_lock_wait_timeout = 2, "
	    "lock_wait_timeout = 2, sql_safe_updates = 0, sql_big_selects = 1, "
	    "sql_select_limit = 18446744073709551615, div_precision_increment = 4, "
	    "unique_checks = 1, foreign_key_checks = 1, wait_timeout = %" PRId64
	    "%s; %s; SELECT CONNECTION_ID(), NOT " SERVER_IS_PRIMARY ", %s, " SERVER_CLOCK
	    ", %s, %s, DATABASE()",
	    instant_first(idle_s, IDLE_MOST_S),
	    is_mariadb
		? ", max_statement_time = 0, idle_transaction_timeout = 0, "
		  "idle_write_transaction_timeout = 0, idle_readonly_transaction_timeout = 0"
		: ", max_execution_time = 0",
	    rights_who, rights_is_needed, is_mariadb ? "@@wsrep_on" : "0",
	    s->unfit_sql ? s->unfit_sql : "0");
}

/* "5.5.5-10.11.6-MariaDB-log", "8.0.36": is it one that we can use? */
static bool
check_version(struct session *s, const char *version)
{
	unsigned major = 0, minor = 0;

	s->server.is_mariadb = strstr(version, "MariaDB") != NULL;
	s->db->whole_seconds = !s->server.is_mariadb;
	if (strncmp(version, "5.5.5-", 6) == 0)
		version += 6;
	if (sscanf(version, "%3u.%3u.", &major, &minor) < 2)
		return false;
	return s->server.is_mariadb ? major * 100 + minor >= 1003 : major >= 8;
}

enum {
	FACT_NUMBER,
	FACT_READ_ONLY,
	FACT_MIGHTY,
	FACT_TIME,
	FACT_GALERA,
	FACT_UNFIT,
	FACT_DATABASE,
	FACTS
};

static bool
read_facts(struct session *s, struct answer *a, bool *read_only, bool *is_mighty)
{
	const struct row *row = &a->row;
	int64_t number, time;

	if (!row_integer(row, FACT_NUMBER, 0, INT64_MAX, &number) ||
	    !row_boolean(row, FACT_READ_ONLY, read_only) ||
	    !row_boolean(row, FACT_MIGHTY, is_mighty) ||
	    !row_integer(row, FACT_TIME, 0, TIME_MOST, &time) ||
	    !row_boolean(row, FACT_GALERA, &s->server.is_galera) ||
	    !row_boolean(row, FACT_UNFIT, &s->server.is_unfit))
		return false;
	if (!row_text(row, FACT_DATABASE, s->database, sizeof s->database))
		*s->database = '\0';
	s->server.is_direct = (uint32_t)number == session_number(s->db);
	session_set_clock(s->db, time);
	return true;
}

void
session_set_clock(struct sql *db, int64_t us)
{
	struct session *s = &mysql_of(db)->session;

	s->server.clock_us = us;
	s->server.seen = instant_now();
}

int64_t
session_server_time(const struct sql *db, instant until)
{
	const struct server_facts *server = &mysql_const(db)->session.server;

	if (until == NEVER)
		return TIME_MOST;
	return server->clock_us + (until - server->seen) / 1000;
}

enum rc
session_read_only(struct sql *db, struct fault *f)
{
	snprintf(db->error, sizeof db->error, "%s", ERROR_READ_ONLY);
	return fault_set(f, RC_CONFIG,
	    "%s is read-only, perhaps a replica: a lock needs the primary", db->where);
}

static enum rc
set_up(struct session *s, instant until, struct fault *f)
{
	const char *version = s->my->get_server_info(s->mysql);
	char sql[4096];
	const struct question q = {.text = sql, .fields = FACTS};
	struct answer a = {.db = NULL};
	bool read_only = false, is_mighty = false;
	enum rc rc;

	if (!check_version(s, version ? version : "")) {
		rc = fault_set(f, RC_CONFIG,
		    "%s is %.40s: dlock needs MySQL 8.0 or MariaDB 10.3 at least",
		    s->db->where, version ? version : "of no version");
		session_close(s->db);
		return rc;
	}
	write_setup(s, sql, sizeof sql);
	rc = sql_exec(s->db, &q, until, &a, f);
	if (rc == RC_OK && !read_facts(s, &a, &read_only, &is_mighty))
		rc = fault_set(f, RC_PROTOCOL, "%s gave an answer that makes no sense",
		    s->db->where);
	answer_drop(&a);
	/* a user who may write there all the same would find nothing amiss */
	if (rc == RC_OK && read_only && !s->db->reads)
		rc = session_read_only(s->db, f);
	if (rc == RC_OK && read_only)
		fault_set(&s->db->base.host->notice, RC_OK,
		    "%s is read-only, perhaps a replica, which may be behind",
		    s->db->where);
	if (rc == RC_OK && is_mighty)
		rc = rights_check(s->db, until, f);
	if (rc != RC_OK)
		session_close(s->db);
	return rc;
}

struct task *
session_login(struct sql *db)
{
	struct session *s = &mysql_of(db)->session;
	struct connecting *c = connect_start(
	    s->my, &s->login, db->serial == 0, db->ttl, sql_login_most(db));

	return c ? &c->task : NULL;
}

enum rc
session_adopt(struct sql *db, struct task *t, instant until, struct fault *f)
{
	struct session *s = &mysql_of(db)->session;
	struct connecting *c = (struct connecting *)t;

	if (c->stranger)
		return fault_set(f, RC_PROTOCOL,
		    "%s is no MySQL and no MariaDB: %s answers there (check the port)",
		    db->where, c->stranger);
	if (c->end != CONNECTED)
		return errors_at_login(s, c->mysql, c->end, f);
	s->mysql = c->mysql;
	c->mysql = NULL;
	db->serial++;
	snprintf(
	    s->secret, sizeof s->secret, "%s", s->mysql->passwd ? s->mysql->passwd : "");
	db->base.host->secret = s->secret;
	s->server = (struct server_facts){.is_mariadb = false};
	return set_up(s, until, f);
}

/* ---- asking ---- */

/* A statement that has failed may have left a lock of a row. */
enum rc
session_exec(struct sql *db, const struct question *q, instant until, struct answer *a,
    struct fault *f)
{
	enum rc rc = sql_exec_plainly(db, q, until, a, f);

	if (rc != RC_OK && mysql_of(db)->session.mysql)
		sql_undo(db, instant_first(until, instant_now() + NS_PER_S));
	return rc;
}

/* ---- the end ---- */

int
session_fd(const struct sql *db)
{
	const struct session *s = &mysql_const(db)->session;

	return s->mysql ? s->my->get_socket(s->mysql) : -1;
}

uint32_t
session_number(const struct sql *db)
{
	const struct session *s = &mysql_const(db)->session;

	return s->mysql ? (uint32_t)s->my->thread_id(s->mysql) : 0;
}

/*
 * Bytes that nobody has asked for are the end: an error, or nothing at all.  With TLS they may
 * be a ticket for another session; the next statement finds out.
 */
bool
session_is_open(struct sql *db)
{
	struct session *s = &mysql_of(db)->session;
	struct pollfd p = {.fd = session_fd(db), .events = POLLIN | POLLRDHUP};

	if (s->mysql && !session_is_busy(db) && poll(&p, 1, 0) > 0 &&
	    (p.revents != POLLIN || !s->my->get_ssl_cipher(s->mysql)))
		session_close(db);
	return s->mysql != NULL;
}

void
session_close(struct sql *db)
{
	struct session *s = &mysql_of(db)->session;
	bool amid = session_is_busy(db);

	forget_answer(s);
	connect_close(s->my, s->mysql, amid);
	s->mysql = NULL;
}

/* ---- answers ---- */

bool
session_read_row(struct answer *a, int n)
{
	const struct libmariadb *my = mysql_of(a->db)->session.my;
	MYSQL_ROW row = my->fetch_row(a->result); /* they come in order */
	unsigned long *lengths = row ? my->fetch_lengths(a->result) : NULL;
	unsigned fields = my->num_fields(a->result);

	(void)n;
	for (unsigned i = 0; row && i < fields && i < FIELDS_MAX; i++) {
		a->at[i] = row[i];
		a->lengths[i] = lengths[i];
	}
	return row != NULL;
}

void
session_drop(struct answer *a)
{
	mysql_of(a->db)->session.my->free_result(a->result);
}
