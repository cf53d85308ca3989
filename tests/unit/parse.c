/*
 * parse.c - Goal of these tests: what people write is taken whole and exactly, or
 * refused.
 */
#include "backends/backend.h"
#include "cmd/options.h"
#include "cmd/parse.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#define MS NS_PER_MS
#define S NS_PER_S

static void
good_durations(void **state)
{
	static const struct {
		const char *text;
		int64_t ns;
	} rows[] = {
	    {"0", 0},
	    {"00", 0},
	    {"1", S},
	    {"30", 30 * S},
	    {"1.5", 1500 * MS},
	    {"1.5s", 1500 * MS},
	    {"0.5s", 500 * MS},
	    {"500ms", 500 * MS},
	    {"0ms", 0},
	    {"2m", 120 * S},
	    {"1h30m", 5400 * S},
	    {"1h0m5s", 3605 * S},
	    {"1m500ms", 60500 * MS},
	    {"1.5h", 5400 * S},
	    {"1d", 86400 * S},
	    {"1w", 604800 * S},
	    {"1w1d1h1m1s1ms", 694861 * S + MS},
	    {"0.000000001s", 1},
	    {"0.0000000001s", 0},
	    {"0.0001ms", 100},
	    {"1.999999999", 1999999999},
	    {"9223372036", 9223372036 * S},
	    {"90m", 5400 * S},
	    {"inf", NEVER},
	};

	(void)state;
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		int64_t ns = -1;

		if (!parse_duration(rows[i].text, &ns) || ns != rows[i].ns)
			fail_msg("%s is %lld", rows[i].text, (long long)ns);
	}
}

static void
bad_durations(void **state)
{
	static const char *const rows[] = {"", " ", "-1", "+1", "1e9", "0x10", "nan",
	    "INF", "infinity", " 1", "1 ", "10 s", "10S", "1m30", "1M", "1s1s", "1s1m",
	    "500ms1s", "1ms1m", ".5", "1.", "1.s", "1..5", "1.5.5", "1.5.5s", "1,5", "s",
	    "ms", "1x", "1sec", "1mss", "1 m", "99999999999999999999", "9223372037",
	    "9223372036854775808ms", "15251w", "15250w90d", "1h-1m", "1h+1m", "\xff",
	    "1\n", "\xd9\xa1"};

	(void)state;
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		int64_t ns = -7;

		if (parse_duration(rows[i], &ns) || ns != -7)
			fail_msg("'%s' is %lld", rows[i], (long long)ns);
	}
}

static void
durations_in_words(void **state)
{
	static const struct {
		int64_t ns;
		const char *text;
	} rows[] = {
	    {0, "0ms"},
	    {1, "0ms"},
	    {850 * MS, "850ms"},
	    {S - 1, "999ms"},
	    {S, "1s"},
	    {1500 * MS, "1.5s"},
	    {1099 * MS, "1s"},
	    {9999 * MS, "9.9s"},
	    {10 * S, "10s"},
	    {59 * S + 999 * MS, "59s"},
	    {60 * S, "1m00s"},
	    {133 * S, "2m13s"},
	    {3599 * S, "59m59s"},
	    {3600 * S, "1h00m"},
	    {14520 * S, "4h02m"},
	    {86399 * S, "23h59m"},
	    {86400 * S, "1d00h"},
	    {100 * 86400 * S, "100d00h"},
	    {NEVER, "inf"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
		assert_string_equal(parse_span(rows[i].ns).text, rows[i].text);
}

/* What is printed reads back as the same, cut off below its second unit. */
static void
durations_there_and_back(void **state)
{
	(void)state;
	srand(1);
	for (int i = 0; i < 200000; i++) {
		int64_t ns = ((int64_t)rand() << 31 | rand()) >> (rand() % 62), back = -1;
		const struct word s = parse_span(ns);

		assert_true(parse_duration(s.text, &back));
		if (back > ns || ns - back >= (ns < 10 * S ? 100 * MS : ns / 10 + 1))
			fail_msg("%lld became %s, which is %lld", (long long)ns, s.text,
			    (long long)back);
	}
}

static void
durations_know_no_locale(void **state)
{
	int64_t ns;

	(void)state;
	setenv("LC_ALL", "de_DE.UTF-8", 1);
	assert_true(parse_duration("1.5s", &ns));
	assert_false(parse_duration("1,5s", &ns));
	unsetenv("LC_ALL");
}

/* In a zone that is an hour, or in summer two, before UTC. */
static void
times(void **state)
{
	static const struct {
		const char *text;
		int64_t us; /* -1: refused */
	} rows[] = {
	    {"1970-01-01T00:00:00Z", 0},
	    {"2026-11-24T18:00:00Z", 1795543200000000},
	    {"2026-11-24t18:00:00.25z", 1795543200250000},
	    {"2026-11-24T18:00Z", 1795543200000000},
	    {"2026-11-24T19:30:00+01:30", 1795543200000000},
	    {"2026-11-24 10:00-08:00", 1795543200000000},
	    {"2026-11-24 19:00", 1795543200000000},
	    {"2026-11-24T19:00:05", 1795543205000000},
	    {"2026-07-01 20:00", 1782928800000000},
	    {"2028-02-29T00:00Z", 1835395200000000},
	    {"9999-12-31T23:59:59Z", 253402300799000000},
	    {"", -1},
	    {"2026-11-24", -1},
	    {"18:00", -1},
	    {"2026-11-24T18:00.5Z", -1}, /* half a minute?  half a second? */
	    {"2026-11-24T18:00.Z", -1},
	    {"2026-11-24T18:00:00.Z", -1},
	    {"2026-11-24 18:00.5", -1},
	    {"2026-02-29T00:00Z", -1},
	    {"2026-11-31 00:00", -1},
	    {"2026-03-29 02:30", -1},
	    {"2026-13-01T00:00Z", -1},
	    {"2026-11-24T24:00Z", -1},
	    {"2026-11-24T18:60Z", -1},
	    {"2026-11-24T18:00:60Z", -1},
	    {"2026-11-24T18:00:00+0100", -1},
	    {"2026-11-24T18:00:00Z ", -1},
	    {"2026-11-24T18:00:00UTC", -1},
	    {" 2026-11-24T18:00Z", -1},
	    {"26-11-24T18:00Z", -1},
	    {"2026-11-24T18:00:00+24:00", -1},
	    {"2026-11-2", -1},
	};

	(void)state;
	setenv("TZ", "CET-1CEST,M3.5.0,M10.5.0/3", 1);
	tzset();
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		int64_t us = -1;
		bool twice;

		if (parse_time(rows[i].text, &us, &twice) != (rows[i].us >= 0) ||
		    us != rows[i].us)
			fail_msg("%s is %lld", rows[i].text, (long long)us);
	}
}

/* Clocks go an hour back in one zone, and half an hour in the other. */
static void
times_when_summer_begins_and_ends(void **state)
{
	static const struct {
		const char *zone, *text;
		int64_t us; /* -1: refused; -2: since it comes twice */
	} rows[] = {
	    {"CET-1CEST,M3.5.0,M10.5.0/3", "2026-10-25 01:59", 1792886340000000},
	    {"CET-1CEST,M3.5.0,M10.5.0/3", "2026-10-25 02:00", -2},
	    {"CET-1CEST,M3.5.0,M10.5.0/3", "2026-10-25 02:59:59", -2},
	    {"CET-1CEST,M3.5.0,M10.5.0/3", "2026-10-25 02:30+02:00", 1792888200000000},
	    {"CET-1CEST,M3.5.0,M10.5.0/3", "2026-10-25 03:00", 1792893600000000},
	    {"CET-1CEST,M3.5.0,M10.5.0/3", "2026-03-29 02:00", -1},
	    {"CET-1CEST,M3.5.0,M10.5.0/3", "2026-03-29 03:00", 1774746000000000},
	    {"LHST-10:30LHDT-11,M10.1.0,M4.1.0", "2026-04-05 01:29", 1775312940000000},
	    {"LHST-10:30LHDT-11,M10.1.0,M4.1.0", "2026-04-05 01:30", -2},
	    {"LHST-10:30LHDT-11,M10.1.0,M4.1.0", "2026-04-05 02:00", 1775316600000000},
	    {"LHST-10:30LHDT-11,M10.1.0,M4.1.0", "2026-10-04 02:15", -1},
	    {"LHST-10:30LHDT-11,M10.1.0,M4.1.0", "2026-10-04 02:30", 1791041400000000},
	    {"UTC", "2026-10-25 02:30", 1792895400000000},
	    {"<+03>-3", "2026-10-25 02:30", 1792884600000000},
	};

	(void)state;
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		int64_t us = -1;
		bool twice, good;

		setenv("TZ", rows[i].zone, 1);
		tzset();
		good = parse_time(rows[i].text, &us, &twice);
		if (good != (rows[i].us >= 0) || twice != (rows[i].us == -2) ||
		    (good && us != rows[i].us))
			fail_msg("%s is %lld", rows[i].text, (long long)us);
	}
}

static void
numbers(void **state)
{
	static const char *const bad[] = {"", "-1", "+1", "256", "0x1", "1.0", " 1", "1 ",
	    "x", "99999999999999999999", "18446744073709551617", "1e1"};
	long n = -7;

	(void)state;
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
		assert_false(parse_number(bad[i], 0, 255, &n));
		assert_int_equal(n, -7);
	}
	assert_true(parse_number("0", 0, 255, &n) && n == 0);
	assert_true(parse_number("255", 0, 255, &n) && n == 255);
	assert_true(parse_number("007", 0, 255, &n) && n == 7);
	assert_false(parse_number("2", 3, 255, &n));
}

static void
truths(void **state)
{
	static const char *const yes[] = {"1", "yes", "true", "on"},
				 *const no[] = {"0", "no", "false", "off"};
	static const char *const bad[] = {"", "2", "y", "YES", "yes ", "01"};
	bool on;

	(void)state;
	for (size_t i = 0; i < 4; i++) {
		on = false;
		assert_true(parse_truth(yes[i], &on) && on);
		assert_true(parse_truth(no[i], &on) && !on);
	}
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
		assert_false(parse_truth(bad[i], &on));
}

static void
signals(void **state)
{
	static const char *const bad[] = {
	    "", "0", "-1", "65", "term", "SIG", "SIGSIGTERM", "TERM ", "SIG15", "NOPE"};
	int sig = -7;

	(void)state;
	assert_true(parse_signal("TERM", &sig) && sig == SIGTERM);
	assert_true(parse_signal("SIGUSR1", &sig) && sig == SIGUSR1);
	assert_true(parse_signal("15", &sig) && sig == SIGTERM);
	assert_true(parse_signal("64", &sig) && sig == 64);
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
		sig = -7;
		assert_false(parse_signal(bad[i], &sig));
		assert_int_equal(sig, -7);
	}
	for (int s = 1; s < 32; s++) {
		assert_true(parse_signal(parse_signal_text(s).text, &sig));
		assert_int_equal(sig, s);
	}
	assert_string_equal(parse_signal_text(40).text, "signal 40");
}

static bool
is_key(const char *text)
{
	static struct params params;
	struct fault f;

	params.nkeys = 0;
	return options_take(&params, OPT_KEY, text, &f) == RC_OK;
}

static void
keys(void **state)
{
	static const char *const good[] = {"a", " ", "a b", "/", "..", "{}", "*?[",
	    "%s%n", "'; DROP TABLE x", "\xc3\xbc", "\xf0\x9f\x94\x92", "\xe2\x80\xae",
	    "k:fence", "%2e"};
	static const char *const bad[] = {"", "a\nb", "\r", "\t", "\x1b[2J", "\x7f",
	    "\xc2\x9b", "\xc2\x80", "\xff", "\xc0\xaf", "\xed\xa0\x80", "\xe2\x82",
	    "a\xc3", "\xf4\x90\x80\x80"};
	char longest[KEY_BYTES + 2];

	(void)state;
	for (size_t i = 0; i < sizeof good / sizeof *good; i++)
		if (!is_key(good[i]))
			fail_msg("'%s' is no key", good[i]);
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
		if (is_key(bad[i]))
			fail_msg("row %zu is a key", i);
	memset(longest, 'k', sizeof longest);
	longest[KEY_BYTES + 1] = '\0';
	assert_false(is_key(longest));
	longest[KEY_BYTES] = '\0';
	assert_true(is_key(longest));
	assert_null(text_objection("", 5));
	assert_null(text_objection("12345", 5));
	assert_non_null(text_objection("123456", 5));
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(good_durations),
	    cmocka_unit_test(bad_durations),
	    cmocka_unit_test(durations_in_words),
	    cmocka_unit_test(durations_there_and_back),
	    cmocka_unit_test(durations_know_no_locale),
	    cmocka_unit_test(times),
	    cmocka_unit_test(times_when_summer_begins_and_ends),
	    cmocka_unit_test(numbers),
	    cmocka_unit_test(truths),
	    cmocka_unit_test(signals),
	    cmocka_unit_test(keys),
	};

	return cmocka_run_group_tests_name("parse", tests, NULL, NULL);
}
