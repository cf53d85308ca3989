/*
 * view.c - Goal of these tests: what a look has found of a key is collected whole, within
 * bounds, and shown as JSON, as lines and in sentences.
 */
#include "cmd/columns.h"
#include "cmd/held.h"
#include "cmd/show.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <jansson.h>

enum { NOW = 1000000000 }; /* microseconds */

static const struct entry holder = {.kind = ENTRY_HOLDER,
    .key = "k",
    .token = 7,
    .owner = "abc",
    .slot = -1,
    .since = NOW - 61000000,
    .until = NOW + 20000000,
    .record = "{\"who\":\"alice\",\"pid\":1,\"host\":\"h\",\"command\":\"c\"}"};

static const struct backend backend = {.name = "b"};
static struct store store = {.backend = &backend, .where = "b 127.0.0.1"};
static const struct screen no_terminal;

static json_t *
object_of(const struct view *v, bool brief)
{
	char *text = NULL;
	size_t size = 0;
	FILE *to = open_memstream(&text, &size);
	json_t *root;

	show_json(to, v, &store, brief, instant_epoch());
	fclose(to);
	root = json_loads(text, JSON_REJECT_DUPLICATES, NULL);
	if (!root)
		fail_msg("%s", text);
	assert_ptr_equal(strchr(text, '\n'), text + size - 1);
	free(text);
	return root;
}

static void
expect_words(const struct view *v, const char *expected)
{
	char words[HELD_BYTES];
	struct held h;

	held_of_view(&h, v);
	assert_string_equal(held_words(&h, words), expected);
}

static void
states_follow_from_entries(void **state)
{
	struct entry freeze = {.kind = ENTRY_FREEZE, .since = EPOCH_NONE, .until = -1};
	struct entry unknown = {.kind = ENTRY_UNKNOWN, .what = "a list"};
	struct entry waiting = {.kind = ENTRY_WAITING, .count = 3};
	struct view v = {0};

	(void)state;
	view_begin(&v, "k");
	assert_int_equal(view_state(&v), STATE_FREE);
	expect_words(&v, "free");
	view_add(&v, &waiting, NOW);
	assert_int_equal(view_state(&v), STATE_FREE);
	expect_words(&v, "waited for by 3 others");
	view_add(&v, &freeze, NOW);
	assert_int_equal(view_state(&v), STATE_FROZEN);
	expect_words(&v, "frozen by somebody, until dlock thaw");
	view_add(&v, &unknown, NOW);
	assert_int_equal(view_state(&v), STATE_HELD);
	expect_words(&v, "in use by something that is no lock: a list");
	view_add(&v, &holder, NOW);
	assert_int_equal(view_state(&v), STATE_HELD);
	expect_words(&v,
	    "held by alice (pid 1 on h, running c) for 1m01s (and the key is frozen until dlock thaw)");
	view_begin(&v, "other");
	assert_int_equal(view_state(&v), STATE_FREE);
	view_free(&v);
}

static void
grants_are_found_by_their_token(void **state)
{
	struct entry e = holder;
	struct view v = {0};

	(void)state;
	view_begin(&v, "k");
	view_add(&v, &e, NOW);
	e.token = 8;
	e.owner = "def";
	view_add(&v, &e, NOW);
	assert_string_equal(v.holders.list[0].owner, "abc");
	assert_string_equal(v.holders.list[1].owner, "def");
	view_free(&v);
}

static void
texts_are_copied_within_bounds(void **state)
{
	enum { LONG = 100000 };
	char *record = malloc(LONG + 20), *owner = calloc(1, LONG + 1);
	struct entry e = holder;
	struct view v = {0};
	size_t n;

	(void)state;
	n = snprintf(record, LONG, "{\"who\":\"");
	for (size_t i = 0; i < 10000; i++)
		memcpy(record + n + 2 * i, "\xc3\xa9", 2);
	strcpy(record + n + 20000, "\"}");
	memset(owner, 'o', LONG);
	e.record = record;
	e.owner = owner;
	view_begin(&v, "k");
	for (int i = 0; i < 100; i++)
		view_add(&v, &e, NOW);
	memset(record, 'x', LONG);
	assert_int_equal(v.holders.n, 100);
	for (int i = 0; i < 100; i++) {
		const struct person *p = &v.holders.list[i];

		assert_in_range(strlen(p->said.who), 100, 1000);
		assert_memory_equal(p->said.who, "\xc3\xa9", 2);
		assert_int_equal(strlen(p->said.who) % 2, 0); /* whole characters */
		assert_null(p->owner); /* half of it would be another one */
	}
	view_free(&v);
	free(record);
	free(owner);
}

static void
a_key_of_any_length_is_kept_whole(void **state)
{
	char key[KEY_BYTES + 1];
	struct view v = {0};

	(void)state;
	for (size_t n = 0; n <= KEY_BYTES; n += 2) {
		for (size_t i = 0; i < n; i += 2)
			memcpy(key + i, "\xc3\xa9", 2);
		key[n] = '\0';
		view_begin(&v, key);
		assert_string_equal(v.key, key);
	}
	view_free(&v);
}

static void
times_out_of_range_are_not_known(void **state)
{
	static const int64_t times[] = {
	    INT64_MIN, -1, 0, 1, NOW, INT64_MAX / 1000, INT64_MAX - 1, INT64_MAX};
	struct view v = {0};

	(void)state;
	for (size_t i = 0; i < 8 * 8 * 8; i++) {
		struct entry e = holder, last = {.kind = ENTRY_LAST, .token = 1};
		char row[ROW_BYTES];
		struct columns c;
		struct fault f;
		json_t *root;

		e.since = last.since = times[i % 8];
		e.until = last.until = times[i / 8 % 8];
		view_begin(&v, "k");
		view_add(&v, &e, times[i / 64]);
		view_add(&v, &last, times[i / 64]);
		root = object_of(&v, false);
		json_decref(root);
		assert_int_equal(
		    columns_choose(&c, false, "since,held,left", &no_terminal, &f),
		    RC_OK);
		columns_row(&c, &v, row);
	}
	view_free(&v);
	assert_int_equal(view_span(5, 7), 2000);
	assert_int_equal(view_span(7, 5), 0);
	assert_int_equal(view_span(-1, 5), -1);
	assert_int_equal(view_span(0, INT64_MAX), NEVER);
}

/* The last success is the last run, if that ended with 0, or another that is told. */
static void
jobs_have_a_last_run_and_a_last_success(void **state)
{
	struct entry last = {
	    .kind = ENTRY_LAST, .since = NOW - 9000000, .until = NOW, .once = "a"};
	struct entry good = {
	    .kind = ENTRY_GOOD, .since = NOW - 5, .until = -1, .once = "b"};
	struct view v = {0};
	char row[ROW_BYTES];
	struct columns c;
	struct fault f;

	(void)state;
	view_begin(&v, "k");
	assert_null(view_good(&v));
	view_add(&v, &last, NOW);
	assert_ptr_equal(view_good(&v), &v.last);
	last.status = 3;
	view_begin(&v, "k");
	view_add(&v, &last, NOW);
	assert_null(view_good(&v));
	view_add(&v, &good, NOW);
	assert_string_equal(view_good(&v)->once, "b");
	assert_int_equal(
	    columns_choose(&c, true, "key,id,status,took", &no_terminal, &f), RC_OK);
	columns_row(&c, &v, row);
	assert_string_equal(row, "k                        -                 3     9s");
	good.kind = ENTRY_DONE;
	view_begin(&v, "k");
	view_add(&v, &good, NOW);
	assert_true(v.of_id && !v.has_last);
	columns_row(&c, &v, row);
	assert_string_equal(row, "k                        b                 0      -");
	assert_int_equal(columns_choose(&c, true, "held", &no_terminal, &f), RC_USAGE);
	assert_int_equal(columns_choose(&c, false, "took", &no_terminal, &f), RC_USAGE);
	view_free(&v);
}

/* It is the last run, if that ended before, and never a success; nor does it hide one. */
static void
a_grant_is_a_renewal(void **state)
{
	/* granted 2 s ago for 30 s; a server that counts whole seconds says that 26 s are left */
	struct entry e = holder;
	struct view v = {.now = NOW};

	(void)state;
	e.record = "{\"who\":\"alice\",\"host\":\"h\",\"pid\":1,\"ttl\":30000}";
	e.since = NOW - 2000000;
	e.until = NOW + 26000000;
	view_begin(&v, "k");
	view_add(&v, &e, NOW);
	v.now = NOW;
	assert_int_equal(view_renewed(&v, v.holders.list), 2 * NS_PER_S);
	e.since = NOW - 61000000;
	view_free(&v);
	view_begin(&v, "k");
	view_add(&v, &e, NOW);
	v.now = NOW;
	assert_int_equal(view_renewed(&v, v.holders.list), 4 * NS_PER_S);
	view_free(&v);
}

static void
a_run_that_is_no_jobs_is_shown(void **state)
{
	struct entry last = {
	    .kind = ENTRY_LAST, .since = NOW - 9, .until = NOW - 5, .once = "a"};
	struct entry shown = {.kind = ENTRY_SHOWN, .since = NOW - 8, .until = NOW - 4};
	struct view v = {0};

	(void)state;
	view_begin(&v, "k");
	view_add(&v, &shown, NOW);
	assert_true(v.has_last && v.last.jobless && !view_good(&v));
	view_begin(&v, "k");
	view_add(&v, &last, NOW);
	view_add(&v, &shown, NOW);
	assert_true(v.has_last && v.last.jobless && !v.last.once);
	assert_string_equal(view_good(&v)->once, "a");
	shown.until = NOW - 6;
	view_begin(&v, "k");
	view_add(&v, &last, NOW);
	view_add(&v, &shown, NOW);
	assert_true(!v.last.jobless && view_good(&v) == &v.last && !v.has_good);
	last.until = NOW + 5; /* a clock was wrong */
	view_begin(&v, "k");
	view_add(&v, &last, NOW);
	view_add(&v, &shown, NOW);
	assert_true(v.last.jobless);
	view_free(&v);
}

/* Of an ID that ended otherwise than with 0, that is the last run, and no success. */
static void
an_id_may_be_done_by_a_failure(void **state)
{
	struct entry done = {.kind = ENTRY_DONE, .once = "b", .status = 3};
	struct view v = {0};

	(void)state;
	view_begin(&v, "k");
	view_add(&v, &done, NOW);
	assert_true(v.of_id && v.last.status == 3 && !view_good(&v));
	assert_string_equal(view_id(&v), "b");
	view_free(&v);
}

static void
facts_are_the_same_while_only_time_passes(void **state)
{
	struct entry e = holder;
	struct view v = {0};
	uint64_t facts;

	(void)state;
	view_begin(&v, "k");
	view_add(&v, &e, NOW);
	facts = show_facts(&v, &store, false);
	e.until += 10000000;
	view_begin(&v, "k");
	view_add(&v, &e, NOW + 10000000);
	assert_true(show_facts(&v, &store, false) == facts);
	e.revoked = true;
	view_begin(&v, "k");
	view_add(&v, &e, NOW);
	assert_true(show_facts(&v, &store, false) != facts);
	view_begin(&v, "k");
	assert_true(show_facts(&v, &store, false) != facts);
	view_free(&v);
}

static void
lines_are_cut_between_characters_and_colours(void **state)
{
	static const struct {
		const char *in, *out;
		size_t columns;
	} rows[] = {
	    {"", "", 0},
	    {"abc", "", 0},
	    {"abc", "ab", 2},
	    {"abc", "abc", 3},
	    {"\33[1mabc\33[m def", "\33[1mabc\33[m", 3},
	    {"\33[1mabc\33[m", "\33[1mab\33[m", 2},
	    {"\33[1mabc\33[m", "\33[1mabc\33[m", 3},
	    {"\xe7\x95\x8c\xe7\x95\x8c", "\xe7\x95\x8c", 3},
	    {"e\xcc\x81x", "e\xcc\x81", 1},
	    {"\xff\xff", "\xff", 1},
	};

	(void)state;
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		char line[40];

		strcpy(line, rows[i].in);
		screen_cut(line, rows[i].columns);
		assert_string_equal(line, rows[i].out);
	}
}

static void
columns_are_named_in_any_case(void **state)
{
	struct screen narrow = {.columns = 40, .rows = 24};
	struct columns c;
	struct fault f = {""};
	char line[ROW_BYTES];

	(void)state;
	assert_int_equal(
	    columns_choose(&c, false, "key,Pid,STATE", &no_terminal, &f), RC_OK);
	columns_row(&c, NULL, line);
	assert_non_null(strstr(line, "KEY"));
	assert_int_equal(columns_choose(&c, false, "", &no_terminal, &f), RC_USAGE);
	assert_int_equal(columns_choose(&c, false, "key,", &no_terminal, &f), RC_USAGE);
	assert_int_equal(columns_choose(&c, false, ",key", &no_terminal, &f), RC_USAGE);
	assert_int_equal(columns_choose(&c, false, "keys", &no_terminal, &f), RC_USAGE);
	assert_non_null(strstr(f.text, "'keys'"));
	assert_int_equal(columns_choose(&c, false, "KEY, STATE", &no_terminal, &f),
	    RC_USAGE); /* with blanks */
	for (size_t columns = 1; columns < 250; columns++) {
		narrow.columns = columns;
		assert_int_equal(columns_choose(&c, false, NULL, &narrow, &f), RC_OK);
		columns_row(&c, NULL, line);
		assert_in_range(strlen(line), columns > 40 ? 30 : 0, columns - 1);
	}
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(states_follow_from_entries),
	    cmocka_unit_test(grants_are_found_by_their_token),
	    cmocka_unit_test(jobs_have_a_last_run_and_a_last_success),
	    cmocka_unit_test(texts_are_copied_within_bounds),
	    cmocka_unit_test(a_key_of_any_length_is_kept_whole),
	    cmocka_unit_test(times_out_of_range_are_not_known),
	    cmocka_unit_test(a_grant_is_a_renewal),
	    cmocka_unit_test(a_run_that_is_no_jobs_is_shown),
	    cmocka_unit_test(an_id_may_be_done_by_a_failure),
	    cmocka_unit_test(facts_are_the_same_while_only_time_passes),
	    cmocka_unit_test(lines_are_cut_between_characters_and_colours),
	    cmocka_unit_test(columns_are_named_in_any_case),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
