/*
 * openssl.c - Goal of these tests: what backends/common/openssl.h says of OpenSSL's functions is
 * what its own headers say, and all of them are found.
 */
#include "backends/common/openssl.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>

#define X(result, name, arguments) \
	_Static_assert(__builtin_types_compatible_p(__typeof__(&name), \
			   __typeof__(((struct openssl *)NULL)->name)), \
	    #name);
OPENSSL_FUNCTIONS(X)
#undef X

static void
all_functions_are_found(void **state)
{
	const struct openssl *lib = NULL;
	struct fault f = {""};

	(void)state;
	for (int again = 0; again < 2; again++) {
		assert_int_equal(openssl_load(&lib, &f), RC_OK);
#define X(result, name, arguments) assert_non_null(lib->name);
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
