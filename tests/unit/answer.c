/*
 * answer.c - Goal of these tests: whatever number stands in an answer, what
 * is computed with it fits; and what a server's settings mean is said rightly.
 */
#include "backends/redis/answer.h"
#include "backends/redis/health.h"
#include "backends/redis/resp.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* ---- answers ---- */

static bool
read_text(struct answer *a, const char *text, bool acquiring)
{
	redisReader *reader = redisReaderCreate();
	void *reply = NULL;
	bool good;

	assert_non_null(reader);
	assert_int_equal(redisReaderFeed(reader, text, strlen(text)), REDIS_OK);
	assert_int_equal(redisReaderGetReply(reader, &reply), REDIS_OK);
	assert_non_null(reply);
	memset(a, 0x55, sizeof *a);
	good = answer_read(a, reply, acquiring);
	freeReplyObject(reply);
	redisReaderFree(reader);
	return good;
}

static const long long odd[] = {INT64_MIN, INT64_MIN + 1, -1000000000000, -2, -1, 0, 1, 2,
    1000, INT32_MAX, 4294967296LL, 9007199254740991LL, 9007199254740992LL,
    9223372036854LL, 9223372036855LL, 999999999999999999LL, INT64_MAX - 5, INT64_MAX};

/* What the backend computes with an answer, under the sanitizer. */
static void
compute(const struct answer *a)
{
	int64_t beat = instant_now() + (a->left_ms + 5) * NS_PER_MS,
		held = a->held_ms * NS_PER_MS;

	assert_true(a->place >= 1 && (int)a->place > 0);
	assert_true(a->left_ms >= 0 && beat > 0);
	assert_true(a->held_ms >= -1 && held >= -NS_PER_MS);
	assert_true(a->ticket < TOKEN_LIMIT);
}

static void
odd_numbers_are_refused_or_cut(void **state)
{
	enum { N = sizeof odd / sizeof *odd };
	struct answer a;
	char text[300];
	unsigned good = 0;

	(void)state;
	for (unsigned i = 0; i < N * N * N * N; i++) {
		long long place = odd[i % N], left = odd[i / N % N],
			  held = odd[i / N / N % N], ticket = odd[i / N / N / N];

		snprintf(text, sizeof text,
		    "*6\r\n:0\r\n:%lld\r\n:%lld\r\n:%lld\r\n$2\r\n{}\r\n:%lld\r\n", place,
		    left, held, ticket);
		if (read_text(&a, text, true) !=
		    (place >= 1 && left >= 0 && held >= -1 && ticket >= 0))
			fail_msg("%lld %lld %lld %lld", place, left, held, ticket);
		if (place < 1 || left < 0 || held < -1 || ticket < 0)
			continue;
		compute(&a);
		good++;
	}
	assert_true(good > 10000);
}

static void
codes(void **state)
{
	static const struct {
		const char *text;
		bool acquiring, good;
	} rows[] = {
	    {"*1\r\n:0\r\n", false, true},
	    {"*1\r\n:1\r\n", false, true},
	    {"*1\r\n:2\r\n", false, true},
	    {"*1\r\n:3\r\n", false, false},
	    {"*1\r\n:-1\r\n", false, false},
	    {"*1\r\n:4294967297\r\n", false, false},
	    {"*1\r\n$1\r\n1\r\n", false, false},
	    {"*0\r\n", false, false},
	    {":1\r\n", false, false},
	    {"*2\r\n:-1\r\n$1\r\n5\r\n", true, true},
	    {"*2\r\n:-2\r\n$1\r\n5\r\n", true, false},
	    {"*2\r\n:2\r\n$1\r\n5\r\n", true, false},
	    {"*2\r\n:1\r\n$1\r\n5\r\n", true, true},
	    {"*2\r\n:4294967297\r\n$1\r\n5\r\n", true, false},
	    {"*2\r\n:1\r\n$16\r\n9007199254740991\r\n", true, true},
	    {"*2\r\n:1\r\n$16\r\n9007199254740992\r\n", true, false},
	    {"*2\r\n:1\r\n$19\r\n9999999999999999999\r\n", true, false},
	    {"*2\r\n:1\r\n$20\r\n18446744073709551617\r\n", true, false},
	    {"*2\r\n:1\r\n:5\r\n", true, false},
	    {"*1\r\n:1\r\n", true, false},
	};

	(void)state;
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		struct answer a;

		if (read_text(&a, rows[i].text, rows[i].acquiring) != rows[i].good)
			fail_msg("row %zu", i);
	}
}

static void
only_a_key_of_another_type_is_foreign(void **state)
{
	(void)state;
	assert_true(resp_is_foreign(
	    "WRONGTYPE Operation against a key holding the wrong kind of value"));
	assert_true(resp_is_foreign(
	    "ERR Error running script (call to f_0): @user_script:1: WRONGTYPE Operation"));
	assert_false(resp_is_foreign("NOPERM this user has no permissions"));
	assert_false(resp_is_foreign(""));
}

/* ---- settings ---- */

#define AOF(enabled, written) \
	"# Persistence\r\naof_enabled:" enabled "\r\naof_last_write_status:" written \
	"\r\n"
#define RDB(saved) \
	"loading:0\r\nrdb_last_bgsave_status:" saved \
	"\r\naof_enabled:0\r\naof_last_write_status:ok\r\n"
#define MEMORY(most, policy) \
	"# Memory\r\nused_memory:1\r\nmaxmemory:" most \
	"\r\nmaxmemory_human:x\r\nmaxmemory_policy:" policy "\r\n"

static void
settings_that_endanger_locks(void **state)
{
	static const struct {
		struct health health;
		const char *words[2]; /* none: no risk */
	} rows[] = {
	    {{NULL, NULL, NULL}, {NULL}},
	    {{"", "", ""}, {NULL}},
	    {{MEMORY("0", "allkeys-lru"), AOF("1", "ok"), ""}, {NULL}},
	    {{MEMORY("1", "noeviction"), AOF("1", "ok"), ""}, {NULL}},
	    {{MEMORY("1", "volatile-ttl"), AOF("1", "ok"), ""}, {"volatile-ttl"}},
	    {{MEMORY("99999999999999999999999", "allkeys-lru"), NULL, NULL},
		{"allkeys-lru"}},
	    {{MEMORY("1", "\x1b[2J"), NULL, NULL}, {"not noeviction"}},
	    {{MEMORY("1", "a-policy-with-a-name-of-more-than-thirty-letters"), NULL,
		 NULL},
		{NULL}},
	    {{NULL, AOF("1", "err"), "3600 1"}, {"append-only"}},
	    {{NULL, AOF("0", "ok"), ""}, {"neither appendonly nor save"}},
	    {{NULL, AOF("0", "ok"), "3600 1"}, {NULL}},
	    {{NULL, AOF("0", "ok"), NULL}, {NULL}},
	    {{NULL, RDB("err"), "3600 1"}, {"cannot save"}},
	    {{NULL, RDB("err"), NULL}, {"cannot save"}},
	    {{NULL, RDB("ok"), NULL}, {NULL}},
	    {{NULL, "xaof_enabled:0\r\naof_enabledx:0\r\n", ""}, {NULL}},
	    {{MEMORY("1", "allkeys-lfu"), RDB("ok"), ""}, {"allkeys-lfu", "neither"}},
	};

	(void)state;
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		char text[HEALTH_BYTES];
		bool risky = health_risks(&rows[i].health, text, sizeof text);

		if (risky != (rows[i].words[0] != NULL))
			fail_msg("row %zu: %s", i, text);
		for (int w = 0; w < 2 && rows[i].words[w]; w++)
			assert_non_null(strstr(text, rows[i].words[w]));
	}
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(odd_numbers_are_refused_or_cut),
	    cmocka_unit_test(codes),
	    cmocka_unit_test(only_a_key_of_another_type_is_foreign),
	    cmocka_unit_test(settings_that_endanger_locks),
	};

	return cmocka_run_group_tests_name("answer", tests, NULL, NULL);
}
