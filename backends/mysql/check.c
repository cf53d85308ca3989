/*
 * check.c - tells whether a MySQL or MariaDB server is fit for locks, and removes what a probe
 * has left.
 *
 *  1. What the server is and how it is set it says in variables of its own, which everybody may
 *     read; one that it does not have is no error of the question.
 *  2. For the modes row and named, grants_open() says why a session is refused, as it does to a
 *     run.
 *  3. A lease leaves the row of its key in dlock_keys, and mode=row one in dlock_rows.  Whoever
 *     may not delete that gets no probe, nor does one for whom tables or procedures would be
 *     made: then the procedures are counted that our user may call, which is all that
 *     information_schema shows of them.
 */
#include "grants.h"

#include "backends/common/checkup.h"
#include "backends/sql/lease.h"
#include "backends/sql/row.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- what it says of itself ---- */

struct variable {
	const char *name;
	char value[64]; /* "": it has none of that name */
};

enum {
	V_VERSION,
	V_READ_ONLY,
	V_SUPER_READ_ONLY,
	V_FLUSH,
	V_SEMI_MARIA,
	V_SEMI,
	V_MOST,
	V_WAIT,
	V_GALERA_STATE,
	V_GALERA_SIZE,
	V_REPLICAS,
	V_REPLICAS_OLD,
	V_USED,
	V_CONNECTED,
	VARIABLES
};

#define NAMES \
	"Variable_name IN ('version', 'read_only', 'super_read_only', 'innodb_flush_log_at_trx_commit', " \
	"'rpl_semi_sync_master_enabled', 'rpl_semi_sync_source_enabled', 'max_connections', 'wait_timeout', 'wsrep_cluster_status', 'wsrep_cluster_size', " \
	"'Rpl_semi_sync_master_clients', 'Rpl_semi_sync_source_clients', 'Threads_connected', 'Slaves_connected')"

static enum rc
read_variables(struct sql *db, const char *text, struct variable v[VARIABLES],
    instant until, struct fault *f)
{
	const struct question q = {.text = text, .fields = 2, .many = true};
	struct answer a = {.db = NULL};
	enum rc rc = sql_ask(db, &q, until, &a, f);

	while (rc == RC_OK && answer_next(&a)) {
		const char *name = row_words(&a.row, 0);

		for (int i = 0; name && i < VARIABLES; i++)
			if (strcasecmp(v[i].name, name) == 0)
				(void)row_text(&a.row, 1, v[i].value, sizeof v[i].value);
	}
	answer_drop(&a);
	return rc;
}

/*
 * MySQL has no variable that tells how many replicas are connected.  Their sessions are told apart by
 * what they ask; without the right PROCESS one sees none of them.
 */
static void
count_replicas(struct sql *db, struct variable *v, instant until)
{
	static const struct question q = {
	    .text = "SELECT COUNT(*) FROM information_schema.processlist "
		    "WHERE command IN ('Binlog Dump', 'Binlog Dump GTID')",
	    .fields = 1};
	struct answer a = {.db = NULL};
	struct fault unheard;

	if (!mysql_const(db)->session.server.is_mariadb &&
	    sql_ask(db, &q, until, &a, &unheard) == RC_OK)
		(void)row_text(&a.row, 0, v->value, sizeof v->value);
	answer_drop(&a);
}

static bool
variable_is_on(const struct variable *v)
{
	return strcmp(v->value, "ON") == 0 || strcmp(v->value, "1") == 0;
}

static long
variable_number(const struct variable *v)
{
	return strtol(v->value, NULL, 10);
}

static void
tell_mysql(const struct sql *db, struct checkup *c, const struct variable *v)
{
	const struct server_facts *s = &mysql_const(db)->session.server;
	bool read_only = variable_is_on(&v[V_READ_ONLY]) ||
	    variable_is_on(&v[V_SUPER_READ_ONLY]),
	     lends = !s->is_direct, lease = db->mode == &lease_mode;
	bool primary = strcmp(v[V_GALERA_STATE].value, "Primary") == 0;

	if (read_only || (!lease && (lends || s->is_galera)))
		c->refusal = RC_CONFIG;
	checkup_tell(c, FIT, "version", NULL, "%s: %s %s", db->where,
	    s->is_mariadb ? "MariaDB" : "MySQL", v[V_VERSION].value);
	checkup_tell(c, read_only ? UNFIT : FIT, "role",
	    read_only
		? "name the primary; if this is it: SET GLOBAL read_only = OFF, and the same in my.cnf"
		: NULL,
	    read_only ? "it is read-only, perhaps a replica: a lock needs the primary"
		      : "it may be written");
	checkup_tell(c,
	    !lends      ? FIT
		: lease ? DOUBTFUL
			: UNFIT,
	    "proxy",
	    !lends      ? NULL
		: lease ? "connect past the proxy: waiters are then woken at once"
			: "connect past the proxy, or use mode=lease",
	    lends ? "a proxy stands before it" : "nothing stands before it");
	if (s->is_galera)
		checkup_tell(c, !lease || !primary ? UNFIT : FIT, "galera",
		    !primary ? "this node has lost its quorum: name another one"
			: !lease
			? "use mode=lease: another node would not see such a lock"
			: NULL,
		    "it is a node of a cluster of %s, %s", v[V_GALERA_SIZE].value,
		    v[V_GALERA_STATE].value);
}

static void
tell_mysql_disk(struct checkup *c, const struct variable *v)
{
	bool flushes = variable_number(&v[V_FLUSH]) == 1;
	bool semi = variable_is_on(&v[V_SEMI_MARIA]) || variable_is_on(&v[V_SEMI]);
	long replicas = variable_number(&v[V_REPLICAS]) +
	    variable_number(&v[V_REPLICAS_OLD]);
	long used = variable_number(&v[V_USED]), most = variable_number(&v[V_MOST]);
	bool crowded = most > 0 && used * 10 > most * 9;

	checkup_tell(c, flushes ? FIT : DOUBTFUL, "persistence",
	    flushes
		? NULL
		: "SET GLOBAL innodb_flush_log_at_trx_commit = 1, and the same in my.cnf",
	    flushes
		? "it writes to disk before it answers (innodb_flush_log_at_trx_commit %s)"
		: "a crash loses a second of what it has answered (innodb_flush_log_at_trx_commit %s)",
	    v[V_FLUSH].value);
	if (semi)
		checkup_tell(c, replicas > 0 ? FIT : DOUBTFUL, "replicas",
		    replicas > 0 ? NULL : "connect a replica that acknowledges",
		    "replication is semi-synchronous, with %ld replicas that acknowledge",
		    replicas);
	else if (variable_number(&v[V_CONNECTED]) > 0)
		checkup_tell(c, DOUBTFUL, "replicas",
		    "let replication be semi-synchronous, so that a lock counts when a replica has it",
		    "%ld replicas, and a fail-over may forget what they have not got yet",
		    variable_number(&v[V_CONNECTED]));
	if (most > 0)
		checkup_tell(c, crowded ? DOUBTFUL : FIT, "connections",
		    crowded ? "raise max_connections, or end sessions that idle" : NULL,
		    "%ld of %ld connections are used (each holder and waiter needs one); wait_timeout %s s, "
		    "for which dlock sets its own",
		    used, most, v[V_WAIT].value);
}

/* ---- who we are there, and what may be done ---- */

/*
 * $1 is the table that the mode needs most, $2 how the names of this version end, $3 what may stand
 * for freeze_key: one server is content with the older freeze (lease_look.c).
 */
#define COUNTED(count, names) \
	"(SELECT COUNT(" count ") FROM information_schema.routines " \
	"WHERE routine_schema = DATABASE() AND CAST(routine_name AS BINARY) IN (" names \
	"))"
#define CALLS(names) COUNTED("*", names)
#define NAMED(name) "CONCAT('dlock_" name "', $2)"
#define GRANTED(right) \
	"(EXISTS (SELECT 1 FROM information_schema.user_privileges " \
	"WHERE " RIGHTS_IS_ME " AND privilege_type = '" right "') " \
	"OR EXISTS (SELECT 1 FROM information_schema.schema_privileges " \
	"WHERE " RIGHTS_IS_ME " AND DATABASE() LIKE table_schema " \
	"AND privilege_type = '" right "') " \
	"OR EXISTS (SELECT 1 FROM information_schema.table_privileges " \
	"WHERE " RIGHTS_IS_ME " AND table_schema = DATABASE() AND table_name = $1 " \
	"AND privilege_type = '" right "'))"

/* clang-format off */
#define RIGHTS(right) \
	right(HAS_TABLE, "EXISTS (SELECT 1 FROM information_schema.tables " \
		"WHERE table_schema = DATABASE() AND table_name = $1)") \
	right(HAS_CALLS, CALLS(NAMED("take") ", " NAMED("enter") ", " NAMED("await") ", " \
		NAMED("renew") ", " NAMED("release"))) \
	right(HAS_LIST, CALLS(NAMED("list") ", " NAMED("last_run"))) \
	right(HAS_FREEZE, COUNTED("DISTINCT routine_name LIKE 'dlock\\_freeze%'", \
		NAMED("freeze_key") ", CONCAT('dlock_', $3, $2), " NAMED("thaw"))) \
	right(HAS_BREAK, CALLS(NAMED("ask_back") ", " NAMED("take_away"))) \
	right(HAS_CREATE, GRANTED("CREATE")) \
	right(HAS_CREATE_ROUTINE, GRANTED("CREATE ROUTINE")) \
	right(HAS_KILL, "EXISTS (SELECT 1 FROM information_schema.user_privileges " \
		"WHERE " RIGHTS_IS_ME " AND privilege_type IN " \
		"('SUPER', 'CONNECTION ADMIN', 'CONNECTION_ADMIN'))") \
	right(HAS_ROLE, "COALESCE(CURRENT_ROLE(), 'NONE') <> 'NONE'") \
	right(HAS_DELETE, GRANTED("DELETE"))
/* clang-format on */

#define FIELD(name, sql) name,
#define COLUMN(name, sql) ", " sql
enum { HAS_USER, RIGHTS(FIELD) HAS };

static const char rights_sql[] = "SELECT CURRENT_USER()" RIGHTS(COLUMN);

/* A lease is several procedures, each of which one may be kept from. */
static void
tell_calls(struct checkup *c, const char *name, int64_t has, int64_t all)
{
	checkup_tell(c, has == all ? FIT : UNFIT, name,
	    has == all ? NULL : "see SETTING UP in dlock-mysql(7)",
	    "%" PRId64 " of %" PRId64 " procedures may be called", has, all);
}

/* All of schema.sql, as far as is known: what a role may is not told here. */
static bool
may_create(const struct row *r)
{
	return row_is(r, HAS_ROLE) ||
	    (row_is(r, HAS_CREATE) && row_is(r, HAS_CREATE_ROUTINE));
}

/*
 * A first use would make something, perhaps without coming to the end of it.  mode=named does
 * without, where nothing can be made.
 */
static void
tell_absence(const struct sql *db, struct checkup *c, const struct row *r)
{
	bool named = db->mode == &mysql_named_mode, may = may_create(r);

	if (named && !may && !row_is(r, HAS_CREATE))
		return;
	if (!named && !may && c->refusal == RC_OK)
		c->refusal = RC_DENIED;
	checkup_tell(c, named || may ? DOUBTFUL : UNFIT, "schema",
	    named || may
		? "the first run makes them; or dlock help mysql-schema | mysql DATABASE"
		: "as an administrator: dlock help mysql-schema | mysql DATABASE, then GRANT EXECUTE ON DATABASE.* TO the user",
	    "there are no tables and procedures of this version that we may use");
	fault_set(&c->hands_off, RC_OK,
	    "what is missing would be made for it, as far as this user may");
}

/* A user of some procedures sees that they are there: a role that only looks, or steers. */
static void
tell_limited(struct checkup *c)
{
	if (c->refusal == RC_OK)
		c->refusal = RC_DENIED;
	fault_set(&c->hands_off, RC_OK, "a user who may not run holds no probe");
}

static void
tell_rights(const struct sql *db, struct checkup *c, const struct row *r)
{
	static const struct {
		const char *name;
		int field, all;
	} groups[] = {{"right-run", HAS_CALLS, 5}, {"right-look", HAS_LIST, 2},
	    {"right-freeze", HAS_FREEZE, 2}, {"right-break", HAS_BREAK, 2}};
	bool lease = db->mode == &lease_mode, named = db->mode == &mysql_named_mode,
	     absent;
	int64_t calls = 0;
	int64_t has[HAS] = {0};

	for (size_t i = 0; i < sizeof groups / sizeof *groups; i++) {
		(void)row_integer(r, groups[i].field, 0, 100, &has[groups[i].field]);
		calls += has[groups[i].field];
	}
	checkup_tell(c, FIT, "user", NULL, "%s", row_words(r, HAS_USER));
	absent = lease ? has[HAS_CALLS] < groups[0].all : !row_is(r, HAS_TABLE);
	if (absent && lease && calls > 0 && !may_create(r))
		tell_limited(c);
	else if (absent)
		tell_absence(db, c, r);
	else if (!named && !row_is(r, HAS_DELETE))
		fault_set(&c->hands_off, RC_OK,
		    "its row of %s would stay, which this user may not delete",
		    lease ? "dlock_keys" : "dlock_rows");
	/* a session lock is broken by ending its session: the probe's is our own */
	if (!lease && !row_is(r, HAS_KILL))
		checkup_tell(c, DOUBTFUL, "right-break",
		    "GRANT CONNECTION ADMIN ON *.* TO the user that is to break them (MySQL: CONNECTION_ADMIN)",
		    "locks of other users cannot be broken");
	if (!lease || !*c->hands_off.text || (absent && may_create(r)))
		return;
	for (size_t i = 0; i < sizeof groups / sizeof *groups; i++)
		tell_calls(c, groups[i].name, has[groups[i].field], groups[i].all);
}

static enum rc
check_rights(struct sql *db, struct checkup *c, struct fault *f)
{
	const char *table = db->mode == &lease_mode ? "dlock_keys"
	    : db->mode == &mysql_row_mode           ? "dlock_rows"
						    : "dlock_grants";
	const char *freeze = mysql_const(db)->session.server.is_galera ? "freeze_key"
								       : "freeze";
	const struct question q = {.text = rights_sql,
	    SQL_VALUES(SQL_TEXT(table), SQL_TEXT(db->driver->version), SQL_TEXT(freeze)),
	    .fields = HAS};
	struct answer a = {.db = NULL};
	enum rc rc = sql_ask(db, &q, c->until, &a, f);

	if (rc == RC_OK)
		tell_rights(db, c, &a.row);
	answer_drop(&a);
	return rc;
}

/* ---- all of it ---- */

static enum rc
mysql_sweep(struct sql *db, struct checkup *c, struct fault *f)
{
	const struct question q = {.text = db->mode == &mysql_row_mode
		? "DELETE FROM dlock_rows WHERE k = $1"
		: "DELETE FROM dlock_keys WHERE k = $1",
	    SQL_VALUES(SQL_TEXT(c->probe))};

	return db->mode == &mysql_named_mode ? RC_OK : sql_ask(db, &q, c->until, NULL, f);
}

enum rc
mysql_check(struct sql *db, struct checkup *c, struct fault *f)
{
	struct variable v[VARIABLES] = {[V_VERSION] = {"version", ""},
	    [V_READ_ONLY] = {"read_only", ""},
	    [V_SUPER_READ_ONLY] = {"super_read_only", ""},
	    [V_FLUSH] = {"innodb_flush_log_at_trx_commit", ""},
	    [V_SEMI_MARIA] = {"rpl_semi_sync_master_enabled", ""},
	    [V_SEMI] = {"rpl_semi_sync_source_enabled", ""},
	    [V_MOST] = {"max_connections", ""},
	    [V_WAIT] = {"wait_timeout", ""},
	    [V_GALERA_STATE] = {"wsrep_cluster_status", ""},
	    [V_GALERA_SIZE] = {"wsrep_cluster_size", ""},
	    [V_REPLICAS] = {"Rpl_semi_sync_source_clients", ""},
	    [V_REPLICAS_OLD] = {"Rpl_semi_sync_master_clients", ""},
	    [V_USED] = {"Threads_connected", ""},
	    [V_CONNECTED] = {"Slaves_connected", ""}}; /* of MariaDB alone */
	struct fault why;
	enum rc rc;

	if (c->sweep)
		return mysql_sweep(db, c, f);
	rc = read_variables(db, "SHOW GLOBAL VARIABLES WHERE " NAMES, v, c->until, f);
	if (rc == RC_OK)
		rc = read_variables(
		    db, "SHOW GLOBAL STATUS WHERE " NAMES, v, c->until, f);
	if (rc != RC_OK)
		return rc;
	count_replicas(db, &v[V_CONNECTED], c->until);
	tell_mysql(db, c, v);
	tell_mysql_disk(c, v);
	rc = check_rights(db, c, f);
	if (rc == RC_OK && db->mode != &lease_mode &&
	    grants_open(db, c->until, &why) == RC_CONFIG)
		checkup_tell(c, UNFIT, "session", "use mode=lease", "%s", why.text);
	return rc;
}
