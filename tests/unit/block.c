/*
 * block.c - Goal of these tests: what a lock file says is read as it was written, and
 * nothing else is believed.
 */
#include "backends/file/block.h"
#include "backends/file/place.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static void
what_is_written_is_read(void **state)
{
	struct block h = {.next = 8,
			 .token = 1795232537955312,
			 .granted = 1795232537955311,
			 .freeze = FREEZE_FOREVER,
			 .byte = BYTE(READERS, NUMBER_LIMIT - 1),
			 .owner = "0123456789abcdef0123456789abcdef"},
		     back;
	char block[BLOCK_BYTES];

	(void)state;
	memset(h.record, 'x', sizeof h.record - 1);
	block_format(&h, block);
	assert_true(block_parse(&back, block, sizeof block));
	assert_memory_equal(&h, &back, sizeof h);
	assert_int_equal(block[sizeof block - 1], '\n');
}

static void
what_cannot_be_read_is_not_there(void **state)
{
	static const struct {
		const char *text;
		bool ours;
		int64_t next, token, granted;
		const char *record;
	} rows[] = {
	    {"", true, 1, 0, 0, ""},
	    {"dlock1 8 5 6\n{}\n\n", true, 8, 5, 6, "{}"},
	    {"dlock1 8 5 6\n{}", true, 8, 5, 6, "{}"},
	    {"dlock1 8 5 6", true, 8, 5, 6, ""},
	    {"dlock1 8 5", true, 8, 5, 0, ""},
	    {"dlock1 8\n5 6\n", true, 8, 0, 0, "5 6"},
	    {"dlock1 \n", true, 1, 0, 0, ""},
	    {"dlock1 0 5 6\n", true, 1, 5, 6, ""},
	    {"dlock1 8 -5 6\n", true, 8, 0, 6, ""},
	    {"dlock1 8 +5 6x\n", true, 8, 0, 0, ""},
	    {"dlock1  5 6\n", true, 1, 5, 6, ""},
	    {"dlock1 999999999999999999 999999999999999999 999999999999999999\n", true,
		NUMBER_LIMIT - 1, NUMBER_LIMIT - 1, NUMBER_LIMIT - 1, ""},
	    {"dlock1 1000000000000000000 9223372036854775807 18446744073709551617\n",
		true, 1, 0, 0, ""},
	    {"dlock1 8 5 6 7\n{}\n", true, 8, 5, 6, "{}"},
	    {"d", true, 1, 0, 0, ""},
	    {"dlock1", true, 1, 0, 0, ""},
	    {"dlock2 8 5 6\n{}\n", false, 1, 0, 0, ""},
	    {"dlock18 5 6\n{}\n", false, 1, 0, 0, ""},
	    {"1234\n", false, 1, 0, 0, ""},
	    {"\n", false, 1, 0, 0, ""},
	};

	(void)state;
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		struct block h;

		assert_int_equal(
		    block_parse(&h, rows[i].text, strlen(rows[i].text)), rows[i].ours);
		assert_int_equal(h.next, rows[i].next);
		assert_int_equal(h.token, rows[i].token);
		assert_int_equal(h.granted, rows[i].granted);
		assert_string_equal(h.record, rows[i].record);
	}
}

static void
whose_it_is_is_known_or_not(void **state)
{
	static const struct {
		const char *text;
		int64_t freeze, byte;
		bool owner;
	} rows[] = {
	    {"dlock1 8 5 6", 0, 0, false},
	    {"dlock1 8 5 6 1", 1, 0, false},
	    {"dlock1 8 5 6 1 0 7 0123456789abcdef0123456789abcdef", 1, 7, true},
	    {"dlock1 8 5 6 0 4 7 0123456789abcdef0123456789abcdef and more", 0,
		BYTE(READERS, 7), true},
	    {"dlock1 8 5 6 x 2 0 0123456789abcdef0123456789abcde", 0, BYTE(PERMITS, 0),
		false},
	    {"dlock1 8 5 6 0 2 0 0123456789abcdef0123456789abcdef0", 0, BYTE(PERMITS, 0),
		false},
	    {"dlock1 8 5 6 0 2 0 0123456789abcdef0123456789abcdeX", 0, BYTE(PERMITS, 0),
		false},
	    {"dlock1 8 5 6 0 5 7 -", 0, 0, false},
	    {"dlock1 8 5 6 0 -1 7 -", 0, 0, false},
	    {"dlock1 8 5 6 0 0 1000000000000000000 -", 0, 0, false},
	};

	(void)state;
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		struct block h;

		assert_true(block_parse(&h, rows[i].text, strlen(rows[i].text)));
		assert_int_equal(h.freeze, rows[i].freeze);
		assert_int_equal(h.byte, rows[i].byte);
		assert_int_equal(strlen(h.owner), rows[i].owner ? OWNER_CHARS : 0);
	}
}

static void
zeros_are_what_a_crash_leaves(void **state)
{
	char block[BLOCK_BYTES] = "";
	struct block h;

	(void)state;
	assert_true(block_parse(&h, block, sizeof block));
	assert_int_equal(h.next, 1);
	memcpy(block, "dlock", 5);
	assert_true(block_parse(&h, block, sizeof block));
	assert_int_equal(h.next, 1);
}

static void
a_record_too_long_is_cut(void **state)
{
	char text[3000];
	struct block h;

	(void)state;
	memset(text, 'x', sizeof text);
	memcpy(text, "dlock1 8 5 6\n", 13);
	assert_true(block_parse(&h, text, sizeof text));
	assert_int_equal(strlen(h.record), RECORD_BYTES - 1);
}

static void
ages_and_tokens_never_overflow(void **state)
{
	static const int64_t now = 1795232537955312;
	struct block h = {.granted = now - 5};

	(void)state;
	assert_int_equal(block_age(&h, now), 5000);
	h.granted = now + 1;
	assert_int_equal(block_age(&h, now), -1);
	h.granted = 0;
	assert_int_equal(block_age(&h, now), -1);
	h.granted = 1;
	assert_int_equal(block_age(&h, INT64_MAX), -1);
	h.granted = NUMBER_LIMIT - 1;
	assert_int_equal(block_age(&h, -1), -1);
	assert_int_equal(block_next_token(&h, now), now);
	h.token = now;
	assert_int_equal(block_next_token(&h, now), now + 1);
	h.token = NUMBER_LIMIT - 1;
	assert_int_equal(block_next_token(&h, now), NUMBER_LIMIT);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(what_is_written_is_read),
	    cmocka_unit_test(what_cannot_be_read_is_not_there),
	    cmocka_unit_test(whose_it_is_is_known_or_not),
	    cmocka_unit_test(zeros_are_what_a_crash_leaves),
	    cmocka_unit_test(a_record_too_long_is_cut),
	    cmocka_unit_test(ages_and_tokens_never_overflow),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
