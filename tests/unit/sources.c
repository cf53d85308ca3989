/*
 * sources.c - Goal of these tests: the strongest source that says something of a group
 * owns all of it.
 */
#include "cmd/sources.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

static struct sources all;
static const char **words = all.list[SOURCE_WORDS].value,
		  **variables = all.list[SOURCE_ENVIRONMENT].value;

static int
clean_environment(void **state)
{
	(void)state;
	for (const struct option *o = options; o->name; o++)
		if (o->env)
			unsetenv(o->env);
	unsetenv("DLOCK_KEEPER");
	sources_init(&all, CMD_RUN);
	return 0;
}

static void
stronger_source_gives_the_value(void **state)
{
	(void)state;
	assert_null(sources_of(&all, OPT_TTL));
	variables[OPT_TTL] = "5s";
	assert_ptr_equal(sources_of(&all, OPT_TTL), &all.list[SOURCE_ENVIRONMENT]);
	words[OPT_TTL] = "6s";
	assert_ptr_equal(sources_of(&all, OPT_TTL), &all.list[SOURCE_WORDS]);
	variables[OPT_GRACE] = "1s"; /* of no group: alone */
	assert_ptr_equal(sources_of(&all, OPT_GRACE), &all.list[SOURCE_ENVIRONMENT]);
}

static void
groups_have_one_owner(void **state)
{
	(void)state;
	variables[OPT_BACKEND] = "file";
	variables[OPT_URL] = "file:///x";
	variables[OPT_WAIT] = "5s";
	assert_ptr_equal(sources_of(&all, OPT_WAIT), &all.list[SOURCE_ENVIRONMENT]);
	words[OPT_NONBLOCK] = "1";
	assert_null(sources_of(&all, OPT_WAIT));
	assert_ptr_equal(sources_of(&all, OPT_URL), &all.list[SOURCE_ENVIRONMENT]);
	words[OPT_BACKEND] = "redis";
	assert_null(sources_of(&all, OPT_URL));
	assert_ptr_equal(sources_of(&all, OPT_BACKEND), &all.list[SOURCE_WORDS]);
}

/* What an enclosing dlock tells its command is not what a user says. */
static void
words_of_an_enclosing_dlock_do_not_count(void **state)
{
	(void)state;
	setenv("DLOCK_KEY", "outer", 1);
	setenv("DLOCK_BACKEND", "redis", 1);
	sources_init(&all, CMD_RUN);
	assert_string_equal(variables[OPT_KEY], "outer");
	setenv("DLOCK_KEEPER", "somebody", 1);
	sources_init(&all, CMD_RUN);
	assert_null(variables[OPT_KEY]);
	/* where it is, everything else counts more */
	assert_int_equal(sources_of(&all, OPT_BACKEND)->kind, SOURCE_ENCLOSING);
	assert_string_equal(sources_of(&all, OPT_BACKEND)->value[OPT_BACKEND], "redis");
	setenv("DLOCK_URL", "file:///x", 1);
	sources_init(&all, CMD_RUN);
	assert_null(sources_of(&all, OPT_BACKEND));
	assert_string_equal(variables[OPT_URL], "file:///x");
}

/* Each in its place, whatever comes first; of one kind the later one is stronger. */
static void
sections_stand_in_order(void **state)
{
	static const enum source_kind kinds[] = {SOURCE_SYSTEM, SOURCE_USER_KEY,
	    SOURCE_USER, SOURCE_SYSTEM_KEY, SOURCE_SYSTEM_PROFILE, SOURCE_USER_PROFILE};
	struct source *first, *second;

	(void)state;
	for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
		assert_non_null(sources_add(&all, kinds[i]));
	for (size_t i = 0; i < all.n; i++)
		assert_int_equal(all.list[i].kind, i);
	first = &all.list[SOURCE_USER_KEY];
	first->value[OPT_TTL] = "5s";
	first->value[OPT_WHY] = "first";
	second = sources_add(&all, SOURCE_USER_KEY);
	second->value[OPT_TTL] = "6s";
	assert_string_equal(sources_of(&all, OPT_TTL)->value[OPT_TTL], "6s");
	assert_string_equal(sources_of(&all, OPT_WHY)->value[OPT_WHY], "first");
	while (all.n < SOURCES_MAX)
		assert_non_null(sources_add(&all, SOURCE_USER_KEY));
	assert_null(sources_add(&all, SOURCE_USER_KEY));
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test_setup(stronger_source_gives_the_value, clean_environment),
	    cmocka_unit_test_setup(groups_have_one_owner, clean_environment),
	    cmocka_unit_test_setup(sections_stand_in_order, clean_environment),
	    cmocka_unit_test_setup(
		words_of_an_enclosing_dlock_do_not_count, clean_environment),
	};

	return cmocka_run_group_tests_name("sources", tests, NULL, NULL);
}
