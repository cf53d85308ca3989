/*
 * said.c - Goal of these tests: the list is in order of strength, and the strongest origin that
 * says something of a group owns all of it.
 */
#include "cmd/said.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

static struct said_list all;

static int
empty_list(void **state)
{
	(void)state;
	said_init(&all, CMD_RUN);
	return 0;
}

static void
say(struct said_origin *o, int option, const char *value)
{
	said_add(&all, o, option, value, 0);
}

static const char *
value(int option)
{
	const struct said *s = said_of(&all, option);

	return s ? s->value : "-";
}

static enum said_by
origin(int option)
{
	const struct said *s = said_of(&all, option);

	assert_non_null(s);
	return s->origin->by;
}

static void
stronger_origin_gives_the_value(void **state)
{
	(void)state;
	assert_null(said_of(&all, OPT_TTL));
	say(&all.variables, OPT_TTL, "5s");
	assert_int_equal(origin(OPT_TTL), BY_VARIABLE);
	say(&all.words, OPT_TTL, "6s");
	assert_int_equal(origin(OPT_TTL), BY_WORDS);
	say(&all.variables, OPT_GRACE, "1s"); /* of no group: alone */
	assert_int_equal(origin(OPT_GRACE), BY_VARIABLE);
}

static void
groups_have_one_owner(void **state)
{
	(void)state;
	say(&all.variables, OPT_BACKEND, "file");
	say(&all.variables, OPT_URL, "file:///x");
	say(&all.variables, OPT_WAIT, "5s");
	assert_int_equal(origin(OPT_WAIT), BY_VARIABLE);
	say(&all.words, OPT_NONBLOCK, "1");
	assert_null(said_of(&all, OPT_WAIT));
	assert_int_equal(origin(OPT_URL), BY_VARIABLE);
	say(&all.words, OPT_BACKEND, "redis");
	assert_null(said_of(&all, OPT_URL));
	assert_int_equal(origin(OPT_BACKEND), BY_WORDS);
	say(&all.words, OPT_URL, "redis://h"); /* of its own origin it may say more */
	assert_string_equal(value(OPT_URL), "redis://h");
}

/* Each in its place, whatever comes first; of one kind the later one is stronger. */
static void
list_is_in_order_of_strength(void **state)
{
	static const enum said_by kinds[] = {BY_SYSTEM, BY_USER_KEY, BY_USER,
	    BY_SYSTEM_KEY, BY_SYSTEM_PROFILE, BY_USER_PROFILE};
	struct said_origin *first = NULL, *second;
	int n = 0;

	(void)state;
	say(&all.outer_run, OPT_QUIET, "1");
	for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
		struct said_origin *o = said_add_section(&all, kinds[i]);

		assert_non_null(o);
		say(o, OPT_QUIET, "1");
		if (kinds[i] == BY_USER_KEY)
			first = o;
	}
	say(&all.variables, OPT_QUIET, "1");
	say(&all.words, OPT_QUIET, "1");
	for (const struct said *s = all.first; s; s = s->next)
		assert_int_equal(s->origin->by, n++);
	assert_int_equal(n, BY_OUTER + 1);
	say(first, OPT_TTL, "5s");
	say(first, OPT_WHY, "first");
	second = said_add_section(&all, BY_USER_KEY);
	say(second, OPT_TTL, "6s");
	assert_string_equal(value(OPT_TTL), "6s");
	assert_string_equal(value(OPT_WHY), "first");
}

/* What one origin says stays in its order, and of settings one too many is enough. */
static void
list_has_room_for_all_that_can_be_said(void **state)
{
	static const char *const values[] = {"0", "1", "2"};
	struct said_origin *sections[SAID_SECTIONS];
	size_t n = 0;
	int last = -1;

	(void)state;
	for (int i = 0; i < SAID_SECTIONS; i++)
		sections[i] = said_add_section(&all, BY_USER_KEY);
	assert_null(said_add_section(&all, BY_USER_KEY));
	for (int o = -3; o < SAID_SECTIONS; o++) {
		struct said_origin *by = o == -3 ? &all.words
		    : o == -2                    ? &all.variables
		    : o == -1                    ? &all.outer_run
						 : sections[o];

		for (int i = 0; i < OPTIONS; i++)
			if (i != OPT_OPTION)
				say(by, i, "1");
		for (int i = 0; i < 1000; i++)
			say(by, OPT_OPTION, values[i < 2 ? i : 2]);
	}
	for (int i = 0; i < KEYS_MAX; i++)
		say(&all.words, OPT_KEY, "key");
	assert_in_range(all.n, 1, SAID_MOST);
	for (const struct said *s = all.first; s; s = s->next, n++) {
		if (s->origin != &all.words || s->option != OPT_OPTION)
			continue;
		assert_in_range(s->value[0] - '0', last < 0 ? 0 : last, 2);
		last = s->value[0] - '0';
	}
	assert_int_equal(n, all.n);
	assert_int_equal(last, 2);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test_setup(stronger_origin_gives_the_value, empty_list),
	    cmocka_unit_test_setup(groups_have_one_owner, empty_list),
	    cmocka_unit_test_setup(list_is_in_order_of_strength, empty_list),
	    cmocka_unit_test_setup(list_has_room_for_all_that_can_be_said, empty_list),
	};

	return cmocka_run_group_tests_name("said", tests, NULL, NULL);
}
