/*
 * text.c - Goal of these tests: bytes from anywhere are understood rightly and shown
 * harmlessly.
 */
#include "cmd/text.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* An encoder of our own, without any rule about what may be encoded. */
static size_t
encode(uint32_t c, size_t length, char *out)
{
	static const unsigned char head[] = {0, 0, 0xc0, 0xe0, 0xf0};

	for (size_t i = length; i-- > 1; c >>= 6)
		out[i] = (char)(0x80 | (c & 0x3f));
	out[0] = (char)(head[length] | c);
	return length;
}

static size_t
shortest(uint32_t c)
{
	return c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
}

static void
every_code_point(void **state)
{
	(void)state;
	for (uint32_t c = 0; c < 0x200000; c++) {
		bool legal = c <= 0x10ffff && !(c >= 0xd800 && c <= 0xdfff);
		size_t length = shortest(c);
		uint32_t got = 0xdead;
		char s[4];

		encode(c, length, s);
		if (text_next(s, 4, &got) != (legal ? length : 0) ||
		    got != (legal ? c : 0xdead))
			fail_msg("U+%04X", c);
		for (size_t cut = 1; cut < length; cut++)
			if (text_next(s, cut, &got) != 0)
				fail_msg("U+%04X cut to %zu bytes", c, cut);
		for (size_t longer = length + 1; longer <= 4; longer++) {
			encode(c, longer, s);
			if (text_next(s, 4, &got) != 0)
				fail_msg("U+%04X in %zu bytes", c, longer);
		}
	}
}

/* Whatever the four bytes are: a length is given only to what encodes back to them. */
static void
every_beginning(void **state)
{
	(void)state;
	for (unsigned head = 0; head < 0x10000; head++)
		for (unsigned tail = 0; tail < 9; tail++) {
			static const char tails[] = "\x00\x7f\x80\xbf\xc0";
			char s[] = {(char)(head >> 8), (char)head,
			    tails[tail / 3 + tail % 2], tails[tail % 5]},
			     back[4];
			uint32_t c = 0;
			size_t n = text_next(s, 4, &c);

			if (n &&
			    (encode(c, n, back) != n || n != shortest(c) ||
				memcmp(s, back, n) != 0))
				fail_msg("%02x%02x%02x%02x", s[0] & 255, s[1] & 255,
				    s[2] & 255, s[3] & 255);
		}
}

static void
cleaned(const char *in, size_t n, const char *expected)
{
	char out[100];

	assert_ptr_equal(text_clean(out, sizeof out, in, n), out);
	assert_string_equal(out, expected);
}

static void
what_is_shown(void **state)
{
	(void)state;
	cleaned("", 0, "");
	cleaned("plain \"text\" \\ %s", 17, "plain \"text\" \\ %s");
	cleaned("\xc3\xbc\xf0\x9f\x94\x92", 6, "\xc3\xbc\xf0\x9f\x94\x92");
	cleaned("\x1b[2J\r\n\t\a\x7f", 9, "\\x1B[2J\\x0D\\x0A\\x09\\x07\\x7F");
	cleaned("a\0b", 3, "a\\x00b");
	cleaned("\xc2\x9b", 2, "\\x9B");
	cleaned("\xff\xc3", 2, "\\xFF\\xC3");
	cleaned("\xc0\xaf", 2, "\\xC0\\xAF");
	cleaned("\xe2\x80\xae"
		"evil",
	    7, "\\u202Eevil");
	cleaned("\xe2\x80\x8b\xc2\xad\xef\xbb\xbf", 8, "\\u200B\\u00AD\\uFEFF");
	cleaned("\xf3\xa0\x81\x81", 4, "\\uE0041");
	/* letters without a shape */
	cleaned("\xe3\x85\xa4\xef\xbe\xa0\xe1\x85\x9f", 9, "\\u3164\\uFFA0\\u115F");
	cleaned("\xef\xb8\x81\xf3\xa0\x84\x80", 7, "\\uFE01\\uE0100");
	cleaned("\xe2\x9d\xa4\xef\xb8\x8f", 6, "\xe2\x9d\xa4\xef\xb8\x8f"); /* an emoji */
}

/* Printing it is harmless: whole characters, none that controls, hides or reorders. */
static void
assert_harmless(const char *s)
{
	static const struct {
		uint32_t from, to;
	} harmful[] = {{0, 0x1f}, {0x7f, 0x9f}, {0xad, 0xad}, {0x61c, 0x61c},
	    {0x200b, 0x200f}, {0x2028, 0x202e}, {0x2060, 0x206f}, {0xfeff, 0xfeff},
	    {0xd800, 0xdfff}, {0x3164, 0x3164}, {0xffa0, 0xffa0}, {0xfe00, 0xfe0e},
	    {0xe0000, 0xe0fff}};
	size_t n = strlen(s);

	for (size_t i = 0; i < n;) {
		uint32_t c = 0;
		size_t len = text_next(s + i, n - i, &c);

		assert_int_not_equal(len, 0);
		for (size_t h = 0; h < sizeof harmful / sizeof *harmful; h++)
			assert_false(c >= harmful[h].from && c <= harmful[h].to);
		i += len;
	}
}

static void
anything_is_made_harmless_and_fits(void **state)
{
	(void)state;
	srand(2);
	for (int round = 0; round < 100000; round++) {
		char in[64], out[64 * 8 + 4];
		size_t n = rand() % sizeof in, size = 4 + rand() % (sizeof out - 4);

		for (size_t i = 0; i < n; i++)
			in[i] = (char)(rand() % 3
				? rand()
				: "\xe2\x80\xae\xc2\x9b\xf3\xa0"[rand() % 7]);
		memset(out, 'X', sizeof out);
		text_clean(out, size, in, n);
		assert_in_range(strlen(out), 0, size - 1);
		for (size_t i = size; i < sizeof out; i++)
			assert_int_equal(out[i], 'X');
		assert_harmless(out);
	}
}

static void
what_does_not_fit_ends_in_dots(void **state)
{
	char out[8];

	(void)state;
	text_clean(out, sizeof out, "1234567890", 10);
	assert_string_equal(out, "1234...");
	text_clean(out, sizeof out, "\x1b\x1b", 2);
	assert_string_equal(out, "\\x1B...");
	text_clean(out, sizeof out, "1234", 4);
	assert_string_equal(out, "1234");
	text_clean(out, 4, "12345", 5);
	assert_string_equal(out, "...");
}

static void
named(const char *in, const char *expected)
{
	char out[40];

	assert_ptr_equal(text_name(out, sizeof out, in), out);
	assert_string_equal(out, expected);
}

static void
names_with_blanks_are_quoted(void **state)
{
	char out[8];

	(void)state;
	named("deploy/prod", "deploy/prod");
	named("", "");
	named("it's", "it's");
	named("a b", "'a b'");
	named(" ", "' '");
	named("a\xc2\xa0"
	      "b",
	    "'a\xc2\xa0"
	    "b'");
	named("a\tb c", "'a\\x09b c'");
	named("k' is held by 'root", "'k\\' is held by \\'root'");
	named("k\\' is held by 'root", "'k\\\\\\' is held by \\'root'");
	named("x\\y", "'x\\\\y'");
	named("\\x09", "'\\\\x09'");
	named("\t", "\\x09");
	named("'q'", "'\\'q\\''");
	named("1234567890 1234567890 1234567890 1234567890",
	    "'1234567890 1234567890 1234567890 1...'");
	text_name(out, sizeof out, "1 34567890");
	assert_string_equal(out, "'1 ...'");
}

/*
 * What a terminal of another author would need at most: two columns for each character
 * beyond Latin.
 */
static size_t
width(const char *s)
{
	size_t n = 0;

	for (; *s; s++)
		if (((unsigned char)*s & 0xc0) != 0x80)
			n += (unsigned char)*s >= 0xe1 ? 2 : 1;
	return n;
}

static void
fitted(const char *in, size_t columns, const char *expected)
{
	char text[100];

	snprintf(text, sizeof text, "%s", in);
	assert_ptr_equal(text_fit(text, columns), text);
	assert_string_equal(text, expected);
	assert_in_range(width(text), 0, columns);
}

static void
lines_fit_their_columns(void **state)
{
	(void)state;
	fitted("", 0, "");
	fitted("x", 0, "");
	fitted("1234", 4, "1234");
	fitted("12345", 4, "1...");
	fitted("12345", 3, "...");
	fitted("12345", 1, ".");
	fitted("\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9", 4, "\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9");
	fitted("\xe7\x95\x8c\xe7\x95\x8c\xe7\x95\x8c", 6,
	    "\xe7\x95\x8c\xe7\x95\x8c\xe7\x95\x8c");
	fitted("\xe7\x95\x8c\xe7\x95\x8c\xe7\x95\x8c", 5, "\xe7\x95\x8c...");
	fitted("\xe7\x95\x8c\xe7\x95\x8c\xe7\x95\x8c", 4, "...");
	fitted("e\xcc\x81"
	       "e\xcc\x81",
	    4,
	    "e\xcc\x81"
	    "e\xcc\x81");
	for (size_t columns = 0; columns < 48; columns++)
		for (int round = 0; round < 200; round++) {
			char text[80];
			size_t n = 0;

			while (n < sizeof text - 5)
				n += rand() % 2
				    ? encode('a' + rand() % 26, 1, text + n)
				    : encode(0x4e00 + rand() % 100, 3, text + n);
			text[n] = '\0';
			text_fit(text, columns);
			assert_in_range(strlen(text), 0, n);
			assert_in_range(
			    width(text), columns < 4 ? columns : columns - 1, columns);
		}
}

/* Wherever the cut falls; bytes that are no UTF-8 are cut anywhere. */
static void
a_beginning_has_whole_characters(void **state)
{
	static const char *const characters[] = {
	    "a", "\xc3\xa9", "\xe2\x82\xac", "\xf0\x9f\x94\x92"};
	char text[400];

	(void)state;
	for (size_t c = 0; c < 4; c++)
		for (size_t before = 0; before < 4; before++) {
			snprintf(text, sizeof text, "%.*s", (int)before, "xxxx");
			while (strlen(text) < 100)
				strcat(text, characters[c]);
			assert_null(text_objection(text_brief(text).text, 63));
			assert_in_range(strlen(text_brief(text).text), 60, 63);
			assert_int_equal(text_whole(text, strlen(text)), strlen(text));
		}
	memset(text, 0xbf, 100);
	text[100] = '\0';
	assert_int_equal(text_whole(text, 50), 50);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(every_code_point),
	    cmocka_unit_test(every_beginning),
	    cmocka_unit_test(what_is_shown),
	    cmocka_unit_test(anything_is_made_harmless_and_fits),
	    cmocka_unit_test(what_does_not_fit_ends_in_dots),
	    cmocka_unit_test(names_with_blanks_are_quoted),
	    cmocka_unit_test(lines_fit_their_columns),
	    cmocka_unit_test(a_beginning_has_whole_characters),
	};

	return cmocka_run_group_tests_name("text", tests, NULL, NULL);
}
