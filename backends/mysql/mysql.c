/*
 * mysql.c - locks at a MySQL or MariaDB server: settings, and what all modes need.
 *
 *  1. `-O mode=` chooses how a lock is kept; everything else is a mode's.
 *  2. Tables and procedures are created on first use, by whoever may.  Whoever may not
 *     is told what an administrator has to run.  So is what a newer version adds: nothing
 *     that is there is changed, and those who use it go on.
 *  3. Keys are hexadecimal literals, never words of a statement.
 */
#include "modes.h"

#include "backends/common/setting.h"
#include "backends/mysql/schema.sql.h"
#include "dial.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct mode *const modes[] = {
    &mysql_lease_mode, &mysql_row_mode, &mysql_named_mode, NULL};

/* ---- tables and procedures ---- */

bool
mysql_is_missing(const struct mysql *my)
{
	return mysql_lacks_table(my) || my->session.said == SAID_NO_PROCEDURE;
}

bool
mysql_lacks_table(const struct mysql *my)
{
	return my->session.said == SAID_NO_TABLE;
}

/* Statements end with a line of two slashes, as for the program mysql. */
static const char end_of_statement[] = "\n//\n";

/* Runs one statement of the schema; what is there already is fine. */
static enum rc
create_one(struct mysql *my, const char *sql, instant until, struct fault *f)
{
	instant sent;
	enum rc rc = session_ask(
	    &my->session, sql, &(struct shape){0, false}, until, &sent, NULL, f);

	return my->session.said == SAID_EXISTS ? RC_OK : rc;
}

/* The statement at *text, and moves behind it.  NULL: there is none, or no memory. */
static char *
cut_statement(const char **text)
{
	const char *end = strstr(*text, end_of_statement);
	char *sql = end ? strndup(*text, end - *text) : NULL;

	*text = end ? end + sizeof end_of_statement - 1 : "";
	return sql;
}

static enum rc
create_schema(struct mysql *my, instant until, struct fault *f)
{
	const char *text = strstr(schema_sql, "\nDELIMITER //\n");
	enum rc rc = RC_OK;
	char *sql;

	text += sizeof "\nDELIMITER //\n" - 1;
	while (rc == RC_OK && (sql = cut_statement(&text))) {
		rc = create_one(my, sql, until, f);
		free(sql);
	}
	return rc;
}

/* Who lacks a right (1044, 1142, 1227, 1370): who has it, and what to do. */
enum rc
mysql_explain_denial(struct mysql *my, enum rc rc, struct fault *f)
{
	if (rc != RC_DENIED || !my->session.mysql)
		return rc; /* it may not even enter the server */
	return fault_set(f, RC_DENIED,
	    "%s: this user may not use, or not create, dlock's tables and procedures; as an administrator run "
	    "dlock help mysql-schema | mysql DATABASE, then GRANT %s TO the user",
	    my->session.where, my->mode->rights);
}

enum rc
mysql_ask(struct mysql *my, const char *sql, const struct shape *shape, instant until,
    instant *sent, MYSQL_RES **ret, struct fault *f)
{
	enum rc rc = session_ask(&my->session, sql, shape, until, sent, ret, f);

	if (rc != RC_OK && rc != RC_STOP && mysql_is_missing(my)) {
		rc = create_schema(my, until, f);
		if (rc == RC_OK)
			rc = session_ask(&my->session, sql, shape, until, sent, ret, f);
	}
	return mysql_explain_denial(my, rc, f);
}

/* Are there procedures of another version, and with them perhaps locks? */
static enum rc
has_another_version(struct mysql *my, instant until, bool *has, struct fault *f)
{
	MYSQL_RES *r;
	struct row row;
	instant sent;
	enum rc rc = session_ask(&my->session,
	    "SELECT EXISTS (SELECT 1 FROM information_schema.routines WHERE routine_schema = DATABASE() "
	    "AND routine_name LIKE 'dlock\\_list\\_%')",
	    &(struct shape){1, false}, until, &sent, &r, f);

	if (rc != RC_OK)
		return rc;
	row = row_first(my->session.my, r);
	if (!row_boolean(&row, 0, has))
		rc = mysql_makes_no_sense(my, RC_PROTOCOL, f);
	my->session.my->free_result(r);
	return rc;
}

enum rc
mysql_ask_existing(struct mysql *my, const char *sql, const struct shape *shape,
    instant until, MYSQL_RES **ret, struct fault *f)
{
	instant sent;
	bool another = false;
	enum rc rc = session_ask(&my->session, sql, shape, until, &sent, ret, f);
	bool missing = rc != RC_OK && rc != RC_STOP && mysql_is_missing(my);

	if (missing && !mysql_lacks_table(my)) {
		rc = has_another_version(my, until, &another, f);
		if (rc == RC_OK && another)
			return mysql_ask(my, sql, shape, until, &sent, ret, f);
		missing = rc == RC_OK;
	}
	if (rc != RC_OK || missing)
		*ret = NULL;
	return missing ? RC_OK : mysql_explain_denial(my, rc, f);
}

enum rc
mysql_makes_no_sense(const struct mysql *my, enum rc rc, struct fault *f)
{
	return fault_set(f, rc, "%s gave an answer that dlock's procedures do not give",
	    my->session.where);
}

/* ---- patience ---- */

enum rc
mysql_try_again(struct mysql *my, enum rc rc, bool queued, instant until)
{
	bool promotion = queued && rc == RC_CONFIG && my->session.said == SAID_READ_ONLY;
	enum rc next = retry_wait(
	    &my->patience, my->base.host, promotion ? RC_AGAIN : rc, queued, until);

	return next == RC_AGAIN ? rc : next;
}

/* ---- settings ---- */

enum { NAME_BYTES = 192 }; /* of a name of GET_LOCK; MySQL has 64 characters */

static enum rc
set_mode(struct store *s, const char *value, struct fault *f)
{
	for (size_t i = 0; modes[i]; i++)
		if (strcmp(modes[i]->name, value) == 0) {
			mysql_of(s)->mode = modes[i];
			return RC_OK;
		}
	return fault_set(f, RC_USAGE,
	    "the mysql backend has no mode '%s' (there are lease, row, named)", value);
}

static enum rc
set_name(struct store *s, const char *value, struct fault *f)
{
	mysql_of(s)->name = value;
	s->caps |= ONE_LOCK;
	if (*value && strlen(value) <= NAME_BYTES)
		return RC_OK;
	return fault_set(
	    f, RC_USAGE, "name is one of GET_LOCK, of 1 to %d bytes", NAME_BYTES);
}

static enum rc
set_socket(struct store *s, const char *value, struct fault *f)
{
	mysql_of(s)->session.login.socket = value;
	if (*value == '/' && strlen(value) < 108)
		return RC_OK;
	return fault_set(f, RC_USAGE, "socket is an absolute path of at most 107 bytes");
}

static enum rc
set_password_file(struct store *s, const char *value, struct fault *f)
{
	struct login *a = &mysql_of(s)->session.login;

	a->has_password = true;
	return setting_secret("password-file", value, a->password, sizeof a->password, f);
}

static enum rc
set_tls(struct store *s, const char *value, struct fault *f)
{
	static const struct {
		const char *word;
		enum tls_wish wish;
	} words[] = {{"off", TLS_OFF}, {"encrypt", TLS_ENCRYPT}, {"verify", TLS_VERIFY}};

	for (size_t i = 0; i < sizeof words / sizeof *words; i++)
		if (strcmp(words[i].word, value) == 0) {
			mysql_of(s)->session.login.tls.wish = words[i].wish;
			return RC_OK;
		}
	return fault_set(f, RC_USAGE,
	    "tls is off, encrypt (whoever the server is) or verify (its certificate)");
}

static enum rc
set_cacert(struct store *s, const char *value, struct fault *f)
{
	mysql_of(s)->session.login.tls.cacert = value;
	return setting_file("cacert", value, false, f);
}

static enum rc
set_cert(struct store *s, const char *value, struct fault *f)
{
	mysql_of(s)->session.login.tls.cert = value;
	return setting_file("cert", value, false, f);
}

static enum rc
set_key(struct store *s, const char *value, struct fault *f)
{
	mysql_of(s)->session.login.tls.key = value;
	return setting_file("key", value, true, f);
}

static enum rc
set_patience(struct store *s, const char *value, struct fault *f)
{
	return setting_timeout(value, &mysql_of(s)->patience.first, f);
}

static const struct setting_row settings[] = {
    {"mode", "lease|row|named", "how a key is locked (default: lease)", set_mode},
    {"name", "NAME", "mode=named: the lock that GET_LOCK('NAME', ...) takes", set_name},
    {"socket", "PATH", "the server's unix socket", set_socket},
    {"password-file", "FILE", "one line: the password of the URL's user",
	set_password_file},
    {"tls", "off|encrypt|verify", "whether TLS is spoken (default: as my.cnf says)",
	set_tls},
    {"cacert", "FILE", "the CAs to trust; means tls=verify", set_cacert},
    {"cert", "FILE", "our certificate, for a server that wants one", set_cert},
    {"key", "FILE", "its private key", set_key},
    {"connect-timeout", "DURATION", "for the first answer, without --wait (default: 5s)",
	set_patience},
    {0},
};

/* ---- the calls ---- */

static void
mysql_store_close(struct store *s)
{
	struct mysql *my = s ? mysql_of(s) : NULL;

	if (!my)
		return;
	session_free(&my->session);
	free(my->own);
	free(my);
}

static enum rc
mysql_open(
    struct store **ret, struct host *host, const struct site *site, struct fault *f)
{
	struct mysql *my = calloc(1, sizeof *my);
	enum rc rc;

	if (!my)
		return fault_set(f, RC_SYSTEM, "out of memory");
	my->base = (struct store){&mysql_backend, host, my->session.where, 0};
	my->mode = &mysql_lease_mode;
	retry_init(&my->patience);
	rc = setting_read(&my->base, site, f);
	if (rc == RC_OK && my->name && my->mode != &mysql_named_mode)
		rc = fault_set(f, RC_USAGE, "name= goes with mode=named only");
	if (rc == RC_OK)
		rc = session_init(&my->session, host, site->url,
		    my->mode->needs_database ? "dlock" : "", f);
	my->base.caps |= my->mode->caps;
	my->own = calloc(1, my->mode->bytes);
	if (rc == RC_OK && !my->own)
		rc = fault_set(f, RC_SYSTEM, "out of memory");
	if (rc == RC_OK)
		*ret = &my->base;
	else
		mysql_store_close(&my->base);
	return rc;
}

static enum rc
mysql_identify(struct store *s, struct identity *id, struct fault *f)
{
	const struct mysql *my = mysql_of(s);

	identity_add(id, "mode", my->mode->name);
	identity_add(id, "name", my->name);
	return dial_identify(my->session.my, &my->session.login, id)
	    ? RC_OK
	    : fault_set(f, RC_SYSTEM, "out of memory");
}

static enum rc
mysql_acquire(struct store *s, const struct claim *claim, instant until, struct grant *g,
    struct fault *f)
{
	struct mysql *my = mysql_of(s);

	my->claim = claim;
	my->session.purpose.ttl = claim->ttl;
	my->lease_us = claim->ttl / 1000;
	retry_begin(&my->patience, claim);
	return my->mode->acquire(my, until, g, f);
}

static enum rc
mysql_renew(struct store *s, instant until, struct grant *g, struct fault *f)
{
	return mysql_of(s)->mode->renew(mysql_of(s), until, g, f);
}

static enum rc
mysql_release(struct store *s, int status, instant until, struct fault *f)
{
	return mysql_of(s)->mode->release(mysql_of(s), status, until, f);
}

/* Of who has no lease: what a server that hangs is given. */
#define ADMIN_PATIENCE (30 * NS_PER_S)

/* The mode's, for one that has no claim. */
static const struct steering *
steering_of(struct mysql *my)
{
	my->session.purpose.ttl = ADMIN_PATIENCE;
	return my->mode->steering;
}

static enum rc
mysql_cannot(const struct mysql *my, const char *what, struct fault *f)
{
	return fault_set(f, RC_CONFIG, "mode=%s cannot %s a lock", my->mode->name, what);
}

static enum rc
mysql_each(struct store *s, const struct look *look, struct fault *f)
{
	struct mysql *my = mysql_of(s);

	my->session.purpose.reads = true;
	return steering_of(my)->each(my, look, f);
}

static enum rc
mysql_revoke(struct store *s, const struct target *target, const char *record, bool force,
    instant until, struct fault *f)
{
	struct mysql *my = mysql_of(s);

	if (!(s->caps & (force ? CAP_FORCE : CAP_REVOKE)))
		return mysql_cannot(my, force ? "break" : "ask for", f);
	return steering_of(my)->revoke(my, target, record, force, until, f);
}

static enum rc
mysql_freeze(struct store *s, const char *key, const char *record, int64_t length,
    instant until, struct fault *f)
{
	struct mysql *my = mysql_of(s);

	if (!(s->caps & CAP_FREEZE))
		return mysql_cannot(my, "freeze", f);
	return steering_of(my)->freeze(my, key, record, length, until, f);
}

static enum rc
mysql_thaw(struct store *s, const char *key, instant until, struct fault *f)
{
	struct mysql *my = mysql_of(s);

	if (!(s->caps & CAP_FREEZE))
		return mysql_cannot(my, "thaw", f);
	return steering_of(my)->thaw(my, key, until, f);
}

const struct backend mysql_backend = {
    .name = "mysql",
    .schemes = (const char *const[]){"mysql", "mariadb", NULL},
    .settings = settings,
    .url_help = "mysql://[user[:password]@]host[:port][/database]",
    .schema = schema_sql,
    .open = mysql_open,
    .close = mysql_store_close,
    .identify = mysql_identify,
    .lock = &(const struct lock_ops){mysql_acquire, mysql_renew, mysql_release},
    .admin = &(
	const struct admin_ops){mysql_each, mysql_revoke, mysql_freeze, mysql_thaw},
};
