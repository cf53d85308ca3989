/*
 * derive.c - Goal of these tests: a key is the advisory lock that other programs take
 * for it.
 */
#include "backends/pg/derive.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void
is_one(const char *tool, const char *key, const char *database, int64_t expected)
{
	struct number n;
	struct fault f;

	assert_int_equal(derive_number(&n, tool, key, database, &f), RC_OK);
	assert_false(n.pair);
	if (n.one != expected)
		fail_msg("%s of '%s' is %lld and should be %lld", tool ? tool : "NULL",
		    key, (long long)n.one, (long long)expected);
}

static void
is_pair(const char *tool, const char *key, int32_t a, int32_t b)
{
	struct number n;
	struct fault f;

	assert_int_equal(derive_number(&n, tool, key, "app", &f), RC_OK);
	assert_true(n.pair);
	assert_int_equal(n.two[0], a);
	assert_int_equal(n.two[1], b);
}

/* pg_try_advisory_lock(crc32(name) & 0x7fffffff, prefix.to_i & 0x7fffffff) */
static void
ruby_with_advisory_lock(void **state)
{
	(void)state;
	unsetenv("WITH_ADVISORY_LOCK_PREFIX");
	is_pair("with_advisory_lock", "foo", 208889121, 0);
	is_pair("with_advisory_lock", "nightly-report", 69980848, 0);
	setenv("WITH_ADVISORY_LOCK_PREFIX", "myapp", 1);
	is_pair("with_advisory_lock", "foo", 208889121, 0);
	setenv("WITH_ADVISORY_LOCK_PREFIX", "7", 1);
	is_pair("with_advisory_lock", "foo", 208889121, 7);
	unsetenv("WITH_ADVISORY_LOCK_PREFIX");
}

/* 2053462845 * crc32(current_database()); the key does not matter */
static void
rails_migrations(void **state)
{
	(void)state;
	is_one("rails-migration", "any", "app_production", 4615154450383096620);
	is_one("rails-migration", "other", "app_production", 4615154450383096620);
}

/* the first 8 bytes of SHA-256, the least significant first */
static void
django_pglock(void **state)
{
	char key[KEY_BYTES + 1];

	(void)state;
	is_one("django-pglock", "foo", "app", -8086495256948496852);
	/* One, two and nine blocks; around the ends of the padding.  From hashlib. */
	memset(key, 'k', KEY_BYTES);
	key[KEY_BYTES] = '\0';
	is_one("django-pglock", key, "app", -3612976521531516296);
	key[64] = '\0';
	is_one("django-pglock", key, "app", -5981226914710021851);
	key[56] = '\0';
	is_one("django-pglock", key, "app", 3034537258313071177);
	key[55] = '\0';
	is_one("django-pglock", key, "app", 7536869591265094548);
}

/* the same hash of "dlock:" and the key, the most significant byte first */
static void
dlock_itself(void **state)
{
	(void)state;
	is_one(NULL, "foo", "app", -6898199071693601759);
	is_one("dlock", "foo", "app", -6898199071693601759);
	is_one("dlock", "ключ", "app", -1040035552635301297);
}

/*
 * uint32(crc32(schema \0 table \0 database) * 1486364155).  For the database the program and
 * migrate.New(url) put the path of the URL, with its slash (database/postgres: `migrateURL.Path`
 * becomes Config.DatabaseName); WithInstance() asks for CURRENT_DATABASE().
 */
static void
golang_migrate(void **state)
{
	(void)state;
	is_one("golang-migrate", "public.schema_migrations", "app", 1726534663);
	is_one("golang-migrate-instance", "public.schema_migrations", "app", 1787120056);
	/* from its own tests */
	is_one("golang-migrate-instance", "schema_name_1.schema_name_2", "database_name",
	    3743845847);
}

/* 77431708279161 + String.hashCode() of "schema"."table" */
static void
flyway(void **state)
{
	(void)state;
	is_one("flyway", "public.flyway_schema_history", "app", 77433833903597);
	is_one("flyway", "öff.\xf0\x9f\x94\x92", "app", 77430145516676);
}

/*
 * Each excludes the real client in promises/test_joins.py, but for prisma, whose number stands
 * in its schema engine (sql_schema_connector: pg_advisory_lock(72707369)).
 */
static void
programs_with_one_number(void **state)
{
	(void)state;
	is_one("prisma-migrate", "any", "app", 72707369);
	is_one("node-pg-migrate", "any", "app", 7241865325823964);
	is_one("graphile-migrate", "any", "app", 4727445306447283);
	is_one("postgres-migrations", "any", "app", -8525285245963000605);
	assert_true(derive_is_one("prisma-migrate"));
	assert_true(derive_is_one("rails-migration"));
	assert_false(derive_is_one("symfony"));
	assert_false(derive_is_one("liquibase"));
}

/* From zlib and hashlib of Python, of the name, or of app.pgboss.pgboss. */
static void
programs_with_a_hash(void **state)
{
	(void)state;
	is_one("symfony", "report", "app", 3291445124);
	is_one("django-pglocks", "report", "app", -1003522172);
	is_one("pg-boss", "pgboss", "app", -9218828629118414586);
	is_pair("advisory-lock", "report", -2087625084, -1662510829);
}

/*
 * PostgresAdvisoryLockKey(name, allowHashing) of DistributedLock.Postgres; hashes from hashlib,
 * also around the ends of the padding.
 */
static void
distributedlock(void **state)
{
	static const struct {
		size_t n;
		int64_t lock;
	} long_names[] = {{55, -4774139179143258786}, {56, 8964326585639875230},
	    {64, -8835660753087786322}, {255, 4027606530520210325}};
	char key[KEY_BYTES + 1];

	(void)state;
	is_pair("distributedlock", "report", -443054338, 1562378239);
	is_pair("distributedlock", "nine-char", -576227755, -1191943708);
	is_one("distributedlock", "ten-chars!", "app", 526016490374857436);
	is_one("distributedlock", "nightly-report", "app", 7635146791061737145);
	is_one("distributedlock", "ключ", "app", 7400670229932960435);
	is_one("distributedlock", "7fffffffffffffff", "app", INT64_MAX);
	is_one("distributedlock", "FFFFFFFFFFFFFFFE", "app", -2);
	is_pair("distributedlock", "7fffffff,80000000", INT32_MAX, INT32_MIN);
	for (size_t i = 0; i < sizeof long_names / sizeof *long_names; i++) {
		memset(key, 'k', long_names[i].n);
		key[long_names[i].n] = '\0';
		is_one("distributedlock", key, "app", long_names[i].lock);
	}
}

static void
keys_that_are_no_tables_are_refused(void **state)
{
	static const char *const tools[] = {"golang-migrate", "golang-migrate-instance",
	    "flyway"},
				 *const keys[] = {"job", ".table", "schema.", "."};
	struct number n;
	struct fault f;

	(void)state;
	for (size_t t = 0; t < sizeof tools / sizeof *tools; t++)
		for (size_t k = 0; k < sizeof keys / sizeof *keys; k++)
			assert_int_equal(
			    derive_number(&n, tools[t], keys[k], "app", &f), RC_USAGE);
	assert_false(derive_knows("liquibase"));
	assert_false(derive_knows(""));
}

static void
numbers_as_they_are(void **state)
{
	static const char *const wrong[] = {"", "x", "1x", "1,", ",1", "1,2,3", " 1",
	    "+1", "1 ", "--1", "-", "1,x", "0x10", "9223372036854775808",
	    "-9223372036854775809", "2147483648,1", "1,-2147483649", "1.5"};
	struct number n;

	(void)state;
	assert_true(derive_read_number(&n, "-9223372036854775808"));
	assert_false(n.pair);
	assert_true(n.one == INT64_MIN);
	assert_true(derive_read_number(&n, "42"));
	assert_int_equal(n.one, 42);
	assert_true(derive_read_number(&n, "-2147483648,7"));
	assert_true(n.pair);
	assert_int_equal(n.two[0], INT32_MIN);
	assert_int_equal(n.two[1], 7);
	for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
		if (derive_read_number(&n, wrong[i]))
			fail_msg("'%s' was taken for a number", wrong[i]);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(ruby_with_advisory_lock),
	    cmocka_unit_test(rails_migrations),
	    cmocka_unit_test(django_pglock),
	    cmocka_unit_test(dlock_itself),
	    cmocka_unit_test(golang_migrate),
	    cmocka_unit_test(flyway),
	    cmocka_unit_test(programs_with_one_number),
	    cmocka_unit_test(programs_with_a_hash),
	    cmocka_unit_test(distributedlock),
	    cmocka_unit_test(keys_that_are_no_tables_are_refused),
	    cmocka_unit_test(numbers_as_they_are),
	};

	return cmocka_run_group_tests_name("derive", tests, NULL, NULL);
}
