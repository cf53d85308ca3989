/*
 * runs.c - Goal of these tests: a run is read as it was written, nothing else is one,
 * and a job asks for the right ones.
 */
#include "backends/file/block.h"
#include "backends/file/runs.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define S INT64_C(1000000)
#define NOW (1795232537 * S)

static const char whole[] = "1 2 0 3 a {}";

static void
what_is_written_is_read(void **state)
{
	struct run r = {.begin = NOW, .end = NUMBER_LIMIT - 1, .token = 0, .status = 255},
		   back;
	char line[RUN_LINE];

	(void)state;
	for (int named = 0; named < 2; named++) {
		size_t n;

		memset(r.id, named ? '%' : '\0', sizeof r.id - 1);
		memset(r.record, 'x', sizeof r.record - 1);
		n = run_format(&r, line);
		assert_int_equal(line[n - 1], '\n');
		assert_true(n < sizeof line && run_parse(&back, line, n - 1));
		assert_memory_equal(&r, &back, sizeof r);
	}
}

static void
a_line_that_was_torn_is_no_run_or_has_a_shorter_record(void **state)
{
	struct run r;

	(void)state;
	for (size_t n = 0; n <= strlen(whole); n++)
		assert_int_equal(run_parse(&r, whole, n), n > strlen("1 2 0 3 a "));
	assert_string_equal(r.id, "a");
}

static void
other_lines_are_none(void **state)
{
	static const char *const lines[] = {" 1 2 0 3 a {}", "-1 2 0 3 a {}",
	    "1 2 256 3 a {}", "1 2 x 3 a {}", "1 2  3 a {}", "1 2 0 3  {}",
	    "1000000000000000000 2 0 3 a {}", "1 2 0 9223372036854775808 a {}",
	    "dlock1 1 2 3 4 {}"};
	struct run r;

	(void)state;
	for (size_t i = 0; i < sizeof lines / sizeof *lines; i++)
		assert_false(run_parse(&r, lines[i], strlen(lines[i])));
	assert_false(run_parse(&r, "1 2 0 3 a {\0}", strlen(whole) + 1));
}

static struct host host;
static struct fault f;

static enum rc
refuse(const struct run *r, const struct job *job, bool final)
{
	return run_refuse(&host, r, job, final, NOW, &f);
}

static void
an_id_is_done_by_status_0(void **state)
{
	const struct job job = {.once = "a b"}, other = {.once = "a"};
	const struct run runs[] = {{.begin = NOW - 9 * S, .status = 1, .id = "a%20b"},
	    {.begin = 5 * S, .id = "a%20b", .record = "{\"who\":\"me\"}"},
	    {.begin = NOW - 8 * S, .id = "b"}};

	(void)state;
	for (size_t i = 0; i < 3; i++) {
		assert_int_equal(refuse(&runs[i], &job, true), i == 1 ? RC_DONE : RC_OK);
		assert_int_equal(refuse(&runs[i], &other, true), RC_OK);
	}
	refuse(&runs[1], &job, true);
	assert_string_equal(
	    f.text, "ID a b was run at 1970-01-01T00:00:05Z by me and ended with 0");
}

/* As the file of its ID has it; for a cooldown it never counts, and in `last` it says nothing. */
static void
any_status_counts_where_that_is_wanted(void **state)
{
	const struct job job = {.once = "a b",
			     .no_retry = true,
			     .cooldown = NS_PER_S * 60},
			 other = {
			     .once = "a", .no_retry = true, .cooldown = NS_PER_S * 60};
	const struct run failed = {.begin = NOW - 9 * S,
	    .status = 7,
	    .id = "a%20b",
	    .record = "{\"who\":\"me\"}"};

	(void)state;
	assert_int_equal(refuse(&failed, &other, true), RC_OK);
	assert_int_equal(refuse(&failed, &job, false), RC_OK);
	assert_int_equal(refuse(&failed, &job, true), RC_DONE);
	assert_non_null(strstr(f.text, " by me and ended with 7, which counts"));
	assert_int_equal(host.seen.done_status, 7);
}

static void
the_beginning_counts_for_a_cooldown(void **state)
{
	const struct job job = {.cooldown = 90 * 60 * NS_PER_S};
	const struct run runs[] = {{.begin = NOW - 754 * S, .end = NOW},
	    {.begin = NOW - 5399 * S}, {.begin = NOW + 5399 * S},
	    {.begin = NOW - S, .status = 7}, {.begin = NOW + 5401 * S},
	    {.begin = NOW - 5400 * S, .end = NOW}};

	(void)state;
	for (size_t i = 0; i < 6; i++)
		assert_int_equal(refuse(&runs[i], &job, true), i < 3 ? RC_DONE : RC_OK);
	refuse(&runs[0], &job, true);
	assert_string_equal(f.text,
	    "the last run that ended with 0 began 12m34s ago, less than --cooldown 1h30m");
}

static void
whoever_wrote_it_words_fit(void **state)
{
	static const char *const records[] = {
	    "", "\"who\":\"", "{\"who\":\"\\\"x\"}", "{\"who\":3}"};
	const struct job job = {.once = "a"};
	struct run r = {.begin = NUMBER_LIMIT - 1, .id = "a"};

	(void)state;
	for (size_t i = 0; i < sizeof records / sizeof *records; i++) {
		strcpy(r.record, records[i]);
		assert_int_equal(refuse(&r, &job, true), RC_DONE);
	}
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(what_is_written_is_read),
	    cmocka_unit_test(a_line_that_was_torn_is_no_run_or_has_a_shorter_record),
	    cmocka_unit_test(other_lines_are_none),
	    cmocka_unit_test(an_id_is_done_by_status_0),
	    cmocka_unit_test(any_status_counts_where_that_is_wanted),
	    cmocka_unit_test(the_beginning_counts_for_a_cooldown),
	    cmocka_unit_test(whoever_wrote_it_words_fit),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
