/*
 * driver.c - locks at a MySQL or MariaDB server: settings, the schema, and what a driver is
 * made of.
 *
 * The first use creates tables and procedures, and so does a newer version what it adds: it
 * changes nothing that is there, and older clients go on.  What is added to a version is for the
 * maker of its other procedures alone to create: those of anybody else, who may have no right on
 * the tables, would work for nobody.  A user without the right is told what
 * an administrator has to run.
 *
 * Of mode=lease, beside its schema.sql:
 *
 *  1. A wake-up lock is a GET_LOCK of the session.  Nobody has one behind a proxy, nor at a
 *     node of Galera, where others would not see it.  A server takes a long chain of sleepers
 *     for a deadlock: so not all waiters have one to sleep on (schema.sql).
 *  2. A procedure selects its answer after COMMIT, and nothing is believed before all of that
 *     has come.
 *  3. Statements stand in the processlist for others to read: so the claim's owner is sent to
 *     release only.
 */
#include "mysql.h"

#include "connect.h"
#include "derive.h"
#include "errors.h"

#include "backends/common/setting.h"
#include "backends/common/identity.h"
#include "backends/common/identity.h"
#include "backends/common/url.h"
#include "backends/mysql/schema.sql.h"
#include "backends/sql/lease.h"
#include "backends/sql/names.h"
#include "backends/sql/row.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- tables and procedures ---- */

/*
 * The version of schema.sql, and the end of the name of each of its procedures.  Whatever
 * procedure is changed, all get the next.
 */
#define SCHEMA_VERSION "3"

/* Statements end with a line of two slashes, as for the program mysql. */
static const char end_of_statement[] = "\n//\n";

/* Of whatever version: each has a procedure of such a name. */
#define ROUTINES \
	"SELECT 1 FROM information_schema.routines WHERE routine_schema = DATABASE() " \
	"AND routine_name LIKE 'dlock\\_list\\_%'"
#define IS_OURS "CAST(definer AS BINARY) = CAST(CURRENT_USER() AS BINARY)"

/* Is it for other users to add what is missing of this version; or all of it, to an older one? */
static const struct question is_for_others = {
    .text = "SELECT EXISTS (" ROUTINES " AND routine_name = 'dlock_list_" SCHEMA_VERSION
	    "' AND NOT (" IS_OURS "))",
    .fields = 1};
static const struct question is_all_of_others = {
    .text = "SELECT EXISTS (" ROUTINES ") AND NOT EXISTS (" ROUTINES " AND " IS_OURS ")",
    .fields = 1};

/* Refuses to add a procedure to those of another user. */
static enum rc
check_maker(struct sql *db, const struct question *q, instant until, struct fault *f)
{
	struct answer a = {.db = NULL};
	bool others = false;
	enum rc rc = answer_boolean(&a, sql_ask(db, q, until, &a, f), &others, f);

	return rc == RC_OK && others
	    ? fault_set(f, RC_CONFIG,
		  "%s: the procedures there are of an older dlock and another user's: as an administrator run "
		  "dlock help mysql-schema | mysql DATABASE, which adds what is missing",
		  db->where)
	    : rc;
}

/* The second statement is for a table: who may not create that is told so. */
static enum rc
mysql_create(struct sql *db, instant until, struct fault *f)
{
	const char *text = strstr(schema_sql, "\nDELIMITER //\n"), *end;
	enum rc rc = check_maker(db, &is_for_others, until, f);
	int asked = 0;

	text += sizeof "\nDELIMITER //\n" - 1;
	while (rc == RC_OK && (end = strstr(text, end_of_statement))) {
		const struct question q = {.text = strndup(text, end - text)};

		if (!q.text)
			return fault_set(f, RC_SYSTEM, "out of memory");
		rc = sql_ask(db, &q, until, NULL, f);
		if (sql_error_is(db, ERROR_EXISTS))
			rc = RC_OK;
		free((char *)q.text);
		text = end + sizeof end_of_statement - 1;
		if (rc == RC_OK && ++asked == 2)
			rc = check_maker(db, &is_all_of_others, until, f);
	}
	return rc;
}

/* A right is missing (1044, 1142, 1227, 1370): says how to get it. */
static enum rc
mysql_explain_denial(const struct sql *db, struct fault *f)
{
	const char *rights = "EXECUTE ON DATABASE.*"; /* as GRANT has them */

	if (db->mode == &mysql_row_mode)
		rights =
		    "SELECT, INSERT, DELETE ON DATABASE.dlock_rows and ON DATABASE.dlock_grants";
	else if (db->mode == &mysql_named_mode)
		rights = "SELECT, INSERT, DELETE ON DATABASE.dlock_grants";
	return fault_set(f, RC_DENIED,
	    "%s: this user may not use, or not create, dlock's tables and procedures; as an administrator run "
	    "dlock help mysql-schema | mysql DATABASE, then GRANT %s TO the user "
	    "(roles with fewer rights: SETTING UP in dlock-mysql(7))",
	    db->where, rights);
}

/*
 * Without tables, nothing is held.  With them, there may be procedures of another version,
 * and with those locks: a look, too, has its maker add what is missing, and sees them.
 */
static enum rc
mysql_explain_absence(struct sql *db, instant until, bool *create, struct fault *f)
{
	static const struct question q = {
	    .text = "SELECT EXISTS (" ROUTINES ")", .fields = 1};
	struct answer a = {.db = NULL};

	if (sql_is_failure(db, SQL_NO_TABLE))
		return RC_OK;
	return answer_boolean(&a, sql_ask(db, &q, until, &a, f), create, f);
}

/* ---- mode=lease ---- */

static int64_t
number_of_session(const struct sql *db)
{
	return mysql_const(db)->session.server.is_galera ? 0 : session_number(db);
}

static bool
is_node_of_cluster(const struct sql *db)
{
	return mysql_const(db)->session.server.is_galera;
}

/* The waiter that a release wakes has our wake-up lock, too, but had it not before. */
#define WAKE_LOCK "IS_USED_LOCK(CONCAT('dlock:', LEFT(SHA2($1, 256), 32)))"
#define WAKE_LOCK_OF_HOLD "IS_USED_LOCK(CONCAT('dlock:', LEFT(SHA2($1, 256), 32), 'h'))"

static const char end_old_sessions[] =
    "KILL CASE WHEN @dlock_old <> CONNECTION_ID() AND @dlock_old IN (" WAKE_LOCK
    ", " WAKE_LOCK_OF_HOLD ") THEN @dlock_old ELSE 0 END";

/* ---- after a hold was taken away ---- */

/* The sessions that sleep in dlock_await on its wake-up lock, as far as our user sees them. */
static const char sleepers_sql[] =
    "SELECT id FROM information_schema.processlist WHERE state = 'User lock' "
    "AND info LIKE CONCAT('CALL dlock_await%', LOWER(HEX(@dlock_wake)), '%') LIMIT 1000";

/*
 * Has them ask again before the end of their sleep.  It needs a right over their sessions;
 * without it they wake by themselves.
 */
static void
wake_sleepers(struct sql *db, instant until)
{
	const struct question sleepers = {
	    .text = sleepers_sql, .fields = 1, .many = true};
	struct answer a = {.db = NULL};
	struct fault unheard;
	int64_t session;

	if (sql_exec(db, &sleepers, until, &a, &unheard) != RC_OK)
		return;
	while (answer_next(&a))
		if (row_integer(&a.row, 0, 1, INT64_MAX, &session)) {
			const struct question wake = {
			    .text = "KILL QUERY $1", SQL_VALUES(SQL_INT(session))};

			(void)sql_exec(db, &wake, until, NULL, &unheard);
		}
	answer_drop(&a);
}

static const struct lease_driver mysql_lease = {
    .hides_owner = true,
    .damaged = "a row in dlock's tables that dlock has not written",
    .clock = "SELECT CAST(UNIX_TIMESTAMP(SYSDATE(6)) * 1000000 AS SIGNED)",
    .freeze_for_all = "freeze_key",
    .forget = "forget_run",
    .last = {"list_last", "list_jobs"},
    .done = {"list_ids", "list_done"},
    .end_old_sessions = end_old_sessions,
    .session_number = number_of_session,
    .server_time = session_server_time,
    .set_clock = session_set_clock,
    .catch_up = "SET STATEMENT wsrep_sync_wait = 1 FOR SELECT 1",
    .taken_away = wake_sleepers,
};

/* ---- settings ---- */

extern const struct backend mysql_backend;

static struct mysql *
mysql_of_store(struct store *s)
{
	return (struct mysql *)store_of(s, &mysql_backend);
}

enum { NAME_BYTES = 192 }; /* of a name of GET_LOCK; MySQL has 64 characters */

static enum rc
set_name(struct store *s, const char *value, struct fault *f)
{
	mysql_of_store(s)->name = value;
	s->caps |= ONE_LOCK;
	if (*value && strlen(value) <= NAME_BYTES)
		return RC_OK;
	return fault_set(
	    f, RC_USAGE, "name is one of GET_LOCK, of 1 to %d bytes", NAME_BYTES);
}

static enum rc
set_mysql_derive(struct store *s, const char *value, struct fault *f)
{
	mysql_of_store(s)->derives_own = strcmp(value, "dlock") == 0;
	if (mysql_of_store(s)->derives_own)
		return RC_OK;
	mysql_of_store(s)->derive = value;
	s->caps |= derive_mysql_is_one(value) ? ONE_LOCK : 0;
	if (derive_mysql_knows(value))
		return RC_OK;
	return fault_set(f, RC_USAGE, "derive knows no '%s' (there are %s)", value,
	    derive_mysql_names);
}

static enum rc
set_mysql_socket(struct store *s, const char *value, struct fault *f)
{
	mysql_of_store(s)->session.login.socket = value;
	if (*value == '/' && strlen(value) < 108)
		return RC_OK;
	return fault_set(f, RC_USAGE, "socket is an absolute path of at most 107 bytes");
}

static enum rc
set_mysql_password_file(struct store *s, const char *value, struct fault *f)
{
	struct login *a = &mysql_of_store(s)->session.login;

	a->has_password = true;
	return setting_secret("password-file", value, a->password, sizeof a->password, f);
}

static enum rc
set_mysql_tls(struct store *s, const char *value, struct fault *f)
{
	static const struct {
		const char *word;
		enum tls_wish wish;
	} words[] = {{"off", TLS_OFF}, {"encrypt", TLS_ENCRYPT}, {"verify", TLS_VERIFY}};

	for (size_t i = 0; i < sizeof words / sizeof *words; i++)
		if (strcmp(words[i].word, value) == 0) {
			mysql_of_store(s)->session.login.tls.wish = words[i].wish;
			return RC_OK;
		}
	return fault_set(f, RC_USAGE,
	    "tls is off, encrypt (whoever the server is) or verify (its certificate)");
}

static enum rc
set_cacert(struct store *s, const char *value, struct fault *f)
{
	mysql_of_store(s)->session.login.tls.cacert = value;
	return setting_file("cacert", value, false, f);
}

static enum rc
set_cert(struct store *s, const char *value, struct fault *f)
{
	mysql_of_store(s)->session.login.tls.cert = value;
	return setting_file("cert", value, false, f);
}

static enum rc
set_mysql_key(struct store *s, const char *value, struct fault *f)
{
	mysql_of_store(s)->session.login.tls.key = value;
	return setting_file("key", value, true, f);
}

static const struct setting_row settings[] = {
    {"mode", "lease|row|named", "how a key is locked (default: lease)", sql_set_mode},
    {"name", "NAME", "mode=named: the lock that GET_LOCK('NAME', ...) takes", set_name},
    {"derive", "TOOL", "mode=named: the lock that this tool would take",
	set_mysql_derive},
    {"socket", "PATH", "the server's unix socket", set_mysql_socket},
    {"password-file", "FILE", "one line: the password of the URL's user",
	set_mysql_password_file},
    {"tls", "off|encrypt|verify", "whether TLS is spoken (default: as my.cnf says)",
	set_mysql_tls},
    {"cacert", "FILE", "the CAs to trust; means tls=verify", set_cacert},
    {"cert", "FILE", "our certificate, for a server that wants one", set_cert},
    {"key", "FILE", "its private key", set_mysql_key},
    {"connect-timeout", "DURATION", "for the first answer, without --wait (default: 5s)",
	sql_set_patience},
    {0},
};

/* ---- the store ---- */

/* What libmariadb reads of the environment, and names files. */
static const char *const file_variables[] = {"MARIADB_HOME", "MYSQL_HOME", "HOME",
    "MYSQL_UNIX_PORT", "MARIADB_UNIX_PORT", "MARIADB_PLUGIN_DIR", "KRB5_CONFIG",
    "KRB5CCNAME", "SSL_CERT_FILE", "SSL_CERT_DIR", NULL};

static enum rc
mysql_init_store(struct sql *db, const char *url, struct fault *f)
{
	struct session *s = &mysql_of(db)->session;
	bool named = db->mode == &mysql_named_mode;
	enum rc rc;

	s->db = db;
	setting_keep_directory(file_variables);
	if (mysql_of(db)->name && !named)
		return fault_set(f, RC_USAGE, "name= goes with mode=named only");
	if (mysql_of(db)->derive && !named)
		return fault_set(f, RC_USAGE, "derive= goes with mode=named only");
	db->names_nobodys = named && !mysql_of(db)->name && !mysql_of(db)->derive &&
	    !mysql_of(db)->derives_own;
	rc = login_parse(&s->login, url, f);
	if (rc == RC_OK && mysql_of(db)->derive && !*s->login.database)
		return fault_set(
		    f, RC_USAGE, "derive= needs the name of the database in the URL");
	if (!*s->login.database && !named) /* the tables of the others lie in one */
		snprintf(s->login.database, sizeof s->login.database, "dlock");
	if (rc == RC_OK)
		rc = login_check(&s->login, f);
	login_print(&s->login, db->where, sizeof db->where);
	return rc == RC_OK ? libmariadb_load(&s->my, f) : rc;
}

static enum rc
mysql_identify(const struct sql *db, struct identity *id, struct fault *f)
{
	const struct session *s = &mysql_const(db)->session;

	identity_add(id, "name", mysql_const(db)->name);
	identity_add(id, "derive", mysql_const(db)->derive);
	if (mysql_const(db)->derive)
		identity_add(id, "prefix", getenv(NAMES_PREFIX_VARIABLE));
	return connect_identify(s->my, s->mysql, &s->login, id)
	    ? RC_OK
	    : fault_set(f, RC_SYSTEM, "out of memory");
}

static const struct sql_driver mysql_driver = {
    .bytes = sizeof(struct mysql),
    .init = mysql_init_store,
    .identify = mysql_identify,
    .login = session_login,
    .adopt = session_adopt,
    .is_open = session_is_open,
    .descriptor = session_fd,
    .exec = session_exec,
    .send = session_send,
    .receive = session_receive,
    .is_pending = session_is_busy,
    .close = session_close,
    .failures = errors_failures,
    .meanings = errors_meanings,
    .read_row = session_read_row,
    .drop = session_drop,
    .create = mysql_create,
    .explain_absence = mysql_explain_absence,
    .check = mysql_check,
    .explain_denial = mysql_explain_denial,
    .procedures = "procedures",
    .call = "CALL dlock_",
    .version = "_" SCHEMA_VERSION,
    .modes = (const struct sql_mode *const[]){&lease_mode, &mysql_row_mode,
	&mysql_named_mode, NULL},
    .mode_names = "lease, row, named",
    .is_one_of_several = is_node_of_cluster,
    .lease = &mysql_lease,
    .row = &mysql_row,
};

static enum rc
mysql_open(
    struct store **ret, struct host *host, const struct site *site, struct fault *f)
{
	return sql_store_open(ret, &mysql_backend, &mysql_driver, host, site, f);
}

const struct backend mysql_backend = {
    .name = "mysql",
    .schemes = (const char *const[]){"mysql", "mariadb", NULL},
    .settings = settings,
    .url_help = "mysql://[user[:password]@]host[:port][/database]",
    .schema = schema_sql,
    .open = mysql_open,
    .close = sql_store_close,
    .identify = sql_store_identify,
    .lock = &sql_lock_ops,
    .runs_own = names_runs_own,
    .admin = &sql_admin_ops,
};
