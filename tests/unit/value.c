/*
 * value.c - Goal of these tests: what a database sends as a number, a boolean or text is
 * that, or refused.
 */
#include "backends/sql/sql.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

/* A row with one field of `n` bytes. */
#define ROW(text, n) \
	((struct row){(char *[]){(text)}, (unsigned long[]){(unsigned long)(n)}})
#define TEXT(text) ROW((text), strlen(text))

static const struct row none = {NULL, NULL};

static void
integers_are_in_their_range_and_nothing_else(void **state)
{
	static char *const wrong[] = {
	    "", "-", " 1", "1 ", "+1", "1.0", "0x1", "11", "-6", "99999999999999999999"};
	int64_t n;

	(void)state;
	assert_true(row_integer(&TEXT("-5"), 0, -5, 10, &n));
	assert_int_equal(n, -5);
	assert_true(row_integer(&TEXT("10"), 0, -5, 10, &n));
	assert_int_equal(n, 10);
	for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
		assert_false(row_integer(&TEXT(wrong[i]), 0, -5, 10, &n));
	assert_false(row_integer(&ROW("1\0002", 3), 0, -5, 10, &n));
	assert_false(row_integer(&ROW(NULL, 0), 0, -5, 10, &n));
	assert_false(row_integer(&none, 0, -5, 10, &n));
}

static void
booleans_are_as_either_database_writes_them(void **state)
{
	static char *const wrong[] = {"", "2", "01", "true", "T", "f "};
	bool is;

	(void)state;
	assert_true(row_boolean(&TEXT("1"), 0, &is) && is);
	assert_true(row_boolean(&TEXT("t"), 0, &is) && is);
	assert_true(row_boolean(&TEXT("0"), 0, &is) && !is);
	assert_true(row_boolean(&TEXT("f"), 0, &is) && !is);
	for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
		assert_false(row_boolean(&TEXT(wrong[i]), 0, &is));
	assert_false(row_boolean(&ROW("", 1), 0, &is)); /* a NUL */
	assert_false(row_boolean(&ROW(NULL, 0), 0, &is));
	assert_false(row_boolean(&none, 0, &is));
}

static void
text_fits_or_is_refused(void **state)
{
	char out[4] = "old";

	(void)state;
	assert_true(row_text(&TEXT("abc"), 0, out, sizeof out));
	assert_string_equal(out, "abc");
	assert_false(row_text(&TEXT("abcd"), 0, out, sizeof out));
	assert_string_equal(out, "");
	assert_false(row_text(&ROW("a\0b", 3), 0, out, sizeof out));
	assert_true(row_text(&ROW(NULL, 0), 0, out, sizeof out));
	assert_string_equal(out, "");
}

static void
null_and_no_row_are_null(void **state)
{
	(void)state;
	assert_true(row_is_null(&none, 0));
	assert_true(row_is_null(&ROW(NULL, 0), 0));
	assert_false(row_is_null(&TEXT(""), 0));
	assert_null(row_words(&none, 0));
	assert_null(row_words(&ROW(NULL, 0), 0));
	assert_string_equal(row_words(&TEXT("x"), 0), "x");
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(integers_are_in_their_range_and_nothing_else),
	    cmocka_unit_test(booleans_are_as_either_database_writes_them),
	    cmocka_unit_test(text_fits_or_is_refused),
	    cmocka_unit_test(null_and_no_row_are_null),
	};

	return cmocka_run_group_tests_name("value", tests, NULL, NULL);
}
