/*
 * openssl.c - Goal of these tests: all of OpenSSL's functions that backends/common/tls.c calls are
 * found.
 */
#include "backends/common/openssl.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

static void
all_functions_are_found(void **state)
{
	const struct openssl *lib = NULL;
	struct fault f = {""};

	(void)state;
	for (int again = 0; again < 2; again++) {
		assert_int_equal(openssl_load(&lib, &f), RC_OK);
#define X(name) assert_non_null(lib->name);
		OPENSSL_FUNCTIONS(X)
#undef X
	}
}

int
main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(all_functions_are_found)};

	return cmocka_run_group_tests_name("openssl", tests, NULL, NULL);
}
