/*
 * refuse.c - Goal of these tests: what a person reads when a lock is not given
 * for its kind or its job, whatever numbers a store has; and how texts are put together.
 */
#include "backends/common/append.h"
#include "backends/common/job.h"
#include "backends/common/refuse.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define MINUTE (60 * NS_PER_S)

static void
both_kinds_are_named(void **state)
{
	struct claim claim = {.key = "k", .kind = KIND_LIMIT, .limit = 5};
	struct fault f;

	(void)state;
	assert_int_equal(refuse_kind(&f, "redis h", KIND_LIMIT, 3, &claim), RC_PROTOCOL);
	assert_string_equal(f.text,
	    "redis h: the key is in use with --limit 3, and this run asks for --limit 5");
	assert_int_equal(refuse_kind(&f, "redis h", KIND_SHARED, 0, &claim), RC_PROTOCOL);
	assert_string_equal(f.text,
	    "redis h: the key is in use with -s, and this run asks for --limit 5");
}

static void
what_was_done_and_when(void **state)
{
	static const struct job job = {.once = "2026-11-22"};
	struct host host = {.seen.done_status = 9};
	char who[600];
	struct fault f;

	(void)state;
	assert_int_equal(
	    refuse_done(&host, &f, &job, 0, 1795312801999, "root@ci-3"), RC_DONE);
	assert_string_equal(f.text,
	    "ID 2026-11-22 was run at 2026-11-22T02:00:01Z by root@ci-3 and ended with 0");
	refuse_done(&host, &f, &job, 0, 0, "");
	assert_string_equal(
	    f.text, "ID 2026-11-22 was run at 1970-01-01T00:00:00Z and ended with 0");
	refuse_done(&host, &f, &job, 0, -1, "");
	assert_non_null(strstr(f.text, "an unknown time"));
	refuse_done(&host, &f, &job, 0, INT64_MAX, "");
	memset(who, 'w', sizeof who - 1);
	who[sizeof who - 1] = '\0';
	refuse_done(&host, &f, &job, 0, 0, who);
	assert_non_null(strstr(f.text, "w and ended with 0"));
	assert_int_equal(host.seen.done_status, 0);
	refuse_done(&host, &f, &job, 143, 0, "me");
	assert_string_equal(f.text,
	    "ID 2026-11-22 was run at 1970-01-01T00:00:00Z by me and ended with 143, which counts (--no-retry)");
	assert_int_equal(host.seen.done_status, 143);
}

static void
how_long_ago(void **state)
{
	static const struct {
		int64_t ns;
		const char *text;
	} rows[] = {
	    {0, "0ms"},
	    {400 * NS_PER_MS, "400ms"},
	    {NS_PER_S, "1s"},
	    {59 * NS_PER_S + 999 * NS_PER_MS, "59s"},
	    {12 * MINUTE, "12m"},
	    {12 * MINUTE + 5 * NS_PER_S, "12m5s"},
	    {90 * MINUTE, "1h30m"},
	    {60 * MINUTE + NS_PER_S, "1h"},
	    {24 * 60 * MINUTE, "1d"},
	    {366 * 24 * 60 * MINUTE + 61 * MINUTE, "366d1h"},
	};
	struct job job = {.cooldown = 90 * MINUTE};

	(void)state;
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		char text[200];
		struct fault f;

		assert_int_equal(refuse_recent(&f, &job, rows[i].ns), RC_DONE);
		snprintf(text, sizeof text,
		    "the last run that ended with 0 began %s ago, less than --cooldown 1h30m",
		    rows[i].text);
		assert_string_equal(f.text, text);
	}
}

/* The rule of struct job for a clock that was wrong. */
static void
a_run_that_is_dated_far_ahead_proves_nothing(void **state)
{
	static const struct {
		int64_t age_us;
		bool recent;
	} rows[] = {{0, true}, {59999999, true}, {60000000, false}, {-59999999, true},
	    {-60000000, false}, {INT64_MAX, false}, {-INT64_MAX, false}};
	const struct job job = {.cooldown = MINUTE}, none = {.cooldown = 0};

	(void)state;
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		assert_int_equal(job_is_recent(&job, rows[i].age_us), rows[i].recent);
		assert_false(job_is_recent(&none, rows[i].age_us));
	}
}

/* ISO 8601: a week is of the year that has its Thursday. */
static void
periods_are_named_by_the_clock_of_a_server(void **state)
{
	static const struct {
		enum period_kind kind;
		int64_t offset, us; /* hours, s */
		const char *id;
	} rows[] = {
	    {PER_DAY, 0, 1795651199, "2026-11-25"},
	    {PER_DAY, 0, 1795651200, "2026-11-26"},
	    {PER_DAY, 2, 1795651200, "2026-11-25"},
	    {PER_DAY, 2, 1795658400, "2026-11-26"},
	    {PER_HOUR, 0, 1795698060, "2026-11-26T13"},
	    {PER_WEEK, 0, 1795651200, "2026-W48"},
	    {PER_WEEK, 0, 1798761600, "2026-W53"}, /* the first of January, a Friday */
	    {PER_WEEK, 0, 1735603200, "2025-W01"}, /* the last of December, a Tuesday */
	    {PER_DAY, 0, 1000000000, "2001-09-09"},
	    {PER_HOUR, 0, 253402300799, "9999-12-31T23"},
	};
	struct period p;
	struct job job = {.per = &p, .once = p.id};
	struct fault f;

	(void)state;
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		p = (struct period){
		    .kind = rows[i].kind, .offset = rows[i].offset * 60 * MINUTE};
		assert_int_equal(
		    job_name_period(&job, rows[i].us * 1000000, "redis h", &f), RC_OK);
		assert_string_equal(p.id, rows[i].id);
		assert_int_equal(job_name_period(&job, 1, "redis h", &f), RC_OK);
		assert_string_equal(p.id, rows[i].id); /* once */
	}
	p = (struct period){.kind = PER_DAY};
	assert_int_equal(job_name_period(&job, -1, "redis h", &f), RC_PROTOCOL);
	assert_int_equal(
	    job_name_period(&job, 0, "redis h", &f), RC_PROTOCOL); /* never set */
	assert_int_equal(job_name_period(&job, INT64_MAX, "redis h", &f), RC_PROTOCOL);
	assert_int_equal(
	    job_name_period(&job, INT64_C(253402300800) * 1000000, "redis h", &f),
	    RC_PROTOCOL);
	assert_string_equal(p.id, "");
	job.per = NULL;
	assert_int_equal(job_name_period(&job, -1, "redis h", &f), RC_OK);
}

static void
texts_are_put_together_and_cut(void **state)
{
	char out[12], *end = out + sizeof out, *at = out;

	(void)state;
	at = append_text(at, end, "");
	assert_ptr_equal(at, out);
	assert_string_equal(out, "");
	at = append_number(append_text(at, end, "a"), end, 0);
	assert_string_equal(out, "a0");
	at = append_hex(append_hex(at, end, 0), end, 0xdeadbeef);
	assert_string_equal(out, "a00deadbeef");
	assert_ptr_equal(at, end - 1);
	assert_ptr_equal(append_text(at, end, "more"), end - 1);
	assert_string_equal(out, "a00deadbeef");
	assert_ptr_equal(append_number(out + 6, end, UINT64_MAX), end - 1);
	assert_string_equal(out, "a00dea18446");
	assert_ptr_equal(append_hex(out, end, UINT64_MAX), end - 1);
	assert_string_equal(out, "fffffffffff");
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(both_kinds_are_named),
	    cmocka_unit_test(what_was_done_and_when),
	    cmocka_unit_test(how_long_ago),
	    cmocka_unit_test(a_run_that_is_dated_far_ahead_proves_nothing),
	    cmocka_unit_test(periods_are_named_by_the_clock_of_a_server),
	    cmocka_unit_test(texts_are_put_together_and_cut),
	};

	return cmocka_run_group_tests_name("refuse", tests, NULL, NULL);
}
