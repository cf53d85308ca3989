/*
 * variables.c - Goal of these tests: what an outer run tells its command is not what a user says.
 */
#include "cmd/variables.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

static struct said_list all;

static void
read_again(void)
{
	said_init(&all, CMD_RUN);
	variables_read(&all);
}

static int
clean_environment(void **state)
{
	(void)state;
	for (const struct option *o = options; o->name; o++)
		if (o->env)
			unsetenv(o->env);
	unsetenv("DLOCK_KEEPER");
	read_again();
	return 0;
}

static const char *
value(int option)
{
	const struct said *s = said_of(&all, option);

	return s ? s->value : "-";
}

static void
words_of_an_outer_run_do_not_count(void **state)
{
	(void)state;
	setenv("DLOCK_KEY", "outer", 1);
	setenv("DLOCK_BACKEND", "redis", 1);
	read_again();
	assert_string_equal(value(OPT_KEY), "outer");
	setenv("DLOCK_KEEPER", "somebody", 1);
	read_again();
	assert_null(said_of(&all, OPT_KEY));
	/* where it is, everything else counts more */
	assert_int_equal(said_of(&all, OPT_BACKEND)->origin->by, BY_OUTER);
	assert_string_equal(value(OPT_BACKEND), "redis");
	setenv("DLOCK_URL", "file:///x", 1);
	read_again();
	assert_null(said_of(&all, OPT_BACKEND));
	assert_string_equal(value(OPT_URL), "file:///x");
}

/* An empty variable is none; one of several settings is as many. */
static void
variables_are_what_they_say(void **state)
{
	int n = 0;

	(void)state;
	setenv("DLOCK_TTL", "", 1);
	setenv("DLOCK_OPTION", " a=1  b=2\tc=3 ", 1);
	read_again();
	assert_null(said_of(&all, OPT_TTL));
	for (const struct said *s = all.first; s; s = s->next, n++) {
		assert_int_equal(s->option, OPT_OPTION);
		assert_int_equal(s->value[0], 'a' + n);
	}
	assert_int_equal(n, 3);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test_setup(words_of_an_outer_run_do_not_count, clean_environment),
	    cmocka_unit_test_setup(variables_are_what_they_say, clean_environment),
	};

	return cmocka_run_group_tests_name("variables", tests, NULL, NULL);
}
