/*
 * memcached.c - Goal of these tests: what memcached says, and what others write there, is
 * read as what it is or not at all; nothing that dlock writes can be taken for a command.
 */
#include "backends/memcached/memcached.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define OWNER "0123456789abcdef0123456789abcdef"

/* ---- names ---- */

static void
is_named(const char *key, const char *name)
{
	char again[KEY_BYTES + 1], tagged[NAME_BYTES];
	struct item_name n;
	const char *lock;

	item_name(&n, "dlock:", key);
	assert_string_equal(n.text, name);
	assert_false(n.hashed);
	assert_int_equal(item_name_read(again, &lock, "dlock:", n.text), ITEM_IS_LOCK);
	assert_string_equal(again, key);
	snprintf(tagged, sizeof tagged, ITEM_FREEZE "%s", n.text);
	assert_int_equal(item_name_read(again, &lock, "dlock:", tagged), ITEM_IS_FREEZE);
	assert_string_equal(again, key);
	assert_string_equal(lock, name);
	snprintf(tagged, sizeof tagged, ITEM_NOTE "%s", n.text);
	assert_int_equal(item_name_read(again, &lock, "dlock:", tagged), ITEM_IS_OTHER);
}

static void
test_names(void **state)
{
	(void)state;
	is_named("job", "dlock:job");
	is_named("a/b", "dlock:a/b");
	is_named("a b", "dlock:a%20b");
	is_named("100%#", "dlock:100%25%23");
	is_named("schl\xc3\xbcssel", "dlock:schl\xc3\xbcssel");
}

static void
test_long_keys_are_hashed_and_all_names_fit(void **state)
{
	char key[KEY_BYTES + 1], prefix[PREFIX_MOST + 1], found[KEY_BYTES + 1];
	struct item_name n, other;
	const char *lock;

	(void)state;
	memset(prefix, 'p', PREFIX_MOST);
	prefix[PREFIX_MOST] = '\0';
	for (size_t length = 1; length <= KEY_BYTES; length++) {
		memset(key, length % 2 ? 'k' : ' ', length);
		key[length] = '\0';
		item_name(&n, prefix, key);
		assert_true(strlen(n.text) <= 250 - 8);
		assert_true(strlen(ITEM_FREEZE) + strlen(n.text) <= 250);
		assert_null(strpbrk(n.text, " \r\n"));
		assert_int_equal(
		    item_name_read(found, &lock, prefix, n.text), ITEM_IS_LOCK);
		assert_string_equal(found, n.hashed ? "" : key);
	}
	assert_true(n.hashed);
	key[0] = 'x';
	item_name(&other, prefix, key);
	assert_string_not_equal(n.text, other.text);
}

static void
test_names_of_others_are_no_locks(void **state)
{
	static const char *const names[] = {"", "dlock", "dlock:", "other:job", "dlock:%",
	    "dlock:%zz", "dlock:%41", "dlock:#abc", "dlock#f:job", "dlock#f:dlock:"};
	char key[KEY_BYTES + 1];
	const char *lock;

	(void)state;
	for (size_t i = 0; i < sizeof names / sizeof *names; i++)
		assert_int_equal(
		    item_name_read(key, &lock, "dlock:", names[i]), ITEM_IS_OTHER);
}

static void
test_prefixes(void **state)
{
	char longest[PREFIX_MOST + 2];

	(void)state;
	memset(longest, 'p', sizeof longest);
	longest[PREFIX_MOST + 1] = '\0';
	assert_false(item_is_prefix(longest));
	longest[PREFIX_MOST] = '\0';
	assert_true(item_is_prefix(longest));
	assert_true(item_is_prefix(""));
	assert_true(item_is_prefix("app:lock/"));
	assert_false(item_is_prefix("a b"));
	assert_false(item_is_prefix("a#"));
	assert_false(item_is_prefix("a%"));
	assert_false(item_is_prefix("\xc3\xbc"));
	assert_false(item_is_prefix("a\r\nflush_all"));
}

/* ---- values ---- */

static struct value
example(void)
{
	return (struct value){.owner = OWNER,
	    .token = 1700000000000001,
	    .since = 1700000000000000,
	    .until = EPOCH_NONE,
	    .key = "a key",
	    .record = "{\"who\":\"alice\"}",
	    .mark = "{\"who\":\"bob\"}"};
}

static void
test_values_come_back(void **state)
{
	struct value v = example(), again;
	char text[VALUE_BYTES];
	size_t n;

	(void)state;
	for (int i = 0; i < 3; i++) {
		n = value_write(text, &v);
		assert_true(n > 0);
		assert_true(value_read(&again, text, n));
		assert_string_equal(again.owner, v.owner);
		assert_int_equal(again.token, v.token);
		assert_int_equal(again.since, v.since);
		assert_int_equal(again.until, v.until);
		assert_string_equal(again.key, v.key);
		assert_string_equal(again.record, v.record);
		assert_string_equal(again.mark, v.mark);
		if (i == 0)
			v.key[0] = v.mark[0] = '\0';
		else
			v.record[0] = '\0';
	}
}

static void
test_the_largest_value_fits(void **state)
{
	struct value v = example(), again;
	char text[VALUE_BYTES];
	size_t n;

	(void)state;
	memset(v.key, 'k', sizeof v.key - 1);
	memset(v.record, 'r', sizeof v.record - 1);
	memset(v.mark, 'm', sizeof v.mark - 1);
	n = value_write(text, &v);
	assert_true(n > 0 && n < VALUE_BYTES);
	assert_true(value_read(&again, text, n));
	assert_string_equal(again.mark, v.mark);
}

static void
test_no_value_has_a_command_in_it(void **state)
{
	struct value v = example();
	char text[VALUE_BYTES];

	(void)state;
	assert_true(value_write(text, &v) > 0);
	assert_memory_equal(text, "dlock1 ", 7);
	snprintf(v.record, sizeof v.record, "\r\nflush_all\r\n");
	assert_int_equal(value_write(text, &v), 0);
	v = example();
	snprintf(v.mark, sizeof v.mark, "\nflush_all\n");
	assert_int_equal(value_write(text, &v), 0);
}

static void
is_no_value(const char *text, size_t n)
{
	struct value v;

	assert_false(value_read(&v, text, n));
}

static void
test_values_of_others(void **state)
{
	struct value v = example();
	char text[VALUE_BYTES], damaged[VALUE_BYTES];
	size_t n = value_write(text, &v);

	(void)state;
	is_no_value("", 0);
	is_no_value("other", 5);
	for (size_t i = 0; i < n; i++) /* cut short, or with a control character */
	{
		is_no_value(text, i);
		memcpy(damaged, text, n);
		damaged[i] = i % 2 ? '\n' : '\0';
		is_no_value(damaged, n);
	}
	text[n] = 'x';
	is_no_value(text, n + 1);
#define WITH(numbers) "dlock1 " OWNER " " numbers " k r m"
	is_no_value(
	    WITH("1 1 1 1 1 9999999999"), sizeof WITH("1 1 1 1 1 9999999999") - 1);
	is_no_value(WITH("1 1 1 1 1 -1"), sizeof WITH("1 1 1 1 1 -1") - 1);
	is_no_value(WITH("-1 1 1 1 1 1"), sizeof WITH("-1 1 1 1 1 1") - 1);
	is_no_value(WITH("1 -2 1 1 1 1"), sizeof WITH("1 -2 1 1 1 1") - 1);
	assert_true(value_read(&v, WITH("1 1 1 1 1 1"), sizeof WITH("1 1 1 1 1 1") - 1));
}

/* ---- replies ---- */

static enum reply_code
code_of(const char *text, struct reply *r)
{
	static char line[256];

	snprintf(line, sizeof line, "%s", text);
	reply_parse(r, line);
	return r->code;
}

static void
test_replies(void **state)
{
	struct reply r;

	(void)state;
	assert_int_equal(code_of("VA 5 c17 t30", &r), REPLY_VA);
	assert_int_equal(r.size, 5);
	assert_int_equal(r.cas, 17);
	assert_int_equal(r.ttl, 30);
	assert_int_equal(code_of("HD c1", &r), REPLY_HD);
	assert_int_equal(r.ttl, TTL_UNTOLD);
	assert_int_equal(code_of("HD t-1", &r), REPLY_HD);
	assert_int_equal(r.ttl, TTL_NONE);
	assert_int_equal(code_of("EN", &r), REPLY_EN);
	assert_int_equal(code_of("NF c0", &r), REPLY_NF);
	assert_int_equal(code_of("NS c0", &r), REPLY_NS);
	assert_int_equal(code_of("EX c0", &r), REPLY_EX);
	assert_int_equal(code_of("END", &r), REPLY_END);
	assert_int_equal(code_of("BUSY currently processing", &r), REPLY_BUSY);
	assert_int_equal(code_of("STAT version 1.6.18", &r), REPLY_STAT);
	assert_string_equal(r.name, "version");
	assert_string_equal(r.text, "1.6.18");
	assert_int_equal(code_of("key=dlock%3Ajob exp=-1 la=1 cas=1", &r), REPLY_KEY);
	assert_string_equal(r.name, "dlock%3Ajob");
}

static void
test_what_memcached_never_says(void **state)
{
	static const char *const lines[] = {"", " ", "VA", "VA x", "VA -1",
	    "VA 4294967296", "VA 99999999999999999999", "VA 5 c-1", "VA 5 cx", "VA 5 t-2",
	    "VA 5 z1", "HD c99999999999999999999", "HDX", "hd", "-ERR unknown command",
	    "+OK", "$-1", "HTTP/1.1 400 Bad Request", "SSH-2.0-OpenSSH_9.2", "STAT",
	    "key=", "VALUE job 0 5", "\x15\x03\x01"};
	struct reply r;

	(void)state;
	for (size_t i = 0; i < sizeof lines / sizeof *lines; i++)
		assert_int_equal(code_of(lines[i], &r), REPLY_STRANGE);
}

static void
means(const char *line, enum rc rc)
{
	const char *hint;
	struct reply r;

	assert_int_equal(code_of(line, &r), REPLY_ERROR);
	assert_int_equal(reply_error(&r, &hint), rc);
}

static void
test_errors(void **state)
{
	(void)state;
	/* who we are */
	means("CLIENT_ERROR unauthenticated", RC_DENIED);
	means("CLIENT_ERROR authentication failure", RC_DENIED);
	means("CLIENT_ERROR bad authentication token format", RC_DENIED);
	/* full, busy; and what nobody has foreseen */
	means("SERVER_ERROR out of memory storing object", RC_AGAIN);
	means("SERVER_ERROR out of memory reading request", RC_AGAIN);
	means("SERVER_ERROR out of memory writing get response", RC_AGAIN);
	means("SERVER_ERROR Out of memory allocating new item", RC_AGAIN);
	means("SERVER_ERROR Out of memory during read", RC_AGAIN);
	means("SERVER_ERROR out of memory", RC_AGAIN);
	means("ERROR Too many open connections", RC_AGAIN);
	means("ERROR failed to start lru crawler thread", RC_AGAIN);
	means("SERVER_ERROR refcount overflow during fetch", RC_AGAIN);
	means("SERVER_ERROR output line too long", RC_AGAIN);
	means("SERVER_ERROR Unhandled storage type.", RC_AGAIN);
	means("SERVER_ERROR something new", RC_AGAIN);
	/* proxies: mcrouter, memcached's own */
	means("SERVER_ERROR unavailable", RC_AGAIN);
	means("SERVER_ERROR timeout", RC_AGAIN);
	means("SERVER_ERROR backend failure", RC_AGAIN);
	means("SERVER_ERROR Command not supported", RC_CONFIG);
	/* settings, and versions that lack something */
	means("ERROR", RC_CONFIG);
	means("ERROR metadump not allowed", RC_CONFIG);
	means("CLIENT_ERROR lru crawler disabled", RC_CONFIG);
	means("SERVER_ERROR object too large for cache", RC_CONFIG);
	means("CLIENT_ERROR bad command line format", RC_CONFIG);
	means("CLIENT_ERROR bad command line", RC_CONFIG);
	means("CLIENT_ERROR bad data chunk", RC_CONFIG);
	means("CLIENT_ERROR bad token in command line format", RC_CONFIG);
	means("CLIENT_ERROR incorrect length for M token", RC_CONFIG);
	means("CLIENT_ERROR invalid flag", RC_CONFIG);
	means("CLIENT_ERROR invalid or duplicate flag", RC_CONFIG);
	means("CLIENT_ERROR duplicate flag", RC_CONFIG);
	means("CLIENT_ERROR invalid mode for ms M token", RC_CONFIG);
	means("CLIENT_ERROR invalid exptime argument", RC_CONFIG);
	means("CLIENT_ERROR invalid numeric delta argument", RC_CONFIG);
	means("CLIENT_ERROR cannot increment or decrement non-numeric value", RC_CONFIG);
	means("CLIENT_ERROR opaque token too long", RC_CONFIG);
	means("CLIENT_ERROR options flags are too long", RC_CONFIG);
	means("CLIENT_ERROR error decoding key", RC_CONFIG);
	means("CLIENT_ERROR line too long", RC_CONFIG);
}

/* Of a server that began at this second, has been running for so long, and has counted so many. */
static uint64_t
token(int64_t began, int64_t uptime, uint64_t cas)
{
	struct stats s = {.uptime = uptime, .time = began + uptime};

	return stats_token(&s, cas);
}

static void
test_tokens(void **state)
{
	enum { M = 1000000, T0 = 1700000000 };

	(void)state;
	assert_int_equal(token(T0, 100, 17), T0 * (uint64_t)M + 17);
	assert_int_equal(token(T0, 99999, 17), T0 * (uint64_t)M + 17);
	assert_true(token(T0, 100, 96 * M) > 0);
	assert_true(token(T0, 100, 96 * M) < token(T0 + 100, 10, 1)); /* the next life */
	assert_int_equal(token(T0, 100, 97 * M), 0);
	assert_int_equal(token(T0, 100, UINT64_MAX), 0);
	assert_int_equal(token(T0, 3, 0), 0);
	assert_int_equal(token(T0, 0, 1), 0);
}

/* ---- the server ---- */

static enum rc
check(const char *version)
{
	struct fault f;
	struct stats s;

	stats_init(&s);
	stats_add(&s, "version", version);
	stats_add(&s, "uptime", "100");
	stats_add(&s, "time", "1700000000");
	return stats_check(&s, "memcached", &f);
}

static void
test_versions(void **state)
{
	(void)state;
	assert_int_equal(check("1.6.18"), RC_OK);
	assert_int_equal(check("1.6.10"), RC_OK);
	assert_int_equal(check("1.7.0"), RC_OK);
	assert_int_equal(check("2.0"), RC_OK);
	assert_int_equal(check("1.6.9"), RC_CONFIG);
	assert_int_equal(check("1.5.22"), RC_CONFIG);
	assert_int_equal(check("mcrouter 0.38"), RC_CONFIG);
	assert_int_equal(check(""), RC_CONFIG);
}

static void
test_age(void **state)
{
	struct stats s;

	(void)state;
	stats_init(&s);
	stats_add(&s, "uptime", "2");
	assert_true(stats_age(&s) <= 0); /* it begins at 2 */
	stats_add(&s, "uptime", "100");
	assert_true(stats_age(&s) >= 90);
	stats_add(&s, "oldest", "0"); /* never told to forget */
	assert_true(stats_age(&s) >= 90);
	stats_add(&s, "oldest", "159"); /* just now */
	assert_true(stats_age(&s) <= 0);
	stats_add(&s, "oldest", "169"); /* in 10 s */
	assert_true(stats_age(&s) <= -10);
	stats_add(&s, "uptime", "1x");
	assert_int_equal(s.uptime, -1);
}

static void
test_a_clock_that_stands_still(void **state)
{
	struct tick t = {.known = false};
	instant s = NS_PER_S;

	(void)state;
	assert_true(tick_goes_on(&t, 0, 0, 1000));
	assert_true(tick_goes_on(&t, 10 * s, 10 * s, 1010));
	assert_true(
	    tick_goes_on(&t, 11 * s - 1, 11 * s, 1010)); /* between two of its seconds */
	assert_true(tick_goes_on(&t, 12 * s, 12 * s, 1011));
	assert_false(tick_goes_on(&t, 22 * s, 22 * s, 1011));
	assert_false(tick_goes_on(&t, 23 * s, 23 * s, 1011)); /* what was known stays */
	assert_true(tick_goes_on(&t, 23 * s, 23 * s, 1022));
	assert_true(tick_goes_on(&t, 24 * s, 24 * s, 9999)); /* it has come forward */
	assert_true(tick_goes_on(&t, 100024 * s, 100024 * s, 109500)); /* a slow clock */
}

/* Asked once a second, none of its answers is far from the one before. */
static void
test_a_clock_that_stands_still_while_it_is_watched(void **state)
{
	struct tick t = {.known = false};
	instant s = NS_PER_S;

	(void)state;
	assert_true(tick_goes_on(&t, 0, 0, 1000));
	assert_true(tick_goes_on(&t, s, s, 1000));
	assert_false(tick_goes_on(&t, 2 * s, 2 * s, 1000));
	assert_false(tick_goes_on(&t, 3 * s, 3 * s, 1000));
	assert_true(tick_goes_on(&t, 4 * s, 4 * s, 1004));
	/* an answer that was late says less than the one before */
	assert_true(tick_goes_on(&t, 5 * s, 8 * s, 1005));
	assert_false(tick_goes_on(&t, 9 * s, 9 * s, 1007));
}

/* As that of a machine that was paused, and its clock with it. */
static void
test_a_clock_that_stays_behind(void **state)
{
	struct tick t = {.known = false};
	instant s = NS_PER_S;

	(void)state;
	assert_true(tick_goes_on(&t, 0, 0, 1000));
	assert_false(tick_goes_on(&t, 10 * s, 10 * s, 1005));
	assert_false(tick_goes_on(&t, 10 * s + s / 2, 10 * s + s / 2, 1005));
	assert_true(tick_goes_on(&t, 11 * s, 11 * s, 1006));
	assert_true(tick_goes_on(&t, 20 * s, 20 * s, 1015));
	assert_false(tick_goes_on(&t, 30 * s, 30 * s, 1020));
	assert_false(tick_goes_on(&t, 40 * s, 40 * s, 1025)); /* it stood still again */
}

/* ---- URLs ---- */

static enum rc
located(const char *url, const char *host, int port)
{
	struct address a;
	struct fault f;
	enum rc rc = memcached_read_url(&a, url, &f);

	if (rc == RC_OK) {
		assert_string_equal(a.at.host, host);
		assert_int_equal(a.at.port, port);
	}
	return rc;
}

static void
test_urls(void **state)
{
	struct address a;
	struct fault f;

	(void)state;
	assert_int_equal(located(NULL, "127.0.0.1", 11211), RC_OK);
	assert_int_equal(located("memcached://h", "h", 11211), RC_OK);
	assert_int_equal(located("memcached://h:1/", "h", 1), RC_OK);
	assert_int_equal(located("memcached://[::1]:1", "::1", 1), RC_OK);
	assert_int_equal(located("memcached://h1,h2", "", 0), RC_CONFIG);
	assert_int_equal(located("memcached://h/0", "", 0), RC_USAGE);
	assert_int_equal(located("memcached://h?x=1", "", 0), RC_USAGE);
	assert_int_equal(located("memcached://", "", 0), RC_USAGE);
	assert_int_equal(located("memcached:h", "", 0), RC_USAGE);
	assert_int_equal(located("memcached://h:0", "", 0), RC_USAGE);
	assert_int_equal(
	    memcached_read_url(&a, "memcached://bob:se%25cret@h", &f), RC_OK);
	assert_string_equal(a.user, "bob");
	assert_string_equal(a.password, "se%cret");
	assert_int_equal(memcached_check_login(&a, &f), RC_OK);
	assert_int_equal(
	    memcached_read_url(&a, "memcached://bob:se%20cret@h", &f), RC_OK);
	assert_int_equal(memcached_check_login(&a, &f), RC_USAGE);
	assert_int_equal(memcached_read_url(&a, "memcached://bob@h", &f), RC_OK);
	assert_int_equal(memcached_check_login(&a, &f), RC_USAGE);
	assert_int_equal(memcached_read_url(&a, "memcached://b%20b:x@h", &f), RC_OK);
	assert_int_equal(memcached_check_login(&a, &f), RC_USAGE);
	assert_int_equal(
	    memcached_read_url(&a, "memcached://b:x%0D%0Aflush_all@h", &f), RC_OK);
	assert_int_equal(memcached_check_login(&a, &f), RC_USAGE);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_names),
	    cmocka_unit_test(test_long_keys_are_hashed_and_all_names_fit),
	    cmocka_unit_test(test_names_of_others_are_no_locks),
	    cmocka_unit_test(test_prefixes),
	    cmocka_unit_test(test_values_come_back),
	    cmocka_unit_test(test_the_largest_value_fits),
	    cmocka_unit_test(test_no_value_has_a_command_in_it),
	    cmocka_unit_test(test_values_of_others),
	    cmocka_unit_test(test_replies),
	    cmocka_unit_test(test_what_memcached_never_says),
	    cmocka_unit_test(test_errors),
	    cmocka_unit_test(test_tokens),
	    cmocka_unit_test(test_versions),
	    cmocka_unit_test(test_age),
	    cmocka_unit_test(test_a_clock_that_stands_still),
	    cmocka_unit_test(test_a_clock_that_stands_still_while_it_is_watched),
	    cmocka_unit_test(test_a_clock_that_stays_behind),
	    cmocka_unit_test(test_urls),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
