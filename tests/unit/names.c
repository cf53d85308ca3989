/*
 * names.c - Goal of these tests: a key is the name of GET_LOCK that other programs take for it.
 */
#include "backends/mysql/derive.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void
is_name(const char *tool, const char *key, const char *database, const char *expected)
{
	char name[DERIVE_NAME_BYTES];

	assert_true(derive_mysql_knows(tool));
	derive_mysql_name(name, tool, key, database);
	assert_string_equal(name, expected);
}

/*
 * From the sources: sql_schema_connector of Prisma (GET_LOCK('prisma_migrate', ...)),
 * MySQL's AdvisoryLockId of Rails, GenerateAdvisoryLockId("db:table") of golang-migrate,
 * MySQLNamedLockTemplate of Flyway, Base::MySQL of with_advisory_lock; the numbers from zlib of
 * Python, and from Java's String.hashCode() as its documentation has it.
 */
static void
names_of_programs(void **state)
{
	char *longest;

	(void)state;
	unsetenv("WITH_ADVISORY_LOCK_PREFIX");
	is_name("prisma-migrate", "any", "app", "prisma_migrate");
	is_name("rails-migration", "any", "app_production", "4615154450383096620");
	is_name("golang-migrate", "schema_migrations", "app", "2938252834");
	is_name("flyway", "flyway_schema_history", "app", "Flyway--320650056");
	is_name("with_advisory_lock", "foo", "app", "foo");
	setenv("WITH_ADVISORY_LOCK_PREFIX", "myapp-", 1);
	is_name("with_advisory_lock", "foo", "app", "myapp-foo");
	longest = calloc(1, 4000);
	assert_non_null(longest);
	memset(longest, 'x', 3999);
	setenv("WITH_ADVISORY_LOCK_PREFIX", longest, 1);
	longest[KEY_BYTES - 1] = '\0';
	strcat(longest, "foo");
	is_name("with_advisory_lock", "foo", "app", longest);
	free(longest);
	unsetenv("WITH_ADVISORY_LOCK_PREFIX");
}

static void
programs_that_are_known(void **state)
{
	(void)state;
	assert_false(derive_mysql_knows("liquibase"));
	assert_true(derive_mysql_is_one("prisma-migrate"));
	assert_false(derive_mysql_is_one("flyway"));
	assert_false(derive_mysql_is_one("liquibase"));
}

int
main(void)
{
	static const struct CMUnitTest tests[] = {
	    cmocka_unit_test(names_of_programs),
	    cmocka_unit_test(programs_that_are_known),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
