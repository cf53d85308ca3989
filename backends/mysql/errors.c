/* errors.c - reads error numbers, and keeps passwords out of what is quoted. */
#include "errors.h"

#include "backends/common/text.h"

#include <errno.h>
#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* libmariadb's; the second is of MARIADB_OPT_RESTRICTED_AUTH */
enum { PLUGIN_MISSING = 2059, PLUGIN_FORBIDDEN = 5010 };

#define RIGHTS "1044 1131 1142 1143 1227 1370 1820"

const char *const errors_failures[SQL_FAILURES] = {
    [SQL_LOST_RACE] = ERROR_TIMEOUT " " ERROR_DEADLOCK " " ERROR_DUPLICATE,
    [SQL_NO_TABLE] = "1146",
    [SQL_NO_PROCEDURE] = ERROR_NO_PROCEDURE,
    [SQL_NO_RIGHT] = RIGHTS,
    [SQL_INTERRUPTED] = ERROR_INTERRUPTED,
    [SQL_READ_ONLY] = ERROR_READ_ONLY,
};

const struct sql_meaning errors_meanings[] = {
    /* who we are */
    {RC_DENIED, "1131 1142 1143 1227 1370", NULL},
    {RC_DENIED, "1044", "this user may not use the database"},
    {RC_DENIED, "1045 1698", "check user and password"},
    {RC_DENIED, "1129",
	"the server has had too many failed logins from here: FLUSH HOSTS"},
    {RC_DENIED, "1130", "no user may log in from this host"},
    {RC_DENIED, "1820", "the password must be changed first"},
    {RC_DENIED, "1862", "the password has expired"},
    {RC_DENIED, "3118 4151", "the account is locked"},
    /* a server on which a lock is not safe, or not possible */
    {RC_CONFIG, "1235 1286", NULL},
    {RC_CONFIG, "1036 1874 1881",
	"InnoDB is read-only, or recovers (innodb_force_recovery)"},
    {RC_CONFIG, "1049", "name a database that is there, or create it"},
    {RC_CONFIG, "1449",
	"the user who made dlock's procedures is gone: drop them, then run dlock help mysql-schema | mysql DATABASE"},
    {RC_CONFIG, ERROR_READ_ONLY " 1792 1836",
	"this is a replica, or read-only; a lock needs the primary"},
    {RC_CONFIG, "1665", "set binlog_format to MIXED or ROW"},
    {RC_CONFIG, "3159", "it wants TLS: -O tls=verify"}, /* MySQL's; MariaDB says 1045 */
    {RC_CONFIG, "1690",
	"a number in dlock's tables is not from dlock: DELETE FROM dlock_keys the row that has it"},
    /* what passes */
    {RC_AGAIN,
	"1020 1021 1041 1053 1080 1114 1135 1152 1158 1159 1160 1161 1180 1184 "
	"1412 1927 3032 3101 3168 4031 " ERROR_DEADLOCK " " ERROR_DUPLICATE
	" " ERROR_INTERRUPTED " " ERROR_TOO_LONG " " ERROR_LATE " " ERROR_LOCK_DEADLOCK,
	NULL},
    {RC_AGAIN, "1040", "the server has no room for another connection"},
    {RC_AGAIN, "1047", "this node of the cluster is not ready"},
    {RC_AGAIN, "1203", "the user has no room for another connection"},
    {RC_AGAIN, ERROR_TIMEOUT, "somebody keeps rows of dlock's tables locked"},
    {RC_AGAIN, "1226", "the user's share of the server is used up"},
    {RC_AGAIN, ERROR_NO_PROCEDURE,
	"somebody has dropped dlock's procedures: dlock help mysql-schema | mysql DATABASE"},
    {RC_PROTOCOL, "", NULL},
};

/* libmariadb's own errors: it cannot reach the server, or does not understand it. */
static enum rc
rc_of_library(unsigned number)
{
	switch (number) {
	case 2007: /* version */
	case 2012: /* handshake */
	case 2027: /* malformed packet */
	case 2057:
	case 2068: /* asks for a file */
		return RC_PROTOCOL;
	case 2026: /* TLS */
	case 2058:
	case PLUGIN_MISSING:
		return RC_CONFIG;
	case 2008:
		return RC_SYSTEM;
	default:
		return RC_AGAIN;
	}
}

/*
 * An error has come, with this number: the first line of its text, without the password that it
 * may repeat, and db->error, if it is the server's.  False: it is libmariadb's, or the end of the
 * connection, and no refusal.
 */
static bool
read_error(struct session *s, MYSQL *mysql, unsigned *number, char *text, size_t size)
{
	const char *words = s->my->error(mysql);

	*number = s->my->error_number(mysql);
	snprintf(text, size, "%.*s", (int)strcspn(words, "\r\n"), words);
	secret_blot(text, s->login.password);
	*s->db->error = '\0';
	if ((*number >= 2000 && *number < 3000) || (*number >= 5000 && *number < 6000))
		return false;
	snprintf(s->db->error, sizeof s->db->error, "%u", *number);
	return true;
}

static enum rc
refused(const struct session *s, const char *text, struct fault *f)
{
	/* its number goes for all options that are in the way (NO_ENGINE_SUBSTITUTION), by name */
	if (sql_error_is(s->db, ERROR_READ_ONLY) &&
	    fnmatch("*read[-_]only*", text, 0) != 0)
		return fault_set(f, RC_CONFIG, "%s says '%.240s' (%s)", s->db->where,
		    text, s->db->error);
	return sql_refused(s->db, text, f);
}

enum rc
errors_of_statement(struct session *s, struct fault *f)
{
	char text[256];
	unsigned number;

	if (read_error(s, s->mysql, &number, text, sizeof text))
		return refused(s, text, f);
	if (number == 2006 || number == 2013 || number == 2055)
		return fault_set(f, RC_AGAIN, "%s closed the connection", s->db->where);
	return fault_set(
	    f, rc_of_library(number), "%s: %.240s (%u)", s->db->where, text, number);
}

/* libmariadb writes an errno at the end: "system error: 111", "(111)".  0: it has not. */
static int
errno_in(const char *text)
{
	const char *at = strrchr(text, '(') ? strrchr(text, '(') : strrchr(text, ':');
	int number = at ? atoi(at + 1) : 0;

	return number > 0 && number < 134 ? number : 0;
}

/* In words, where there is one. */
static const char *
reason_of(const char *text)
{
	int number = errno_in(text);

	return number ? strerror(number) : text;
}

/* Is this errno a connection's that has ended, and no file's that cannot be read? */
static bool
is_of_connection(int number)
{
	return number == ECONNRESET || number == EPIPE || number == ECONNABORTED ||
	    number == ETIMEDOUT || number == EHOSTUNREACH || number == ENETUNREACH;
}

static enum rc
errors_unreached(struct session *s, MYSQL *mysql, enum connected how, struct fault *f)
{
	char text[256];
	unsigned number;
	bool amid;

	if (read_error(s, mysql, &number, text, sizeof text))
		return refused(s, text, f);
	/*
	 * If the login could not be sent, libmariadb may take it for the server's answer (one of
	 * 254 bytes begins like that), and miss a plugin that nobody has named.
	 */
	if (how == CONNECTED_CUT &&
	    (number == PLUGIN_MISSING || number == PLUGIN_FORBIDDEN))
		return fault_set(f, RC_AGAIN, "%s closed the connection", s->db->where);
	if (number == PLUGIN_FORBIDDEN)
		return fault_set(f, RC_CONFIG,
		    "%s wants the password itself, and dlock cannot know who that server is: say -O tls=verify (for caching_sha2_password, tls=encrypt will do)",
		    s->db->where);
	/* the connection has ended amid the handshake of TLS: nothing is wrong with the TLS */
	amid = number == 2026 && is_of_connection(errno_in(text));
	return fault_set(f, amid ? RC_AGAIN : rc_of_library(number),
	    "cannot reach %s: %.240s (%u)", s->db->where,
	    number == 2026 && !amid ? text : reason_of(text), number);
}

enum rc
errors_at_login(struct session *s, MYSQL *mysql, enum connected how, struct fault *f)
{
	switch (how) {
	case CONNECTED_LATE:
		return fault_set(f, RC_AGAIN, "%s does not answer", s->db->where);
	case CONNECTED_FOREIGN:
		return fault_set(f, RC_PROTOCOL,
		    "%s does not answer as MySQL does: is this a MySQL or a MariaDB?",
		    s->db->where);
	case CONNECTED_PLAINLY:
		return fault_set(f, RC_CONFIG,
		    "%s does not speak TLS, which tls=, cacert=, cert= or an option file asks for",
		    s->db->where);
	default:
		return mysql ? errors_unreached(s, mysql, how, f)
			     : fault_set(f, RC_SYSTEM, "out of memory");
	}
}
