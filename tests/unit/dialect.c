/*
 * dialect.c - Goal of these tests: what is sent for each operation, word by
 * word, and what each kind of reply is taken for.
 */
#include "backends/redis/dialect.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define OWNER "0123456789abcdef0123456789abcdef"

static const struct claim claim = {.key = "a b", .owner = OWNER, .record = "{\"pid\":1}", .ttl = 30 * NS_PER_S};

/* A command is a RESP array: read as one, it gives its words back. */
static redisReply *
words_of(const struct request *r, bool whole)
{
	redisReader *reader = redisReaderCreate();
	struct names names;
	void *reply = NULL;
	char *command;
	int length;

	assert_non_null(reader);
	dialect_native.name(&names, &claim);
	length = dialect_native.write(&command, &names, &claim, r, whole);
	assert_true(length > 0);
	assert_int_equal(redisReaderFeed(reader, command, length), REDIS_OK);
	assert_int_equal(redisReaderGetReply(reader, &reply), REDIS_OK);
	assert_non_null(reply);
	redisFreeCommand(command);
	redisReaderFree(reader);
	return reply;
}

static void
assert_words(const struct request *r, const char *const *words, size_t n)
{
	redisReply *reply = words_of(r, false);

	assert_int_equal(reply->elements, 8 + 2 + n);
	assert_string_equal(reply->element[0]->str, "EVALSHA");
	assert_int_equal(reply->element[1]->len, 40);
	assert_string_equal(reply->element[2]->str, "5");
	assert_string_equal(reply->element[3]->str, "dlock:{a%20b}:h");
	assert_string_equal(reply->element[7]->str, "dlock:{a%20b}:w:");
	assert_string_equal(reply->element[9]->str, OWNER);
	for (size_t i = 0; i < n; i++)
		assert_string_equal(reply->element[10 + i]->str, words[i]);
	freeReplyObject(reply);
}

static void
each_operation_in_words(void **state)
{
	static const char *const fresh[] = {"30000", "0", "0", "1", "1", "{\"pid\":1}", "0"};
	static const char *const queued[] = {"30000", "9000", "1", "1", "1", "{\"pid\":1}", "9007199254740991"};
	static const char *const renewed[] = {"30000"};

	(void)state;
	assert_words(&(struct request){.operation = ACQUIRE}, fresh, 7);
	assert_words(&(struct request){.operation = ACQUIRE, .alive = 9 * NS_PER_S, .subscribed = true,
			 .ticket = TOKEN_LIMIT - 1}, queued, 7);
	assert_words(&(struct request){.operation = RENEW}, renewed, 1);
	assert_words(&(struct request){.operation = RELEASE}, NULL, 0);
}

static void
the_whole_script_differs_in_two_words(void **state)
{
	static const enum operation operations[] = {ACQUIRE, RENEW, RELEASE};

	(void)state;
	for (size_t i = 0; i < sizeof operations / sizeof *operations; i++) {
		struct request r = {.operation = operations[i]};
		redisReply *brief = words_of(&r, false), *whole = words_of(&r, true);

		assert_int_equal(whole->elements, brief->elements);
		assert_string_equal(whole->element[0]->str, "EVAL");
		assert_non_null(strstr(whole->element[1]->str, "return release()"));
		for (size_t w = 2; w < brief->elements; w++)
			assert_string_equal(whole->element[w]->str, brief->element[w]->str);
		freeReplyObject(brief);
		freeReplyObject(whole);
	}
}

static void
the_channel_is_the_last_key_and_the_owner(void **state)
{
	struct names names;

	(void)state;
	dialect_native.name(&names, &claim);
	assert_string_equal(names.channel, "dlock:{a%20b}:w:" OWNER);
}

static enum reading
reading_of(enum operation operation, int type, char *text)
{
	struct request r = {.operation = operation};
	redisReply reply = {.type = type, .str = text, .len = strlen(text)};
	struct answer a;

	return dialect_native.read(&a, &r, &reply);
}

static void
replies_are_told_apart(void **state)
{
	(void)state;
	for (int op = ACQUIRE; op <= RELEASE; op++) {
		assert_int_equal(reading_of(op, REDIS_REPLY_ERROR, "NOSCRIPT No matching script."), READ_UNKNOWN_SCRIPT);
		assert_int_equal(reading_of(op, REDIS_REPLY_ERROR, "ERR it says NOSCRIPT"), READ_ERROR);
		assert_int_equal(reading_of(op, REDIS_REPLY_ERROR, "READONLY You can't write"), READ_ERROR);
		assert_int_equal(reading_of(op, REDIS_REPLY_ERROR, "WRONGTYPE Operation against a key"), READ_FOREIGN);
		assert_int_equal(reading_of(op, REDIS_REPLY_STATUS, "OK"), READ_NONSENSE);
	}
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(each_operation_in_words),
	    cmocka_unit_test(the_whole_script_differs_in_two_words),
	    cmocka_unit_test(the_channel_is_the_last_key_and_the_owner),
	    cmocka_unit_test(replies_are_told_apart),
	};

	return cmocka_run_group_tests_name("dialect", tests, NULL, NULL);
}
