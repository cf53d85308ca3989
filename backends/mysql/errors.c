/* errors.c - reads error numbers, and keeps passwords out of what is quoted. */
#include "errors.h"

#include "backends/common/text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* libmariadb's; the second is of MARIADB_OPT_RESTRICTED_AUTH */
enum { PLUGIN_MISSING = 2059, PLUGIN_FORBIDDEN = 5010 };

/* What a number means for a lock. */
static const struct meaning {
	unsigned number;
	enum rc rc;
	const char *hint;
} meanings[] = {
    /* who we are */
    {1044, RC_DENIED, "this user may not use the database"},
    {1045, RC_DENIED, "check user and password"},
    {1129, RC_DENIED, "the server has had too many failed logins from here: FLUSH HOSTS"},
    {1130, RC_DENIED, "no user may log in from this host"},
    {1131, RC_DENIED, NULL},
    {1142, RC_DENIED, NULL},
    {1143, RC_DENIED, NULL},
    {1227, RC_DENIED, NULL},
    {1370, RC_DENIED, NULL},
    {1698, RC_DENIED, "check user and password"},
    {1820, RC_DENIED, "the password must be changed first"},
    {1862, RC_DENIED, "the password has expired"},
    {3118, RC_DENIED, "the account is locked"},
    {4151, RC_DENIED, "the account is locked"},
    /* a server on which a lock is not safe, or not possible */
    {1036, RC_CONFIG, "InnoDB is read-only, or recovers (innodb_force_recovery)"},
    {1049, RC_CONFIG, "name a database that is there, or create it"},
    {1235, RC_CONFIG, NULL},
    {1286, RC_CONFIG, NULL},
    {1449, RC_CONFIG,
	"whoever has made dlock's procedures is gone: drop them, then dlock help mysql-schema | mysql DATABASE"},
    {SAID_READ_ONLY, RC_CONFIG,
	"this is a replica, or read-only; a lock needs the primary"},
    {1665, RC_CONFIG, "set binlog_format to MIXED or ROW"},
    {1792, RC_CONFIG, "this is a replica, or read-only; a lock needs the primary"},
    {1836, RC_CONFIG, "this is a replica, or read-only; a lock needs the primary"},
    {1874, RC_CONFIG, "InnoDB is read-only, or recovers (innodb_force_recovery)"},
    {1881, RC_CONFIG, "InnoDB is read-only, or recovers (innodb_force_recovery)"},
    {1690, RC_CONFIG,
	"a number in dlock's tables is none of dlock's: DELETE FROM dlock_keys where it is so"},
    /* what passes */
    {1020, RC_AGAIN, NULL},
    {1021, RC_AGAIN, NULL},
    {1040, RC_AGAIN, "the server has no room for another connection"},
    {1041, RC_AGAIN, NULL},
    {1047, RC_AGAIN, "this node of the cluster is not ready"},
    {1053, RC_AGAIN, NULL},
    {1080, RC_AGAIN, NULL},
    {1114, RC_AGAIN, NULL},
    {1135, RC_AGAIN, NULL},
    {1152, RC_AGAIN, NULL},
    {1158, RC_AGAIN, NULL},
    {1159, RC_AGAIN, NULL},
    {1160, RC_AGAIN, NULL},
    {1161, RC_AGAIN, NULL},
    {1180, RC_AGAIN, NULL},
    {1184, RC_AGAIN, NULL},
    {1203, RC_AGAIN, "the user has no room for another connection"},
    {SAID_TIMEOUT, RC_AGAIN, "somebody keeps rows of dlock's tables locked"},
    {SAID_DEADLOCK, RC_AGAIN, NULL},
    {SAID_DUPLICATE, RC_AGAIN, NULL},
    {1226, RC_AGAIN, "the user's share of the server is used up"},
    {SAID_NO_PROCEDURE, RC_AGAIN,
	"somebody has dropped dlock's procedures: dlock help mysql-schema | mysql DATABASE"},
    {SAID_INTERRUPTED, RC_AGAIN, NULL},
    {1412, RC_AGAIN, NULL},
    {1927, RC_AGAIN, NULL},
    {1969, RC_AGAIN, NULL},
    {SAID_LATE, RC_AGAIN, NULL},
    {SAID_LOCK_DEADLOCK, RC_AGAIN, NULL},
    {3101, RC_AGAIN, NULL},
    {3168, RC_AGAIN, NULL},
    {4031, RC_AGAIN, NULL},
};

static const struct meaning *
meaning_of(unsigned number)
{
	static const struct meaning unknown = {0, RC_PROTOCOL, NULL};

	for (size_t i = 0; i < sizeof meanings / sizeof *meanings; i++)
		if (meanings[i].number == number)
			return &meanings[i];
	return &unknown;
}

bool
errors_end_connection(unsigned number)
{
	return (number >= 2000 && number < 3000) || (number >= 5000 && number < 6000);
}

/* Its first line, which may repeat the password that it was told. */
static void
errors_quote(const struct session *s, char *out, size_t size, const char *text)
{
	snprintf(out, size, "%.*s", (int)strcspn(text, "\r\n"), text);
	secret_blot(out, s->login.password);
}

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

/* By 1290 some other option may speak (NO_ENGINE_SUBSTITUTION): then it is no replica. */
static bool
is_about_other(const struct session *s, const char *text)
{
	return s->said == SAID_READ_ONLY && !strstr(text, "read-only") &&
	    !strstr(text, "read_only");
}

/* The server's word. */
static enum rc
errors_refused(struct session *s, const char *text, struct fault *f)
{
	const struct meaning *m = meaning_of(s->said);

	const char *hint = is_about_other(s, text) ? NULL : m->hint;

	return fault_set(f, m->rc, "%s says '%.240s' (%u)%s%s", s->db->where, text,
	    s->said, hint ? ": " : "", hint ? hint : "");
}

enum rc
errors_of_statement(struct session *s, struct fault *f)
{
	char text[256];

	s->said = s->my->error_number(s->mysql);
	errors_quote(s, text, sizeof text, s->my->error(s->mysql));
	if (s->said == 2006 || s->said == 2013 || s->said == 2055)
		return fault_set(f, RC_AGAIN, "%s closed the connection", s->db->where);
	if (errors_end_connection(s->said))
		return fault_set(f, rc_of_library(s->said), "%s: %.240s (%u)",
		    s->db->where, text, s->said);
	return errors_refused(s, text, f);
}

/*
 * libmariadb writes an errno at the end: "system error: 111", "(111)".  In words, where
 * there is one.
 */
static const char *
reason_of(const char *text)
{
	const char *at = strstr(text, "system error: "), *paren = strrchr(text, '(');
	int number = 0;

	if (at)
		number = atoi(at + 14);
	else if (paren)
		number = atoi(paren + 1);
	return number > 0 && number < 134 ? strerror(number) : text;
}

/*
 * If the login could not be sent, libmariadb may take it for the server's answer (one of 254
 * bytes begins like that), and miss a plugin that nobody has named.
 */
static bool
is_about_plugin(unsigned number)
{
	return number == PLUGIN_MISSING || number == PLUGIN_FORBIDDEN;
}

static enum rc
errors_unreached(struct session *s, MYSQL *mysql, enum connected how, struct fault *f)
{
	char text[256];

	s->said = s->my->error_number(mysql);
	errors_quote(s, text, sizeof text, s->my->error(mysql));
	if (!errors_end_connection(s->said))
		return errors_refused(s, text, f);
	if (how == CONNECTED_CUT && is_about_plugin(s->said)) {
		s->said = 2013;
		return fault_set(f, RC_AGAIN, "%s closed the connection", s->db->where);
	}
	if (s->said == PLUGIN_FORBIDDEN)
		return fault_set(f, RC_CONFIG,
		    "%s wants to be told the password, not a proof of it, and could be anybody: say tls=verify "
		    "(for caching_sha2_password tls=encrypt will do)",
		    s->db->where);
	return fault_set(f, rc_of_library(s->said), "cannot reach %s: %.240s (%u)",
	    s->db->where, s->said == 2026 ? text : reason_of(text), s->said);
}

enum rc
errors_at_login(struct session *s, MYSQL *mysql, enum connected how, struct fault *f)
{
	s->said = 0;
	switch (how) {
	case CONNECTED_LATE:
		return fault_set(f, RC_AGAIN, "%s does not answer", s->db->where);
	case CONNECTED_FOREIGN:
		return fault_set(f, RC_PROTOCOL,
		    "%s does not speak MySQL's language: is this a MySQL or a MariaDB?",
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
