/*
 * answer.c - Goal of these tests: whatever number stands in an answer, what
 * is computed with it fits; and what a server's settings mean is said rightly.
 */
#include "backends/redis/script.h"
#include "backends/redis/server.h"
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
read_text(struct answer *a, const char *text, enum operation op)
{
	redisReader *reader = redisReaderCreate();
	void *reply = NULL;
	bool good;

	assert_non_null(reader);
	assert_int_equal(redisReaderFeed(reader, text, strlen(text)), REDIS_OK);
	assert_int_equal(redisReaderGetReply(reader, &reply), REDIS_OK);
	assert_non_null(reply);
	memset(a, 0x55, sizeof *a);
	good = answer_read(a, reply, op);
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
		held = a->holding.held;

	assert_true((int)a->place >= 0);
	assert_true(a->left_ms >= 0 && beat > 0);
	assert_true(held >= -1);
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
		    "*8\r\n:0\r\n:%lld\r\n:%lld\r\n:%lld\r\n$2\r\n{}\r\n:%lld\r\n$1\r\ns\r\n:2\r\n",
		    place, left, held, ticket);
		if (read_text(&a, text, ACQUIRE) !=
		    (place >= 0 && left >= 0 && held >= -1 && ticket >= 0))
			fail_msg("%lld %lld %lld %lld", place, left, held, ticket);
		if (place < 0 || left < 0 || held < -1 || ticket < 0)
			continue;
		compute(&a);
		good++;
	}
	assert_true(good > 10000);
}

/* Every row is right as an answer to the operations named, and to no other. */
static void
codes(void **state)
{
	enum { A = 1 << ACQUIRE, N = 1 << RENEW, E = 1 << RELEASE };
	static const struct {
		const char *text;
		unsigned good;
	} rows[] = {
	    {"*1\r\n:0\r\n", N | E},
	    {"*1\r\n:1\r\n", E},
	    {"*1\r\n:2\r\n", E},
	    {"*1\r\n:3\r\n", E},
	    {"*1\r\n:4\r\n", 0},
	    {"*1\r\n:5\r\n", 0},
	    {"*1\r\n:6\r\n", 0},
	    {"*1\r\n:-1\r\n", 0},
	    {"*1\r\n:4294967297\r\n", 0},
	    {"*1\r\n$1\r\n1\r\n", 0},
	    {"*0\r\n", 0},
	    {":1\r\n", 0},
	    {"*2\r\n:-1\r\n$1\r\ns\r\n", A},
	    {"*2\r\n:-1\r\n$2\r\nl1\r\n", A},
	    {"*2\r\n:-1\r\n$1\r\nx\r\n", 0},
	    {"*2\r\n:-1\r\n$1\r\n5\r\n", 0},
	    {"*2\r\n:-2\r\n$1\r\ns\r\n", 0},
	    {"*3\r\n:1\r\n$1\r\n5\r\n:0\r\n", A | N | E},
	    {"*3\r\n:1\r\n$1\r\n5\r\n:99999\r\n", A | N | E},
	    {"*3\r\n:1\r\n$1\r\n5\r\n:100000\r\n", E},
	    {"*3\r\n:1\r\n$1\r\n5\r\n:4294967296\r\n", E},
	    {"*3\r\n:1\r\n$1\r\n5\r\n:-1\r\n", E},
	    {"*3\r\n:1\r\n$1\r\n5\r\n$1\r\n0\r\n", E},
	    {"*3\r\n:4294967297\r\n$1\r\n5\r\n:0\r\n", 0},
	    {"*3\r\n:1\r\n$16\r\n9007199254740991\r\n:0\r\n", A | N | E},
	    {"*3\r\n:1\r\n$16\r\n9007199254740992\r\n:0\r\n", E},
	    {"*3\r\n:1\r\n$19\r\n9999999999999999999\r\n:0\r\n", E},
	    {"*3\r\n:1\r\n$20\r\n18446744073709551617\r\n:0\r\n", E},
	    {"*3\r\n:1\r\n:5\r\n:0\r\n", E},
	    {"*2\r\n:1\r\n$1\r\n5\r\n", E},
	    {"*4\r\n:4\r\n:0\r\n$0\r\n\r\n:0\r\n", A},
	    {"*4\r\n:4\r\n:253402300799000\r\n$1\r\na\r\n:255\r\n", A},
	    {"*4\r\n:4\r\n:253402300799001\r\n$1\r\na\r\n:0\r\n", A},
	    {"*4\r\n:4\r\n:-1\r\n$1\r\na\r\n:0\r\n", A},
	    {"*4\r\n:4\r\n$1\r\n1\r\n$1\r\na\r\n:0\r\n", 0},
	    {"*4\r\n:4\r\n:0\r\n:0\r\n:0\r\n", 0},
	    {"*4\r\n:4\r\n:0\r\n$1\r\na\r\n:256\r\n", 0},
	    {"*4\r\n:4\r\n:0\r\n$1\r\na\r\n:-1\r\n", 0},
	    {"*3\r\n:4\r\n:0\r\n$1\r\na\r\n", 0},
	    {"*2\r\n:5\r\n:0\r\n", A},
	    {"*2\r\n:5\r\n:9223372036854775807\r\n", A},
	    {"*2\r\n:5\r\n:-1\r\n", 0},
	    {"*4\r\n:6\r\n$1\r\n5\r\n:0\r\n$1\r\nm\r\n", N},
	    {"*4\r\n:6\r\n$1\r\n0\r\n:0\r\n$1\r\nm\r\n", 0},
	    {"*4\r\n:6\r\n$1\r\n5\r\n:0\r\n:1\r\n", 0},
	    {"*2\r\n:0\r\n$1\r\nm\r\n", N | E},
	    {"*2\r\n:0\r\n:1\r\n", 0},
	    {"*2\r\n:5\r\n$1\r\n1\r\n", 0},
	};

	(void)state;
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
		for (int op = ACQUIRE; op <= RELEASE; op++) {
			struct answer a;

			if (read_text(&a, rows[i].text, op) !=
			    ((rows[i].good >> op & 1) != 0))
				fail_msg("row %zu, operation %d", i, op);
		}
}

/* It is others' text: cut to size, at a NUL, and never left over from another answer. */
static void
marks(void **state)
{
	static char text[3 * RECORD_BYTES], mark[2 * RECORD_BYTES];
	struct answer a;

	(void)state;
	for (size_t n = 0; n < sizeof mark - 1; n += 100) {
		memset(mark, 'm', n);
		mark[n] = '\0';
		snprintf(text, sizeof text, "*2\r\n:0\r\n$%zu\r\n%s\r\n", n, mark);
		assert_true(read_text(&a, text, RENEW));
		assert_int_equal(
		    strlen(a.who), n < RECORD_BYTES - 1 ? n : RECORD_BYTES - 1);
	}
	for (int op = RENEW; op <= RELEASE; op++) {
		assert_true(read_text(&a, "*2\r\n:0\r\n$3\r\nbob\r\n", op));
		assert_string_equal(a.who, "bob");
		assert_true(read_text(&a, "*1\r\n:0\r\n", op));
		assert_string_equal(a.who, "");
	}
	assert_true(read_text(&a, "*4\r\n:6\r\n$1\r\n5\r\n:7\r\n$3\r\nbob\r\n", RENEW));
	assert_int_equal(a.code, ANSWER_REVOKED);
	assert_int_equal(a.token, 5);
	assert_int_equal(a.slot, 7);
	assert_string_equal(a.who, "bob");
}

static void
a_freeze_is_a_member_more(void **state)
{
	static const char *const rows[] = {
	    "*8\r\n:0\r\n:1\r\n:0\r\n:0\r\n$0\r\n\r\n:1\r\n$1\r\nx\r\n:0\r\n",
	    "*9\r\n:0\r\n:1\r\n:0\r\n:0\r\n$0\r\n\r\n:1\r\n$1\r\nx\r\n:0\r\n:1\r\n"};

	(void)state;
	for (int frozen = 0; frozen < 2; frozen++) {
		struct answer a;

		assert_true(read_text(&a, rows[frozen], ACQUIRE));
		assert_int_equal(a.holding.frozen, frozen);
		assert_int_equal(a.holding.holders, 0);
	}
}

static void
kinds(void **state)
{
	static const struct {
		const char *text;
		bool good;
		enum lock_kind kind;
		unsigned limit;
	} rows[] = {{"x", true, KIND_EXCLUSIVE, 0}, {"s", true, KIND_SHARED, 0},
	    {"l1", true, KIND_LIMIT, 1}, {"l100000", true, KIND_LIMIT, LIMIT_MAX},
	    {"l100001", false, 0, 0}, {"l0", false, 0, 0}, {"l", false, 0, 0},
	    {"l01", false, 0, 0}, {"l1x", false, 0, 0}, {"l-1", false, 0, 0},
	    {"l 1", false, 0, 0}, {"l4294967297", false, 0, 0}, {"", false, 0, 0},
	    {"y", false, 0, 0}, {"x1", false, 0, 0}, {"ss", false, 0, 0},
	    {"X", false, 0, 0}};

	(void)state;
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		struct answer a;
		char text[200];

		snprintf(text, sizeof text,
		    "*8\r\n:0\r\n:1\r\n:0\r\n:0\r\n$0\r\n\r\n:1\r\n$%zu\r\n%s\r\n:3\r\n",
		    strlen(rows[i].text), rows[i].text);
		if (read_text(&a, text, ACQUIRE) != rows[i].good)
			fail_msg("row %zu: %s", i, rows[i].text);
		if (rows[i].good &&
		    (a.holding.kind != rows[i].kind || a.holding.limit != rows[i].limit ||
			a.holding.holders != 3))
			fail_msg("row %zu: %s is %d %u", i, rows[i].text, a.holding.kind,
			    a.holding.limit);
	}
}

static void
only_a_key_of_another_type_is_foreign(void **state)
{
	(void)state;
	assert_true(
	    resp_says("WRONGTYPE Operation against a key holding the wrong kind of value",
		"WRONGTYPE"));
	assert_true(resp_says(
	    "ERR Error running script (call to f_0): @user_script:1: WRONGTYPE Operation",
	    "WRONGTYPE"));
	assert_false(resp_says("NOPERM this user has no permissions", "WRONGTYPE"));
	assert_false(resp_says("", "WRONGTYPE"));
	/* what others call themselves says nothing */
	assert_false(resp_says("MOVED 1 WRONGTYPE:6379", "WRONGTYPE"));
	assert_false(
	    resp_says("NOPERM no permissions for 'script: WRONGTYPE x'", "WRONGTYPE"));
	assert_false(resp_says("WRONGTYPES of all sorts", "WRONGTYPE"));
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
		const char *answers[HEALTH_ANSWERS]; /* NULL: not told */
		const char *words[2];                /* none: no risk */
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
		redisReply replies[HEALTH_ANSWERS], *told[HEALTH_ANSWERS];
		char text[HEALTH_BYTES];
		bool risky;

		for (int a = 0; a < HEALTH_ANSWERS; a++) {
			const char *says = rows[i].answers[a];

			replies[a] = (redisReply){
			    .type = says ? REDIS_REPLY_STRING : REDIS_REPLY_NIL,
			    .str = (char *)says};
			told[a] = &replies[a];
		}
		risky = health_risks(told, text, sizeof text);

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
	    cmocka_unit_test(marks),
	    cmocka_unit_test(a_freeze_is_a_member_more),
	    cmocka_unit_test(kinds),
	    cmocka_unit_test(only_a_key_of_another_type_is_foreign),
	    cmocka_unit_test(settings_that_endanger_locks),
	};

	return cmocka_run_group_tests_name("answer", tests, NULL, NULL);
}
