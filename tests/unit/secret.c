/*
 * secret.c - Goal of these tests: no password is left in a text that is
 * quoted, however it was repeated, and nothing else is changed.
 */
#include "backends/common/secret.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void
secrets_are_blotted_out(void **state)
{
	static const struct {
		const char *secret, *text, *left;
	} rows[] = {
	    {"s3cret", "ERR unknown command 'AUTH', with args beginning with: 's3cret' ",
		"ERR unknown command 'AUTH', with args beginning with: '***' "},
	    {"s3cret", "s3cret", "***"},
	    {"s3cret", "s3crets3cret s3cre S3CRET", "****** s3cre S3CRET"},
	    {"s3cret", "ss3cret ss3cre", "s*** ss3cre"},
	    {"p@ss/w%d", "p@ss/w%d p%40ss%2Fw%25d p%40ss/w%d %70%40%73%73%2f%77%25%64",
		"*** *** *** ***"},
	    {"%25%25%25", "a %25%25%25 b", "a *** b"},
	    {"a\\b\"c", "'a\\\\b\\\"c' a\\b\"c a\\x5cb\\x22c", "'***' *** ***"},
	    {"new\nline\x7f!", "new line ! new\\nline\\x7f!", "*** ***"},
	    /* an echo that ends early */
	    {"correct-horse-battery", "cut: correct-horse-b", "cut: ***"},
	    {"correct-horse-battery", "correct-hen correct-", "***en ***"},
	    {"correct-horse-battery", "correct", "correct"},
	    {"pwd", "pwd xpwdx", "*** x***x"},
	    /* these stand everywhere, and stars would tell where */
	    {"r", "ERR wrong", "ERR wrong"},
	    {"pw", "pw xpwx", "pw xpwx"},
	    {"\xc3\xa9t\xc3\xa9-2024",
		"caf\xc3\xa9 %C3%A9t%c3%a9-2024 \xc3\xa9t\xc3\xa9-2024",
		"caf\xc3\xa9 *** ***"},
	    {"s3cret", "100% \\x \\", "100% \\x \\"},
	    /* as JSON may have it */
	    {"s3cret", "\\u0073\\u0033c\\u0072e\\u0074 \\u0073", "*** \\u0073"},
	    {"\xc3\xa9t\xe2\x82\xac-2024", "caf\\u00e9 \\u00E9t\\u20ac-2024",
		"caf\\u00e9 ***"},
	    {"s3cret", "\\u \\u0 \\u00zz \\u0000 \\u007",
		"\\u \\u0 \\u00zz \\u0000 \\u007"},
	    {"s3cret", "", ""},
	    {"", "text", "text"},
	    {NULL, "text", "text"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		char *text = strdup(rows[i].text); /* exact, for the address sanitizer */

		assert_non_null(text);
		secret_blot(text, rows[i].secret);
		assert_string_equal(text, rows[i].left);
		free(text);
	}
}

/* Whatever stands around it, and however each character of it is written. */
static void
random_guises_are_blotted_out(void **state)
{
	static const char secret[] = "a%\\ 7/b";

	(void)state;
	srand(8);
	for (int round = 0; round < 100000; round++) {
		char text[100] = "x ", *end = text + 2;

		for (const char *c = secret; *c; c++)
			end += sprintf(end,
			    (const char *[]){"%c", "%%%02X", "\\x%02x",
				"\\u%04x"}[*c == '%' || *c == '\\' ? 1 : rand() % 4],
			    *c);
		strcpy(end, " y");
		secret_blot(text, secret);
		assert_string_equal(text, "x *** y");
	}
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(secrets_are_blotted_out),
	    cmocka_unit_test(random_guises_are_blotted_out),
	};

	return cmocka_run_group_tests_name("secret", tests, NULL, NULL);
}
