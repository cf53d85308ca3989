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
	assert_string_equal(variables[OPT_BACKEND], "redis");
	setenv("DLOCK_URL", "file:///x", 1);
	sources_init(&all, CMD_RUN);
	assert_null(variables[OPT_BACKEND]);
	assert_string_equal(variables[OPT_URL], "file:///x");
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test_setup(stronger_source_gives_the_value, clean_environment),
	    cmocka_unit_test_setup(groups_have_one_owner, clean_environment),
	    cmocka_unit_test_setup(
		words_of_an_enclosing_dlock_do_not_count, clean_environment),
	};

	return cmocka_run_group_tests_name("sources", tests, NULL, NULL);
}
