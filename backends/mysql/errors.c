/* errors.c - reads error numbers, and keeps passwords out of what is quoted. */
#include "errors.h"

#include "backends/common/secret.h"

#include <errno.h>
#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* libmariadb's; the second is of MARIADB_OPT_RESTRICTED_AUTH */
enum { PLUGIN_MISSING = 2059, PLUGIN_FORBIDDEN = 5010 };

#define RIGHTS "1044 1131 1142 1143 1227 1370 1820"

const char *const errors_failures[SQL_FAILURES] = {
    [SQL_LOST_RACE] = ERROR_TIMEOUT " " ERROR_DEADLOCK " " ERROR_DUPLICATE
				    " " ERROR_OVERTAKEN,
    [SQL_NO_TABLE] = "1146",
    [SQL_NO_PROCEDURE] = ERROR_NO_PROCEDURE,
    [SQL_NO_RIGHT] = RIGHTS,
    [SQL_INTERRUPTED] = ERROR_INTERRUPTED,
    [SQL_READ_ONLY] = ERROR_READ_ONLY,
};

const struct sql_meaning errors_meanings[] = {
    /* who we are */
    {RC_DENIED, "1095 1131 1142 1143 1227 1370", NULL},
    {RC_DENIED, "1044", "this user may not use the database"},
    {RC_DENIED, "1045 1698 1873", "check user and password"},
    {RC_DENIED, "1129",
	"the server has had too many failed logins from here: FLUSH HOSTS"},
    {RC_DENIED, "1130", "no user may log in from this host"},
    {RC_DENIED, "1820", "the password must be changed first"},
    {RC_DENIED, "1862", "the password has expired"},
    {RC_DENIED, "3118 3955 4151", "the account is locked"},
    /* a server on which a lock is not safe, or not possible */
    {RC_CONFIG, "1115 1193 1229 1231 1235 1238 1273 1286 1289 8108", NULL},
    {RC_CONFIG, "1036 1874 1881",
	"InnoDB is read-only, or recovers (innodb_force_recovery)"},
    {RC_CONFIG, "1046 1049", "name a database that is there, or create it"},
    {RC_CONFIG, "1119 1436", "raise its thread_stack"},
    {RC_CONFIG, "1153 1301", "raise its max_allowed_packet"},
    {RC_CONFIG, "1194 1195 1712 1817 1877", "its data is damaged"},
    {RC_CONFIG, "1197", "raise its max_binlog_cache_size"},
    {RC_CONFIG, "1251 1275 1524",
	"it wants a way to log in that this user does not have"},
    {RC_CONFIG, "1418 1419", "set its log_bin_trust_function_creators"},
    {RC_CONFIG, "1457 1558 1728",
	"its system tables are of another version: mysql_upgrade"},
    {RC_CONFIG, "1456", "raise its max_sp_recursion_depth"},
    {RC_CONFIG, "1705", "raise its max_binlog_stmt_cache_size"},
    {RC_CONFIG, "1449",
	"the user who made dlock's procedures is gone: drop them, then run dlock help mysql-schema | mysql DATABASE"},
    {RC_CONFIG, ERROR_READ_ONLY " 1792 1836",
	"this is a replica, or read-only; a lock needs the primary"},
    {RC_CONFIG, "1665", "set binlog_format to MIXED or ROW"},
    {RC_CONFIG, "3159", "it wants TLS: -O tls=verify"}, /* MySQL's; MariaDB says 1045 */
    {RC_CONFIG, "1690",
	"a number in dlock's tables is not from dlock: DELETE FROM dlock_keys the row that has it"},
    {RC_CONFIG,
	"1048 1054 1136 1242 1264 1267 1292 1318 1364 1366 1369 1406 1442 1644 4025 3819",
	"dlock's tables and procedures are not as it has made them (dlock help mysql-schema)"},
    {RC_PROTOCOL, "1043", NULL},
    {RC_PROTOCOL, "1064 1149", "it does not understand dlock's SQL"},
    /* what passes */
    {RC_AGAIN, "1040", "the server has no room for another connection"},
    {RC_AGAIN, "1047", "this node of the cluster is not ready"},
    {RC_AGAIN, "1203", "the user has no room for another connection"},
    {RC_AGAIN, ERROR_TIMEOUT, "somebody keeps rows of dlock's tables locked"},
    {RC_AGAIN, "1226", "the user's share of the server is used up"},
    {RC_AGAIN, ERROR_NO_PROCEDURE,
	"somebody has dropped dlock's procedures: dlock help mysql-schema | mysql DATABASE"},
    {RC_AGAIN, "1114 1206 1461 1637", "it is full"},
    {RC_AGAIN, ERROR_OVERTAKEN, "other members of the cluster are faster"},
    /* a lost race, an end of the server, a disk; and what nobody has foreseen */
    {RC_AGAIN, "", NULL},
};

/* libmariadb's own errors: it cannot reach the server, or does not understand it. */
enum rc
errors_of_library(unsigned number)
{
	switch (number) {
	case 2007: /* version */
	case 2012: /* handshake */
	case 2027: /* malformed packet */
	case 2057:
	case 2068: /* asks for a file */
		return RC_PROTOCOL;
	case 2019: /* a character set */
	case 2047: /* a way to connect */
	case 2049: /* passwords of before 4.1 */
	case 5004: /* a file */
	case 5005:
	case 5012: /* a plugin */
	case 2026: /* TLS */
	case 2058:
	case PLUGIN_MISSING:
	case PLUGIN_FORBIDDEN:
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
	    f, errors_of_library(number), "%s: %.240s (%u)", s->db->where, text, number);
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
	return fault_set(f, amid ? RC_AGAIN : errors_of_library(number),
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
