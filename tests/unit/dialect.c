/*
 * dialect.c - Goal of these tests: what is sent for each operation, word by
 * word, and what each kind of reply is taken for.
 */
#include "backends/redis/dialects.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define OWNER "0123456789abcdef0123456789abcdef"
#define RECORD "{\"pid\":1}"
#define HOUR (3600 * NS_PER_S)

static const struct claim plain = {
    .key = "a b", .owner = OWNER, .record = RECORD, .ttl = 30 * NS_PER_S};

/* A command is a RESP array: read as one, it gives its words back. */
static redisReply *
words_of(const struct claim *claim, const struct request *r, bool whole)
{
	redisReader *reader = redisReaderCreate();
	const struct manner manner = {.whole = whole};
	struct script_call call;
	struct names names;
	void *reply = NULL;
	char *command;

	assert_non_null(reader);
	memset(&names, 0x55, sizeof names);
	memset(&call, 0x55, sizeof call);
	dialect_name(&dialects[DIALECT_NATIVE], &names, FORM_SINGLE, claim);
	dialect_say(&dialects[DIALECT_NATIVE], &call, &names, claim, r);
	command = script_write(&call, &manner);
	assert_non_null(command);
	assert_int_equal(redisReaderFeed(reader, command, strlen(command)), REDIS_OK);
	assert_int_equal(redisReaderGetReply(reader, &reply), REDIS_OK);
	assert_non_null(reply);
	redisFreeCommand(command);
	redisReaderFree(reader);
	return reply;
}

/*
 * `more`: keys of a job; `words`: what follows operation and owner; both ended by NULL.
 */
static void
assert_words(const struct claim *claim, const struct request *r, const char *const *more,
    const char *const *words)
{
	redisReply *reply = words_of(claim, r, false);
	size_t n = 9;

	assert_string_equal(reply->element[0]->str, "EVALSHA");
	assert_int_equal(reply->element[1]->len, 40);
	assert_string_equal(reply->element[3]->str, "dlock:{a%20b}:h");
	assert_string_equal(reply->element[7]->str, "dlock:{a%20b}:w:");
	assert_string_equal(reply->element[8]->str, "dlock:{a%20b}:f");
	for (; *more; more++)
		assert_string_equal(reply->element[n++]->str, *more);
	assert_int_equal(atoi(reply->element[2]->str), n - 3);
	assert_string_equal(reply->element[n + 1]->str, OWNER);
	for (n += 2; *words; words++)
		assert_string_equal(reply->element[n++]->str, *words);
	assert_int_equal(reply->elements, n);
	freeReplyObject(reply);
}

#define LIST(...) ((const char *const[]){__VA_ARGS__ __VA_OPT__(, ) NULL})

static void
each_operation_in_words(void **state)
{
	const struct request queued = {.operation = ACQUIRE,
	    .alive = 9 * NS_PER_S,
	    .subscribed = true,
	    .ticket = TOKEN_LIMIT - 1};

	(void)state;
	assert_words(&plain, &(struct request){.operation = ACQUIRE}, LIST(),
	    LIST("30000", "0", "0", "x", RECORD, "0"));
	assert_words(&plain, &queued, LIST(),
	    LIST("30000", "9000", "1", "x", RECORD, "9007199254740991"));
	assert_words(
	    &plain, &(struct request){.operation = RENEW}, LIST(), LIST("30000"));
	assert_words(&plain,
	    &(struct request){.operation = RELEASE, .outcome = NO_OUTCOME}, LIST(),
	    LIST());
	assert_words(&plain, &(struct request){.operation = RELEASE}, LIST(), LIST());
}

static void
each_kind_in_words(void **state)
{
	static const struct {
		enum lock_kind kind;
		unsigned limit;
		const char *word;
	} rows[] = {{KIND_EXCLUSIVE, 0, "x"}, {KIND_WRITER, 0, "x"},
	    {KIND_SHARED, 0, "s"}, {KIND_LIMIT, 1, "l1"},
	    {KIND_LIMIT, LIMIT_MAX, "l100000"}};

	(void)state;
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		struct claim claim = plain;

		claim.kind = rows[i].kind;
		claim.limit = rows[i].limit;
		assert_words(&claim, &(struct request){.operation = ACQUIRE}, LIST(),
		    LIST("30000", "0", "0", rows[i].word, RECORD, "0"));
	}
}

/*
 * Its keys are declared where it is asked for and where it ends, and not with each
 * renewal.
 */
static void
a_job_in_words(void **state)
{
	static const struct request acquire = {.operation = ACQUIRE},
				    renew = {.operation = RENEW},
				    withdraw = {.operation = RELEASE,
					.outcome = NO_OUTCOME},
				    release = {.operation = RELEASE,
					.outcome = {7, false}},
				    final = {.operation = RELEASE, .outcome = {7, true}};
	struct claim claim = plain;

	(void)state;
	claim.job = (struct job){.once = "1 {x}"};
	assert_words(&claim, &acquire,
	    LIST("dlock:{a%20b}:r", "dlock:{a%20b}:r:1%20%7Bx%7D"),
	    LIST("30000", "0", "0", "x", RECORD, "0", "0", "0"));
	assert_words(&claim, &renew, LIST(), LIST("30000"));
	assert_words(&claim, &withdraw, LIST(), LIST());
	assert_words(&claim, &release,
	    LIST("dlock:{a%20b}:r", "dlock:{a%20b}:r:1%20%7Bx%7D"),
	    LIST("7", "1 {x}", "0"));
	assert_words(&claim, &final,
	    LIST("dlock:{a%20b}:r", "dlock:{a%20b}:r:1%20%7Bx%7D"),
	    LIST("7", "1 {x}", "0"));
	claim.job.no_retry = true;
	assert_words(&claim, &acquire,
	    LIST("dlock:{a%20b}:r", "dlock:{a%20b}:r:1%20%7Bx%7D"),
	    LIST("30000", "0", "0", "x", RECORD, "0", "0", "1"));
	assert_words(&claim, &release,
	    LIST("dlock:{a%20b}:r", "dlock:{a%20b}:r:1%20%7Bx%7D"),
	    LIST("7", "1 {x}", "0"));
	assert_words(&claim, &final,
	    LIST("dlock:{a%20b}:r", "dlock:{a%20b}:r:1%20%7Bx%7D"),
	    LIST("7", "1 {x}", "1"));
	claim.job = (struct job){.cooldown = HOUR};
	assert_words(&claim, &acquire, LIST("dlock:{a%20b}:r"),
	    LIST("30000", "0", "0", "x", RECORD, "0", "3600000", "0"));
	assert_words(&claim, &release, LIST("dlock:{a%20b}:r"), LIST("7", "", "0"));
	claim.job = (struct job){.remember = REMEMBER_IF_ABLE};
	assert_words(&claim, &acquire, LIST(), LIST("30000", "0", "0", "x", RECORD, "0"));
	assert_words(&claim, &final, LIST("dlock:{a%20b}:r"), LIST("7", "", "shown"));
	assert_words(&claim, &withdraw, LIST(), LIST());
	claim.job.remember = REMEMBER_SURELY;
	assert_words(&claim, &acquire, LIST("dlock:{a%20b}:r"),
	    LIST("30000", "0", "0", "x", RECORD, "0", "0", "0"));
}

static void
the_longest_names_fit(void **state)
{
	char key[KEY_BYTES + 1], id[ONCE_BYTES + 1];
	struct claim claim = {.key = key, .owner = OWNER, .job = {.once = id}};
	struct names names;

	(void)state;
	memset(key, '/', KEY_BYTES);
	memset(id, '/', ONCE_BYTES);
	key[KEY_BYTES] = id[ONCE_BYTES] = '\0';
	dialect_name(&dialects[DIALECT_NATIVE], &names, FORM_SINGLE, &claim);
	assert_int_equal(strlen(names.keys[6]), strlen("dlock:{}:r") + 3 * KEY_BYTES);
	assert_int_equal(
	    strlen(names.keys[7]), strlen(names.keys[6]) + 1 + 3 * ONCE_BYTES);
}

static void
the_whole_script_differs_in_two_words(void **state)
{
	static const enum operation operations[] = {ACQUIRE, RENEW, RELEASE};

	(void)state;
	for (size_t i = 0; i < sizeof operations / sizeof *operations; i++) {
		struct request r = {.operation = operations[i]};
		redisReply *brief = words_of(&plain, &r, false),
			   *whole = words_of(&plain, &r, true);

		assert_int_equal(whole->elements, brief->elements);
		assert_string_equal(whole->element[0]->str, "EVAL");
		assert_non_null(strstr(whole->element[1]->str, "return release("));
		for (size_t w = 2; w < brief->elements; w++)
			assert_string_equal(
			    whole->element[w]->str, brief->element[w]->str);
		freeReplyObject(brief);
		freeReplyObject(whole);
	}
}

static void
the_channel_is_its_key_and_the_owner(void **state)
{
	struct names names;

	(void)state;
	dialect_name(&dialects[DIALECT_NATIVE], &names, FORM_SINGLE, &plain);
	assert_string_equal(names.channel, "dlock:{a%20b}:w:" OWNER);
}

/* What a key is called beside the lock; and the channel. */
static void
names_of_other_dialects(void **state)
{
	static const struct {
		const char *dialect, *key, *side, *third, *fourth, *channel;
	} rows[] = {
	    {"string", "a b", "dlock:string:{a b}", NULL, NULL, ""},
	    {"string", "x{", "dlock:string:{x{}", NULL, NULL, ""},
	    {"string", "{}x", "dlock:string:{{}x}", NULL, NULL, ""},
	    {"string", "a{b}c", "dlock:string::a{b}c", NULL, NULL, ""},
	    {"symfony", "job", "dlock:symfony:{job}", NULL, NULL, ""},
	    {"redisson", "job", "dlock:redisson:{job}", "redisson_lock__channel:{job}",
		NULL, "redisson_lock__channel:{job}"},
	    {"redisson", "{a}b", "dlock:redisson::{a}b", "redisson_lock__channel:{a}b",
		NULL, "redisson_lock__channel:{a}b"},
	    {"redisson-fenced", "job", "dlock:redisson-fenced:{job}",
		"redisson_lock__channel:{job}", "redisson_lock_token:{job}",
		"redisson_lock__channel:{job}"},
	    {"redisson-rw", "job", "dlock:redisson-rw:{job}", "redisson_rwlock:{job}",
		"{job}:", "redisson_rwlock:{job}"},
	    {"redisson-semaphore", "{a}b", "dlock:redisson-semaphore::{a}b",
		"redisson_sc:{a}b", "{a}b:timeout", "redisson_sc:{a}b"},
	    {"redisson-fair", "job", "dlock:redisson-fair:{job}",
		"redisson_lock__channel:{job}", "redisson_lock_queue:{job}",
		"redisson_lock__channel:{job}:01234567-89ab-cdef-0123-456789abcdef:1"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		const struct dialect *d = dialect_named(rows[i].dialect);
		struct claim claim = {.key = rows[i].key, .owner = OWNER};
		struct names names;

		assert_non_null(d);
		dialect_name(d, &names, FORM_SINGLE, &claim);
		assert_string_equal(names.keys[0], rows[i].key);
		assert_string_equal(names.keys[1], rows[i].side);
		assert_string_equal(names.channel, rows[i].channel);
		if (rows[i].third)
			assert_string_equal(names.keys[2], rows[i].third);
		if (rows[i].fourth)
			assert_string_equal(names.keys[3], rows[i].fourth);
	}
	assert_null(dialect_named(""));
	assert_null(dialect_named("redis"));
}

static void
only_some_do_without_scripts(void **state)
{
	static const char
	    *const no[] = {"ERR unknown command 'EVALSHA', with args beginning "
			   "with: '1'",
		"ERR unknown command `evalsha`, with args",
		"NOPERM this user has no permissions to run the 'evalsha' command",
		"ERR This instance has Lua scripting support disabled",
		"ERR command eval not support for normal user",
		"ERR handle request, command 'EVALSHA' is not allowed"},
		   *const other[] = {"NOPERM this user has no permissions to "
				     "access one of the keys used as arguments",
		       "ERR unknown command 'FOO'", "OOM command not allowed",
		       "ERR bad lua script for redis cluster", "ERR no server avaliable",
		       "WRONGTYPE Operation against 'eval'"};

	(void)state;
	for (size_t i = 0; i < 6; i++) {
		assert_true(resp_is_no_scripts(no[i]));
		assert_false(resp_is_no_scripts(other[i]));
	}
	for (size_t i = 0; i < DIALECTS; i++)
		assert_int_equal(dialects[i].plain, i == DIALECT_STRING);
}

static void
replies_are_told_apart(void **state)
{
	redisReply status = {.type = REDIS_REPLY_STATUS, .str = "OK", .len = 2};
	struct answer a;

	(void)state;
	for (int op = ACQUIRE; op <= RELEASE; op++)
		assert_false(answer_read(&a, &status, op));
	assert_false(resp_says("ERR it says WRONGTYPE", "WRONGTYPE"));
	assert_false(resp_says("READONLY You can't write", "WRONGTYPE"));
	assert_true(resp_says("WRONGTYPE Operation against a key", "WRONGTYPE"));
}

/* By its hash, then as a whole, and once each; what writes nothing, on old servers as if it did. */
static void
a_script_is_sent_in_another_manner(void **state)
{
	redisReply noscript = {.type = REDIS_REPLY_ERROR,
		       .str = "NOSCRIPT No matching script."},
		   unknown = {.type = REDIS_REPLY_ERROR,
		       .str = "ERR unknown command 'EVALSHA_RO'"},
		   other = {.type = REDIS_REPLY_ERROR, .str = "ERR it says NOSCRIPT"},
		   answer = {.type = REDIS_REPLY_ARRAY};
	struct manner m = {.reads = true};

	(void)state;
	assert_false(script_change(&m, &other));
	assert_false(script_change(&m, &answer));
	assert_true(script_change(&m, &unknown));
	assert_false(m.reads);
	assert_false(script_change(&m, &unknown));
	assert_true(script_change(&m, &noscript));
	assert_true(m.whole);
	assert_false(script_change(&m, &noscript));
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(each_operation_in_words),
	    cmocka_unit_test(each_kind_in_words),
	    cmocka_unit_test(a_job_in_words),
	    cmocka_unit_test(the_longest_names_fit),
	    cmocka_unit_test(the_whole_script_differs_in_two_words),
	    cmocka_unit_test(the_channel_is_its_key_and_the_owner),
	    cmocka_unit_test(names_of_other_dialects),
	    cmocka_unit_test(only_some_do_without_scripts),
	    cmocka_unit_test(replies_are_told_apart),
	    cmocka_unit_test(a_script_is_sent_in_another_manner),
	};

	return cmocka_run_group_tests_name("dialect", tests, NULL, NULL);
}
