/*
 * encode.c - Goal of these tests: every key has one name, no two share one, and it comes
 * back whole.
 */
#include "backends/common/encode.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void
known_names(void **state)
{
	static const struct {
		const char *key, *name;
	} rows[] = {
	    {"deploy", "deploy"},
	    {"a/b", "a%2Fb"},
	    {"/", "%2F"},
	    {".", "%2E"},
	    {"..", "%2E%2E"},
	    {"...", "..."},
	    {".a", ".a"},
	    {"a b", "a%20b"},
	    {"a+b", "a%2Bb"},
	    {"{x}", "%7Bx%7D"},
	    {"%", "%25"},
	    {"%2e%2e", "%252e%252e"},
	    {"*?[", "%2A%3F%5B"},
	    {"A-Z_.~:@=", "A-Z_.~:@="},
	    {"\xc3\xbc", "%C3%BC"},
	    {"'\"$`", "%27%22%24%60"},
	};
	char name[ENCODED_BYTES], back[600];

	(void)state;
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		assert_int_equal(
		    encode_key(name, sizeof name, rows[i].key), strlen(rows[i].name));
		assert_string_equal(name, rows[i].name);
		assert_int_equal(encode_undo(back, sizeof back, name, strlen(name)),
		    strlen(rows[i].key));
		assert_string_equal(back, rows[i].key);
	}
}

static void
is_a_safe_name(const char *name)
{
	assert_string_not_equal(name, "");
	assert_string_not_equal(name, ".");
	assert_string_not_equal(name, "..");
	assert_int_equal(
	    strspn(name,
		"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.~:@=%"),
	    strlen(name));
}

static void
random_keys_come_back(void **state)
{
	(void)state;
	srand(3);
	for (int round = 0; round < 100000; round++) {
		char key[513], name[ENCODED_BYTES], back[513];
		size_t n = 1 + rand() % (round % 10 ? 20 : 512), length;

		for (size_t i = 0; i < n; i++)
			key[i] = (char)(1 + rand() % 255);
		key[n] = '\0';
		length = encode_key(name, sizeof name, key);
		assert_int_equal(length, strlen(name));
		is_a_safe_name(name);
		assert_int_equal(encode_undo(back, sizeof back, name, strlen(name)), n);
		assert_string_equal(back, key);
	}
}

static int
compare(const void *a, const void *b)
{
	return strcmp(a, b);
}

/* All keys of up to two bytes out of those that could be confused. */
static void
no_two_keys_share_a_name(void **state)
{
	static const char bytes[] = "aA0.%/2eEF~ {}\xc3\xbc\x01\xff";
	enum { N = sizeof bytes - 1 };
	static char names[N + N * N + N * N * N][12];
	size_t count = 0;

	(void)state;
	for (size_t i = 0; i < N; i++) {
		encode_key(names[count++], sizeof *names, (char[]){bytes[i], 0});
		for (size_t j = 0; j < N; j++) {
			encode_key(names[count++], sizeof *names,
			    (char[]){bytes[i], bytes[j], 0});
			for (size_t k = 0; k < N; k++)
				encode_key(names[count++], sizeof *names,
				    (char[]){bytes[i], bytes[j], bytes[k], 0});
		}
	}
	qsort(names, count, sizeof *names, compare);
	for (size_t i = 1; i < count; i++)
		assert_string_not_equal(names[i - 1], names[i]);
}

static void
what_does_not_fit_is_refused(void **state)
{
	char name[ENCODED_BYTES], key[513], small[8], back[4];

	(void)state;
	memset(key, '/', 512);
	key[512] = '\0';
	assert_int_equal(encode_key(name, sizeof name, key), 3 * 512);
	memset(small, 'X', sizeof small);
	assert_int_equal(encode_key(small, 6, "///"), 0);
	assert_memory_equal(small + 6, "XX", 2);
	assert_int_equal(encode_undo(back, sizeof back, "abc", 3), 3);
	assert_int_equal(encode_undo(back, sizeof back, "abcd", 4), -1);
}

static void
wrong_percents_are_refused(void **state)
{
	static const char *const rows[] = {
	    "%", "%2", "%zz", "%2g", "%g2", "a%", "%00", "a%00b", "%%", "%-1", "% 1"};
	char back[32];

	(void)state;
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
		if (encode_undo(back, sizeof back, rows[i], strlen(rows[i])) != -1)
			fail_msg("%s", rows[i]);
	assert_int_equal(encode_undo(back, sizeof back, "%2f%2F", 6), 2);
	assert_string_equal(back, "//");
	/* cut off in the middle */
	assert_int_equal(encode_undo(back, sizeof back, "%2f", 2), -1);
	assert_int_equal(encode_undo(back, sizeof back, "", 0), 0);
	assert_string_equal(back, "");
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(known_names),
	    cmocka_unit_test(random_keys_come_back),
	    cmocka_unit_test(no_two_keys_share_a_name),
	    cmocka_unit_test(what_does_not_fit_is_refused),
	    cmocka_unit_test(wrong_percents_are_refused),
	};

	return cmocka_run_group_tests_name("encode", tests, NULL, NULL);
}
