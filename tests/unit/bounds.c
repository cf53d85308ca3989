/*
 * bounds.c - Goal of these tests: libpq reads what a server says as it was said, and no message or
 * answer that is longer than any of dlock's, however the bytes come.
 */
#include "backends/pg/bounds.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

static int pair[2];
static struct bounds bounds;

static int
setup(void **state)
{
	(void)state;
	bounds = (struct bounds){.read = 0};
	return socketpair(AF_UNIX, SOCK_STREAM, 0, pair);
}

static int
teardown(void **state)
{
	(void)state;
	bounds_watch(&bounds, -1, false);
	close(pair[0]);
	close(pair[1]);
	return 0;
}

/* The server says this; what libpq hears of it, or 0: that it has gone. */
static ssize_t
hear(const void *text, size_t n)
{
	char got[4096];
	ssize_t heard;

	assert_int_equal(write(pair[0], text, n), n);
	heard = recv(pair[1], got, sizeof got, 0);
	if (heard > 0)
		assert_memory_equal(got, text, heard);
	return heard;
}

static const char message[] = {'D', 0, 0, 0, 7, 'a', 'b', 'c'},
		  empty[] = {'I', 0, 0, 0, 4},
		  huge[] = {'D', 0x7f, '\xff', '\xff', '\xff'};

static void
messages_are_heard_byte_by_byte_too(void **state)
{
	(void)state;
	bounds_watch(&bounds, pair[1], false);
	for (size_t i = 0; i < sizeof message; i++)
		assert_int_equal(hear(message + i, 1), 1);
	assert_int_equal(hear(message, sizeof message), sizeof message);
	assert_int_equal(hear(empty, sizeof empty), sizeof empty);
	assert_int_equal(hear(message, sizeof message), sizeof message);
	assert_false(bounds.endless);
}

static void
a_huge_message_is_the_end(void **state)
{
	(void)state;
	bounds_watch(&bounds, pair[1], false);
	assert_int_equal(hear(message, sizeof message), sizeof message);
	assert_int_equal(hear(huge, 4), 4);
	assert_int_equal(hear(huge + 4, 1), 0);
	assert_true(bounds.endless);
	assert_int_equal(hear(message, sizeof message), 0);
}

static void
messages_without_an_end_are_the_end(void **state)
{
	char many[4000];
	size_t come = 0;

	(void)state;
	for (size_t i = 0; i < sizeof many; i += sizeof message)
		memcpy(many + i, message, sizeof message);
	bounds_watch(&bounds, pair[1], false);
	while (hear(many, sizeof many) > 0)
		come += sizeof many;
	assert_true(come > BOUNDS_MOST - 2 * sizeof many && come <= BOUNDS_MOST);
}

static void
each_question_has_an_answer_of_its_own(void **state)
{
	char many[4000] = "";

	(void)state;
	many[0] = 'D';
	many[3] = (sizeof many - 1) >> 8;
	many[4] = (char)((sizeof many - 1) & 0xff);
	bounds_watch(&bounds, pair[1], false);
	for (size_t come = 0; come < 3 * (size_t)BOUNDS_MOST; come += sizeof many) {
		if (come % (BOUNDS_MOST / 2) < sizeof many)
			bounds.read = 0;
		assert_int_equal(hear(many, sizeof many), sizeof many);
	}
}

static const char tls_request[] = {0, 0, 0, 8, 4, '\xd2', 0x16, 0x2f},
		  login[] = {0, 0, 0, 8, 0, 3, 0, 0};

/* Refused, and messages follow in the clear: libpq says so by beginning anew. */
static void
the_answer_to_a_request_for_encryption_is_a_letter(void **state)
{
	(void)state;
	bounds_watch(&bounds, pair[1], true);
	assert_int_equal(send(pair[1], tls_request, sizeof tls_request, 0), 8);
	assert_int_equal(hear("N", 1), 1);
	assert_int_equal(send(pair[1], login, sizeof login, 0), 8);
	assert_int_equal(hear(message, sizeof message), sizeof message);
	assert_int_equal(hear(huge, sizeof huge), 0);
}

static void
what_is_encrypted_is_only_counted(void **state)
{
	(void)state;
	bounds_watch(&bounds, pair[1], true);
	assert_int_equal(send(pair[1], tls_request, sizeof tls_request, 0), 8);
	assert_int_equal(hear("S", 1), 1);
	for (size_t come = 1; come + sizeof huge <= BOUNDS_MOST; come += sizeof huge)
		assert_int_equal(hear(huge, sizeof huge), sizeof huge);
	assert_int_equal(hear(huge, sizeof huge), 0);
}

static void
who_begins_otherwise_is_no_postgresql(void **state)
{
	(void)state;
	bounds_watch(&bounds, pair[1], true);
	assert_int_equal(send(pair[1], login, sizeof login, 0), 8);
	assert_int_equal(hear("R\0\0\0\4H", 6), 6);
	assert_false(bounds.foreign);
	assert_int_equal(send(pair[1], login, sizeof login, 0), 8);
	assert_int_equal(hear("H", 1), 1);
	assert_true(bounds.foreign);
}

/* It is not told by messages, which cannot be seen, nor by an old server's error. */
static void
whether_it_is_one_is_told_by_the_letter_before_encryption(void **state)
{
	static const struct {
		const char *answer;
		bool foreign;
	} rows[] = {{"S", false}, {"G", false}, {"N", false}, {"E\0\0\0", false},
	    {"H", true}, {"NN", true}};

	(void)state;
	bounds_watch(&bounds, pair[1], true);
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		bounds.foreign = false;
		assert_int_equal(send(pair[1], tls_request, sizeof tls_request, 0), 8);
		hear(rows[i].answer, strlen(rows[i].answer));
		if (i < 2)
			hear("\x17\x03", 2);
		assert_int_equal(bounds.foreign, rows[i].foreign);
	}
}

static void
another_connection_begins_anew(void **state)
{
	(void)state;
	bounds_watch(&bounds, pair[1], true);
	assert_int_equal(hear(huge, sizeof huge), 0);
	assert_int_equal(send(pair[1], login, sizeof login, 0), 8);
	assert_false(bounds.endless);
	assert_int_equal(hear(message, sizeof message), sizeof message);
}

static void
a_look_counts_nothing(void **state)
{
	char got[8];

	(void)state;
	bounds_watch(&bounds, pair[1], false);
	assert_int_equal(write(pair[0], message, sizeof message), sizeof message);
	assert_int_equal(recv(pair[1], got, 2, MSG_PEEK), 2);
	assert_int_equal(recv(pair[1], got, sizeof got, 0), sizeof message);
	assert_int_equal(bounds.read, sizeof message);
}

int
main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
	const struct CMUnitTest tests[] = {
	    TEST(messages_are_heard_byte_by_byte_too),
	    TEST(a_huge_message_is_the_end),
	    TEST(messages_without_an_end_are_the_end),
	    TEST(each_question_has_an_answer_of_its_own),
	    TEST(the_answer_to_a_request_for_encryption_is_a_letter),
	    TEST(what_is_encrypted_is_only_counted),
	    TEST(who_begins_otherwise_is_no_postgresql),
	    TEST(whether_it_is_one_is_told_by_the_letter_before_encryption),
	    TEST(another_connection_begins_anew),
	    TEST(a_look_counts_nothing),
	};

	return cmocka_run_group_tests_name("bounds", tests, NULL, NULL);
}
