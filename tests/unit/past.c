/*
 * past.c - Goal of these tests: a run is read as it was written, nothing else is one,
 * and a job asks for the right ones.
 */
#include "backends/file/header.h"
#include "backends/file/past.h"

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

static struct past
past_of(const struct job *job, const struct run *runs, size_t n)
{
	struct past p = {.once = false};

	for (size_t i = 0; i < n; i++)
		past_add(&p, &runs[i], job, NOW);
	return p;
}

static void
an_id_is_done_by_status_0(void **state)
{
	const struct job job = {.once = "a b"}, other = {.once = "a"};
	struct run runs[] = {{.begin = NOW - 9 * S, .status = 1, .id = "a%20b"},
	    {.begin = 5 * S, .id = "a%20b", .record = "{\"who\":\"me\"}"},
	    {.begin = NOW - 8 * S, .id = "b"}};
	struct past p = past_of(&job, runs, 3);
	struct fault f;

	(void)state;
	assert_true(p.once && !p.recent);
	assert_int_equal(past_tell(&p, &job, &f), RC_DONE);
	assert_string_equal(
	    f.text, "ID a b was run at 1970-01-01T00:00:05Z by me and ended with 0");
	assert_false(past_of(&other, runs, 3).once);
	assert_false(past_of(&job, runs, 1).once);
}

static void
the_latest_beginning_counts(void **state)
{
	const struct job job = {.cooldown = 90 * 60 * NS_PER_S};
	struct run runs[] = {{.begin = NOW - 754 * S}, {.begin = NOW - 800 * S},
	    {.begin = NOW - S, .status = 7}, {.begin = NOW + 5401 * S},
	    {.begin = NOW - 5400 * S}};
	struct past p = past_of(&job, runs, 5);
	struct fault f;

	(void)state;
	assert_true(p.recent && p.ago == 754 * S && !p.once);
	assert_int_equal(past_tell(&p, &job, &f), RC_DONE);
	assert_string_equal(f.text,
	    "the last run that ended with 0 began 12m ago, less than --cooldown 90m");
	assert_false(past_of(&job, runs + 2, 3).recent);
}

static void
whoever_wrote_it_words_fit(void **state)
{
	static const char *const records[] = {
	    "", "\"who\":\"", "{\"who\":\"\\\"x\"}", "{\"who\":3}"};
	const struct job job = {.once = "a"};
	struct past p = {.once = true, .of_id = {.begin = NUMBER_LIMIT - 1}};
	struct fault f;

	(void)state;
	for (size_t i = 0; i < sizeof records / sizeof *records; i++) {
		strcpy(p.of_id.record, records[i]);
		assert_int_equal(past_tell(&p, &job, &f), RC_DONE);
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
	    cmocka_unit_test(the_latest_beginning_counts),
	    cmocka_unit_test(whoever_wrote_it_words_fit),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
