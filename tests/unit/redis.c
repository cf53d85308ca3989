/*
 * redis.c - Goal of these tests: the pure parts of the redis backend: what
 * a URL means, which replies are let in, what a server's errors mean, and when
 * a master that has restarted votes again.
 */
#include "backends/redis/address.h"
#include "backends/redis/quorum.h"
#include "backends/redis/resp.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

/* ---- URLs ---- */

static void
good_urls(void **state)
{
	static const struct {
		const char *url, *host;
		int port;
		const char *path, *user, *password;
		int db;
		const char *printed;
	} rows[] = {
	    {NULL, "127.0.0.1", 6379, "", "", "", 0, "redis 127.0.0.1:6379"},
	    {"redis://h", "h", 6379, "", "", "", 0, "redis h:6379"},
	    {"redis://h/", "h", 6379, "", "", "", 0, "redis h:6379"},
	    {"redis://h:1", "h", 1, "", "", "", 0, "redis h:1"},
	    {"redis://h:65535/15", "h", 65535, "", "", "", 15, "redis h:65535"},
	    {"redis://a-b_c.example.org:6379", "a-b_c.example.org", 6379, "", "", "", 0,
		"redis a-b_c.example.org:6379"},
	    {"redis://[::1]", "::1", 6379, "", "", "", 0, "redis [::1]:6379"},
	    {"redis://[::1]:7000/2", "::1", 7000, "", "", "", 2, "redis [::1]:7000"},
	    {"redis://[fe80::1%eth0]:1", "fe80::1%eth0", 1, "", "", "", 0,
		"redis [fe80::1%eth0]:1"},
	    {"redis://[::ffff:10.0.0.1]", "::ffff:10.0.0.1", 6379, "", "", "", 0,
		"redis [::ffff:10.0.0.1]:6379"},
	    {"redis://:pw@h", "h", 6379, "", "", "pw", 0, "redis h:6379"},
	    {"redis://user:pw@h:1/3", "h", 1, "", "user", "pw", 3, "redis h:1"},
	    {"redis://u%3Aser:p%40ss%2F%25@h", "h", 6379, "", "u:ser", "p@ss/%", 0,
		"redis h:6379"},
	    {"redis://u:p:q@h", "h", 6379, "", "u", "p:q", 0, "redis h:6379"},
	    {"redis://u:p@q@h", "h", 6379, "", "u", "p@q", 0, "redis h:6379"},
	    {"redis+unix:///run/redis.sock", "", 6379, "/run/redis.sock", "", "", 0,
		"redis /run/redis.sock"},
	    {"redis+unix:///run/a%20b?db=3", "", 6379, "/run/a b", "", "", 3,
		"redis /run/a b"},
	    {"redis+unix://u:p@/run/s", "", 6379, "/run/s", "u", "p", 0, "redis /run/s"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		struct address a;
		struct fault f = {""};
		char printed[WHERE_BYTES];

		if (address_parse(&a, rows[i].url, &f) != RC_OK)
			fail_msg("%s: %s", rows[i].url, f.text);
		assert_string_equal(a.hosts[0].host, rows[i].host);
		if (!*rows[i].path)
			assert_int_equal(a.hosts[0].port, rows[i].port);
		assert_string_equal(a.path, rows[i].path);
		assert_string_equal(a.user, rows[i].user);
		assert_string_equal(a.password, rows[i].password);
		assert_int_equal(a.db, rows[i].db);
		address_print(&a, printed, sizeof printed);
		assert_string_equal(printed, rows[i].printed);
	}
}

static void
urls_with_tls(void **state)
{
	struct address a;
	struct fault f;

	(void)state;
	assert_int_equal(address_parse(&a, "redis://h", &f), RC_OK);
	assert_false(a.secure);
	assert_int_equal(address_parse(&a, "rediss://u:p@h:1/3", &f), RC_OK);
	assert_true(a.secure);
	assert_string_equal(a.user, "u");
	assert_string_equal(a.password, "p");
	assert_int_equal(a.db, 3);
	assert_int_equal(address_parse(&a, "rediss://", &f), RC_USAGE);
	assert_int_equal(address_parse(&a, "rediss+sentinel://h,i/m", &f), RC_OK);
	assert_true(a.secure && a.form == FORM_SENTINEL && a.hosts[1].port == 26379);
	assert_int_equal(address_parse(&a, "rediss+cluster://h,i", &f), RC_OK);
	assert_true(a.secure && a.form == FORM_CLUSTER && a.hosts[1].port == 6379);
}

static void
is_wrong(const char *url)
{
	struct address a;
	struct fault f = {""};

	if (address_parse(&a, url, &f) != RC_USAGE)
		fail_msg("%s: not refused", url);
	assert_string_not_equal(f.text, "");
	assert_null(strstr(f.text, "secret"));
}

static void
wrong_urls(void **state)
{
	static const char *const rows[] = {"redis:", "redis:/", "redis:h", "redis://",
	    "redis:///", "redis:///0", "redis://:6379", "redis://h:", "redis://h:0",
	    "redis://h:65536", "redis://h:655360", "redis://h:6379abc", "redis://h:-1",
	    "redis://h:+1", "redis://h: 1", "redis://h:1:2", "redis://h:99999999999",
	    "redis://h/-1", "redis://h/x", "redis://h/1/2", "redis://h/1 ",
	    "redis://h/99999999999", "redis://h/2147483648", "redis://h?db=1",
	    "redis://h#1", "redis://h h", "redis://h\n", "redis://h,i", "redis://::1",
	    "redis://[::1", "redis://[]", "redis://[h]", "redis://[::1]1",
	    "redis://[::1]:", "redis://[::1]:0", "redis://[::1]x:1",
	    "redis://u:secret%zz@h", "redis://u:secret%00@h", "redis://u:secret%4@h",
	    "redis://u%:secret@h", "redis://u:secret@", "redis://u:secret@:1",
	    "redis+unix://", "redis+unix://relative", "redis+unix://host/path",
	    "redis+unix:///s?db=", "redis+unix:///s?db=x", "redis+unix:///s?db=-1",
	    "redis+unix:///s?password=secret", "redis+unix:///s?db=1&db=2",
	    "redis+unix:///%zz"};
	char url[800];

	(void)state;
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
		is_wrong(rows[i]);
	snprintf(url, sizeof url, "redis+unix:///%0107d", 0); /* 108 bytes of path */
	is_wrong(url);
	snprintf(url, sizeof url, "redis://%0300d", 0);
	is_wrong(url);
	/* a label has 63 at most */
	snprintf(url, sizeof url, "redis://%064d.example", 0);
	is_wrong(url);
	snprintf(url, sizeof url, "redis://u:%0600d@h", 0);
	is_wrong(url);
	snprintf(url, sizeof url, "redis://%0200d:secret@h", 0);
	is_wrong(url);
}

static void
longest_urls(void **state)
{
	struct address a;
	struct fault f;
	char url[800];

	(void)state;
	snprintf(url, sizeof url, "redis+unix:///%0106d", 0);
	assert_int_equal(address_parse(&a, url, &f), RC_OK);
	assert_int_equal(strlen(a.path), 107);
	snprintf(url, sizeof url, "redis://:%0511d@h", 0);
	assert_int_equal(address_parse(&a, url, &f), RC_OK);
	assert_int_equal(strlen(a.password), 511);
}

/* ---- replies ---- */

static void
good_replies(void **state)
{
	static const char *const rows[] = {"+OK\r\n", "+\r\n", "-ERR x\r\n", ":0\r\n",
	    ":-1\r\n", ":123456789012345678\r\n", "$-1\r\n", "$0\r\n\r\n",
	    "$3\r\nabc\r\n", "$2\r\n\r\n\r\n", "*-1\r\n", "*0\r\n", "*1\r\n:1\r\n",
	    "*3\r\n:1\r\n$-1\r\n+x\r\n", "*1\r\n*1\r\n*1\r\n:1\r\n",
	    "*2\r\n*0\r\n*2\r\n$1\r\na\r\n$1\r\nb\r\n"};

	(void)state;
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		size_t n = strlen(rows[i]);
		char two[200];

		assert_int_equal(resp_length(rows[i], n, &resp_usual), n);
		for (size_t cut = 0; cut < n; cut++) /* arrives byte by byte */
			assert_int_equal(resp_length(rows[i], cut, &resp_usual), 0);
		snprintf(two, sizeof two, "%s%s", rows[i], "+more\r\n");
		assert_int_equal(resp_length(two, strlen(two), &resp_usual), n);
	}
}

static void
wrong_replies(void **state)
{
	static const char *const rows[] = {"\r\n", "HTTP/1.1 400 Bad Request\r\n",
	    "SSH-2.0\r\n", "%1\r\n", "_\r\n", "#t\r\n", ",1\r\n", "\x15\x03\x01", "+OK\n",
	    "+O\rK\r\n", ":\r\n", ":abc\r\n", ":1a\r\n", ":+1\r\n", ":-\r\n",
	    ":1234567890123456789\r\n", ":99999999999999999999\r\n", "$-2\r\n", "$\r\n",
	    "$abc\r\n", "$16385\r\n", "$2147483647\r\n", "$9223372036854775806\r\n",
	    "$9223372036854775808\r\n", "$3\r\nabcd\r\n", "$0\r\nab", "*-2\r\n",
	    "*17\r\n", "*2147483647\r\n", "*9223372036854775807\r\n",
	    "*1\r\n*1\r\n*1\r\n*1\r\n:1\r\n", "*2\r\n:1\r\nx\r\n", "*1\r\n$20000\r\n",
	    "\n", "*\r\n", "+\n"};

	(void)state;
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
		if (resp_length(rows[i], strlen(rows[i]), &resp_usual) != -1)
			fail_msg("row %zu: %s is %zd", i, rows[i],
			    resp_length(rows[i], strlen(rows[i]), &resp_usual));
	assert_int_equal(resp_length("\0\r\n", 3, &resp_usual), -1);
}

/* No reply is awaited for ever: what does not end within RESP_BYTES is refused. */
static void
endless_replies(void **state)
{
	static char buf[RESP_BYTES + 100];

	(void)state;
	memset(buf, 'x', sizeof buf);
	buf[0] = '-';
	assert_int_equal(resp_length(buf, RESP_BYTES - 1, &resp_usual), 0);
	assert_int_equal(resp_length(buf, RESP_BYTES, &resp_usual), -1);
	memcpy(buf, "$16300\r\n", 8);
	assert_int_equal(resp_length(buf, 8, &resp_usual), 0);
	memcpy(buf + 8 + 16300, "\r\n", 2);
	assert_int_equal(resp_length(buf, 8 + 16302, &resp_usual), 8 + 16302);
	memcpy(buf, "*2\r\n$9000\r\n", 11); /* each is small enough, both are not */
	memcpy(buf + 11 + 9000, "\r\n$9000\r\n", 9);
	assert_int_equal(resp_length(buf, RESP_BYTES, &resp_usual), -1);
}

/* Pages of a look are larger, and have more members. */
static void
other_bounds(void **state)
{
	static const struct resp_bounds small = {20, 2, 1};

	(void)state;
	assert_int_equal(resp_length("*2\r\n:1\r\n:2\r\n", 12, &small), 12);
	assert_int_equal(resp_length("*3\r\n", 4, &small), -1);
	assert_int_equal(resp_length("$21\r\n", 5, &small), -1);
	assert_int_equal(resp_length("-01234567890123456789", 20, &small), -1);
	assert_int_equal(resp_length("*17\r\n", 5, &resp_pages), 0);
	assert_int_equal(resp_length("$16385\r\n", 8, &resp_pages), 0);
	assert_int_equal(resp_length("$1048577\r\n", 10, &resp_pages), -1);
}

static void
random_bytes_are_answered_safely(void **state)
{
	(void)state;
	srand(5);
	for (int round = 0; round < 300000; round++) {
		size_t n = rand() % 40;
		char *buf = malloc(n ? n : 1); /* exact, for the address sanitizer */
		ssize_t got;

		for (size_t i = 0; i < n; i++)
			buf[i] = "+-:$*\r\n\r\n0123\r\n-"[rand() % 17];
		got = resp_length(buf, n, &resp_usual);
		assert_true(got >= -1 && got <= (ssize_t)n);
		free(buf);
	}
}

/* ---- on a connection ---- */

static void
commands_are_written_one_behind_the_other(void **state)
{
	const resp_words two[] = {
	    {"AUTH", "", "a password of 27 characters"}, {"SELECT", "10"}};
	char *text = resp_write(two, 2);

	(void)state;
	assert_string_equal(text,
	    "*3\r\n$4\r\nAUTH\r\n$0\r\n\r\n$27\r\na password of 27 characters\r\n"
	    "*2\r\n$6\r\nSELECT\r\n$2\r\n10\r\n");
	free(text);
}

/* The room for a reply grows as it comes, up to the bounds. */
static void
long_replies_are_read(void **state)
{
	static char reply[RESP_BYTES];
	struct inbox in = {.used = 0};
	redisReply *read = NULL;
	const char *wrong;
	size_t n = sizeof reply - 1, given = 0;

	(void)state;
	memset(reply, 'x', n);
	memcpy(reply, "+", 1);
	memcpy(reply + n - 2, "\r\n", 2);
	assert_true(inbox_open(&in, &resp_usual));
	while (!read) {
		size_t room = in.size - in.used;

		assert_true(room > 0);
		room = room < n - given ? room : n - given;
		memcpy(in.bytes + in.used, reply + given, room);
		in.used += room;
		given += room;
		assert_int_equal(inbox_take(&in, &resp_usual, &read, &wrong), RC_OK);
	}
	assert_int_equal(given, n);
	assert_int_equal(read->len, n - 3);
	assert_int_equal(in.used, 0);
	freeReplyObject(read);
	memset(in.bytes, 'x', in.size);
	in.bytes[0] = '+';
	in.used = in.size;
	assert_int_equal(in.size, RESP_BYTES);
	assert_int_equal(inbox_take(&in, &resp_usual, &read, &wrong), RC_PROTOCOL);
	inbox_close(&in);
}

/* ---- errors ---- */

/* What Redis 7 says, in the order of its source; what others say in its place. */
static const struct {
	const char *text;
	enum rc rc;
} errors[] = {
    {"WRONGTYPE Operation against a key holding the wrong kind of value", RC_PROTOCOL},
    {"NOSCRIPT No matching script. Please use EVAL.", RC_AGAIN}, /* is asked otherwise */
    {"LOADING Redis is loading the dataset in memory", RC_AGAIN},
    {"BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.",
	RC_AGAIN},
    {"BUSY Redis is busy running a module command.", RC_AGAIN},
    {"MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.",
	RC_AGAIN},
    {"MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist to disk. Commands that may modify the data set are disabled",
	RC_AGAIN},
    {"MISCONF Errors writing to the AOF file: No space left on device", RC_AGAIN},
    {"READONLY You can't write against a read only replica.", RC_CONFIG},
    {"NOAUTH Authentication required.", RC_DENIED},
    {"OOM command not allowed when used memory > 'maxmemory'.", RC_AGAIN},
    {"OOM allow-oom flag is not set on the script, can not run it when used memory > 'maxmemory'",
	RC_AGAIN},
    {"EXECABORT Transaction discarded because of previous errors.", RC_AGAIN},
    {"NOREPLICAS Not enough good replicas to write.", RC_AGAIN},
    {"BUSYKEY Target key name already exists.", RC_AGAIN},
    {"WRONGPASS invalid username-password pair or user is disabled.", RC_DENIED},
    {"NOPERM this user has no permissions to run the 'evalsha' command", RC_DENIED},
    {"NOPERM this user has no permissions to access one of the keys used as arguments",
	RC_DENIED},
    {"NOPERM User app has no permissions to access the 'x' key", RC_DENIED},
    {"MOVED 3999 127.0.0.1:6381", RC_CONFIG},
    {"ASK 3999 127.0.0.1:6381", RC_CONFIG},
    {"CLUSTERDOWN The cluster is down", RC_CONFIG},
    {"CLUSTERDOWN Hash slot not served", RC_CONFIG},
    {"CROSSSLOT Keys in request don't hash to the same slot", RC_CONFIG},
    {"TRYAGAIN Multiple keys request during rehashing of slot", RC_AGAIN},
    {"UNBLOCKED force unblock from blocking operation, instance state changed (master -> replica?)",
	RC_AGAIN},
    {"DENIED Redis is running in protected mode because protected mode is enabled and no password is set for the default user.",
	RC_DENIED},
    {"INPROG Failover already in progress", RC_AGAIN},
    {"NOMASTERLINK Can't SYNC while failing over", RC_AGAIN},
    {"IOERR error or timeout writing to target instance", RC_AGAIN},
    {"UNKILLABLE Sorry the script already executed write commands against the dataset.",
	RC_AGAIN},
    {"NOPROTO unsupported protocol version", RC_CONFIG},
    {"ERR max number of clients reached", RC_AGAIN},
    {"ERR max number of clients + cluster connections reached", RC_AGAIN},
    {"ERR DB index is out of range", RC_CONFIG},
    {"ERR SELECT is not allowed in cluster mode", RC_CONFIG},
    {"ERR This instance has cluster support disabled", RC_CONFIG},
    {"ERR syntax error", RC_CONFIG},
    {"ERR wrong number of arguments for 'set' command", RC_CONFIG},
    {"ERR Protocol error: unauthenticated multibulk length", RC_DENIED},
    {"ERR AUTH <password> called without any password configured for the default user.",
	RC_DENIED},
    /* its scripts */
    {"ERR ACL failure in script: User some has no permissions to run the 'time' command script: e7384405, on @user_script:56.",
	RC_DENIED},
    {"ERR Error running script (call to f_0): @user_script:1: @user_script: 1: The user executing the script can't run this command or subcommand",
	RC_DENIED},
    {"ERR Error running script (call to f_0): @user_script:1: @user_script: 1: Lua script attempted to access a non local key in a cluster node",
	RC_AGAIN},
    {"ERR Error running script (call to f_0): @user_script:1: WRONGTYPE Operation against a key",
	RC_PROTOCOL},
    {"ERR Error running script (call to f_0): @user_script: 1: -READONLY You can't write",
	RC_CONFIG},
    {"ERR Error running script (call to f_0): @user_script:1: @user_script: 1: Unknown Redis command called from script",
	RC_CONFIG},
    {"ERR Error running script (call to f_0): @user_script:1: user_script:1: attempt to index a nil value",
	RC_AGAIN},
    {"ERR This Redis command is not allowed from script", RC_CONFIG},
    /* renamed commands */
    {"ERR unknown command 'EVALSHA', with args beginning with: ", RC_CONFIG},
    {"ERR unknown command 'EVALSHA', with args beginning with: 'invalid password' 'x: BUSY '",
	RC_CONFIG},
    {"ERR unknown command `AUTH`, with args beginning with: ", RC_DENIED},
    /* versions before 6, and before 2.8 */
    {"ERR invalid password", RC_DENIED},
    {"ERR Client sent AUTH, but no password is set", RC_DENIED},
    {"ERR operation not permitted", RC_DENIED},
    /* proxies: Envoy, twemproxy, predixy, Codis */
    {"unsupported command 'eval'", RC_CONFIG},
    {"ERR unsupported command", RC_CONFIG},
    {"upstream failure", RC_AGAIN},
    {"no upstream host", RC_AGAIN},
    {"ERR Connection timed out", RC_AGAIN},
    {"ERR handle request, command 'EVALSHA' is not allowed", RC_CONFIG},
    {"ERR auth permission deny", RC_DENIED},
    {"ERR no server avaliable", RC_AGAIN},
    {"ERR no server connection avaliable", RC_AGAIN},
    {"ERR forbid transaction in current server pool", RC_CONFIG},
    /* services and other servers */
    {"ERR command eval not support for normal user", RC_CONFIG},
    {"ERR bad lua script for redis cluster, all the keys that the script uses should be passed using the KEYS array",
	RC_CONFIG},
    {"ERR max requests limit exceeded. Limit: 10000, Usage: 10001", RC_AGAIN},
    {"ERR script tried accessing undeclared key", RC_CONFIG},
    {"ERR Command EVAL is disabled", RC_CONFIG},
    {"ERR This instance has Lua scripting support disabled", RC_CONFIG},
    {"ERR Command is not available: 'EVALSHA'. See https://upstash.com/docs/redis/overall/rediscompatibility for details",
	RC_CONFIG},
    {"ERR illegal address: 172.16.0.1:39136", RC_DENIED},
    {"ERR Unknown subcommand or wrong number of arguments for 'LOAD'. Try SCRIPT HELP.",
	RC_CONFIG},
    {"ERR unknown subcommand 'LOAD'. Try SCRIPT HELP.", RC_CONFIG},
    {"client_error: Unknown Command: evalsha", RC_CONFIG},
    {"ERR command not found", RC_CONFIG},
};

static void
errors_mean_what_the_user_can_do(void **state)
{
	const char *hint;

	(void)state;
	for (size_t i = 0; i < sizeof errors / sizeof *errors; i++) {
		enum rc rc = resp_error(errors[i].text, &hint);

		if (rc != errors[i].rc)
			fail_msg("%s: %s", errors[i].text, fault_rc_name(rc));
		if (rc != RC_AGAIN)
			assert_non_null(hint);
	}
}

/*
 * Words in capitals in front of an error, of Redis 7 and Valkey 8: those that dlock's commands
 * can lead to have a row, in words; the others are of commands that it does not use.
 */
static void
each_code_was_thought_of(void **state)
{
	static const char *const codes[] = {"WRONGTYPE", "NOSCRIPT", "LOADING", "BUSY",
	    "MASTERDOWN", "MISCONF", "READONLY", "NOAUTH", "OOM", "EXECABORT",
	    "NOREPLICAS", "BUSYKEY", "WRONGPASS", "NOPERM", "MOVED", "ASK", "CLUSTERDOWN",
	    "CROSSSLOT", "TRYAGAIN", "UNBLOCKED", "DENIED", "INPROG", "NOMASTERLINK",
	    "IOERR", "UNKILLABLE", "NOPROTO"};
	static const char *const unused[] = {"BUSYGROUP", "NOGROUP", "INVALIDOBJ",
	    "NOTBUSY", "NOGOODSLAVE", "NOMASTER", "REDIRECT", "INVALIDPUBKEY"};
	const char *hint;

	(void)state;
	for (size_t c = 0; c < sizeof codes / sizeof *codes; c++) {
		size_t i = 0, n = sizeof errors / sizeof *errors;

		while (i < n && !resp_says(errors[i].text, codes[c]))
			i++;
		if (i == n)
			fail_msg("%s has no row: decide what it means", codes[c]);
	}
	for (size_t i = 0; i < sizeof unused / sizeof *unused; i++)
		assert_int_equal(resp_error(unused[i], &hint), RC_AGAIN);
}

static void
what_nobody_has_foreseen_may_pass(void **state)
{
	static const char *const rows[] = {"", "ERR", "\x1b[2J", "noauth", "ERR new"};

	(void)state;
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		const char *hint = "";

		assert_int_equal(resp_error(rows[i], &hint), RC_AGAIN);
		assert_null(hint);
	}
}

/* ---- masters that have restarted ---- */

static void
a_missing_right_is_named_with_one_locks_names(void **state)
{
	static const struct {
		const char *text, *key, *rights, *to_look;
	} rows[] = {
	    {"NOPERM No permissions to access a key", "dlock:{billing%2Fx}:h",
		"allow the user ~dlock:{billing%2Fx}:* &dlock:{billing%2Fx}:* +@all -@dangerous +info",
		"to look, allow the user %R~dlock:{billing%2Fx}:* +@read +time +eval_ro +evalsha_ro"},
	    {"NOPERM No permissions to access a key", "dlock:{tag}:a:h",
		"allow the user ~dlock:{tag}:a:* &dlock:{tag}:a:* +@all -@dangerous +info",
		"to look, allow the user %R~dlock:{tag}:a:* +@read +time +eval_ro +evalsha_ro"},
	    {"NOPERM No permissions to access a key", "app:x",
		"allow the user ~app:x and the names beside it, +@all -@dangerous +info",
		"to look, allow the user %R~app:x and the names beside it, +@read +time +eval_ro +evalsha_ro"},
	    {"NOPERM No permissions to access a key", "dlock:{",
		"allow the user ~dlock:{ and the names beside it, +@all -@dangerous +info",
		"to look, allow the user %R~dlock:{ and the names beside it, +@read +time +eval_ro +evalsha_ro"},
	    {"NOPERM this user has no permissions to run the 'scan' command", NULL,
		"allow the user +@all -@dangerous +info",
		"to look, allow the user %R~dlock:* +@read +time +eval_ro +evalsha_ro"},
	    {"WRONGPASS no", "dlock:{a}:h", "wrong user or password",
		"wrong user or password"},
	    {"ERR something new", "dlock:{a}:h", "", ""},
	};
	char out[RIGHTS_BYTES];
	const char *hint;

	(void)state;
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		resp_error(rows[i].text, &hint);
		resp_rights(out, sizeof out, hint, false, rows[i].key);
		assert_string_equal(out, rows[i].rights);
		resp_rights(out, sizeof out, hint, true, rows[i].key);
		assert_string_equal(out, rows[i].to_look);
	}
}

static void
a_vote_counts_when_no_lease_can_last_that_may_be_forgotten(void **state)
{
	(void)state;
	assert_true(quorum_longest == 60000);
	assert_true(
	    quorum_enough > quorum_longest + quorum_longest / 100); /* a slow clock */
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(good_urls),
	    cmocka_unit_test(urls_with_tls),
	    cmocka_unit_test(wrong_urls),
	    cmocka_unit_test(longest_urls),
	    cmocka_unit_test(good_replies),
	    cmocka_unit_test(wrong_replies),
	    cmocka_unit_test(endless_replies),
	    cmocka_unit_test(other_bounds),
	    cmocka_unit_test(random_bytes_are_answered_safely),
	    cmocka_unit_test(commands_are_written_one_behind_the_other),
	    cmocka_unit_test(long_replies_are_read),
	    cmocka_unit_test(errors_mean_what_the_user_can_do),
	    cmocka_unit_test(each_code_was_thought_of),
	    cmocka_unit_test(what_nobody_has_foreseen_may_pass),
	    cmocka_unit_test(a_missing_right_is_named_with_one_locks_names),
	    cmocka_unit_test(a_vote_counts_when_no_lease_can_last_that_may_be_forgotten),
	};

	return cmocka_run_group_tests_name("redis", tests, NULL, NULL);
}
