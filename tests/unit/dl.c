/*
 * dl.c - Goal of these tests: a library's functions are found, and what is
 * missing is said with what to do.  The C library is one that is always there.
 */
#include "backends/common/dl.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static struct table {
	__typeof__(&getpid) getpid;
	void *never;
} table;

static void
functions_are_found(void **state)
{
	static const struct dl_symbol symbols[] = {
	    {"getpid", false, offsetof(struct table, getpid)},
	    {"dlock_never", true, offsetof(struct table, never)}};
	static const struct dl_library libc = {
	    "the C library", "libc.so.6", "libc6", &table, symbols, 2};
	struct fault f;

	(void)state;
	table.never = &table;
	for (int again = 0; again < 2; again++) {
		assert_int_equal(dl_load(&libc, &f), RC_OK);
		assert_int_equal(table.getpid(), getpid());
		assert_null(table.never);
	}
}

static void
a_library_too_old_is_refused(void **state)
{
	static const struct dl_symbol symbols[] = {
	    {"dlock_never", false, offsetof(struct table, never)}};
	static const struct dl_library libc = {
	    "the C library", "libc.so.6", "libc6", &table, symbols, 1};
	struct fault f;

	(void)state;
	assert_int_equal(dl_load(&libc, &f), RC_CONFIG);
	assert_string_equal(f.text, "the C library is too old (apt install libc6)");
}

static void
a_missing_library_is_named(void **state)
{
	static const struct dl_library none = {
	    "libnever", "libdlock-never.so.1", "libnever1", &table, NULL, 0};
	struct fault f;

	(void)state;
	assert_int_equal(dl_load(&none, &f), RC_CONFIG);
	assert_string_equal(f.text, "libnever is not installed (apt install libnever1)");
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(functions_are_found),
	    cmocka_unit_test(a_library_too_old_is_refused),
	    cmocka_unit_test(a_missing_library_is_named),
	};

	return cmocka_run_group_tests_name("dl", tests, NULL, NULL);
}
