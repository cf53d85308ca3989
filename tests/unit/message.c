/* message.c - answers that the library could read, and those that it must not see. */
#include "backends/zk/library.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <zookeeper/proto.h>

struct bytes {
	unsigned char at[1024];
	size_t n;
};

static void
put(struct bytes *b, int32_t i)
{
	uint32_t u = (uint32_t)i;

	for (int shift = 24; shift >= 0; shift -= 8)
		b->at[b->n++] = (unsigned char)(u >> shift);
}

static void
put_text(struct bytes *b, const char *text)
{
	put(b, (int32_t)strlen(text));
	memcpy(b->at + b->n, text, strlen(text));
	b->n += strlen(text);
}

static void
put_stat(struct bytes *b)
{
	for (int i = 0; i < 17; i++)
		put(b, i);
}

static void
put_head(struct bytes *b, int32_t op, bool last)
{
	put(b, op);
	b->at[b->n++] = last;
	put(b, -1);
}

static struct bytes
answer(int32_t xid, int32_t error)
{
	struct bytes b = {.n = 0};

	put(&b, xid);
	put(&b, 0);
	put(&b, 1);
	put(&b, error);
	return b;
}

/* Whole it is an answer, and one that is shorter by any number of bytes is none. */
static void
assert_needs_all(const struct bytes *b, const struct request *q)
{
	assert_int_equal(message_answers(b->at, b->n, q), ANSWER_DUE);
	for (size_t n = 0; n < b->n; n++) {
		unsigned char *part = malloc(
		    n + 1); /* so that a sanitizer sees its end */

		memcpy(part, b->at, n);
		assert_int_equal(message_answers(part, n, q), ANSWER_WRONG);
		free(part);
	}
}

static void
answers_need_all_of_their_bytes(void **state)
{
	static const struct {
		int32_t op;
		const char *form; /* text, data, stat, names */
	} rows[] = {
	    {ZOO_CREATE_OP, "t"},
	    {ZOO_CREATE2_OP, "ts"},
	    {ZOO_CREATE_CONTAINER_OP, "ts"},
	    {ZOO_SYNC_OP, "t"},
	    {ZOO_GETDATA_OP, "ts"},
	    {ZOO_EXISTS_OP, "s"},
	    {ZOO_SETDATA_OP, "s"},
	    {ZOO_GETCHILDREN_OP, "n"},
	    {ZOO_GETCHILDREN2_OP, "ns"},
	    {ZOO_DELETE_OP, ""},
	};

	(void)state;
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		struct request q = {.xid = 7, .op = rows[i].op};
		struct bytes b = answer(7, 0), failed = answer(7, -101);

		for (const char *c = rows[i].form; *c; c++) {
			if (*c == 's') {
				put_stat(&b);
			} else if (*c == 't') {
				put_text(&b, "/job/x");
			} else {
				put(&b, 2);
				put_text(&b, "one");
				put_text(&b, "");
			}
		}
		assert_needs_all(&b, &q);
		assert_needs_all(&failed, &q);
		assert_int_equal(message_answers(b.at, b.n, NULL), ANSWER_WRONG);
		q.xid++;
		assert_int_equal(message_answers(b.at, b.n, &q), ANSWER_WRONG);
	}
}

static void
lengths_are_not_believed(void **state)
{
	static const int32_t odd[] = {-2, INT32_MIN, INT32_MAX, 5};
	static const int32_t ops[] = {ZOO_CREATE_OP, ZOO_GETDATA_OP, ZOO_GETCHILDREN_OP};
	struct request data = {.xid = 7, .op = ZOO_GETDATA_OP};
	struct bytes none = answer(7, 0);

	(void)state;
	for (size_t i = 0; i < sizeof odd / sizeof *odd; i++)
		for (size_t j = 0; j < sizeof ops / sizeof *ops; j++) {
			struct request q = {.xid = 7, .op = ops[j]};
			struct bytes b = answer(7, 0);

			put(&b, odd[i]);
			assert_int_equal(message_answers(b.at, b.n, &q), ANSWER_WRONG);
		}
	put(&none, -1); /* no data at all */
	put_stat(&none);
	assert_int_equal(message_answers(none.at, none.n, &data), ANSWER_DUE);
}

static struct request
transaction(void)
{
	struct bytes b = {.n = 0};
	struct request q;

	put(&b, 9);
	put(&b, ZOO_MULTI_OP);
	put_head(&b, ZOO_CREATE_OP, false);
	put_text(&b, "/job/x");
	put_text(&b, "{}");
	put(&b, 1); /* rights */
	put(&b, 31);
	put_text(&b, "world");
	put_text(&b, "anyone");
	put(&b, 0);
	put_head(&b, ZOO_SETDATA_OP, false);
	put_text(&b, "/job");
	put_text(&b, "");
	put(&b, -1);
	put_head(&b, ZOO_CHECK_OP, false);
	put_text(&b, "/job");
	put(&b, -1);
	put_head(&b, -1, true);
	assert_true(message_request(&q, b.at, b.n));
	for (size_t n = 0; n < b.n; n++)
		assert_false(message_request(&(struct request){0}, b.at, n));
	return q;
}

static void
a_transaction_has_as_many_results_as_steps(void **state)
{
	struct request q = transaction();
	struct bytes good = answer(9, 0), failed = answer(9, 0), few = answer(9, 0);

	(void)state;
	assert_int_equal(q.nsteps, 3);
	put_head(&good, ZOO_CREATE_OP, false);
	put_text(&good, "/job/x1");
	put_head(&good, ZOO_SETDATA_OP, false);
	put_stat(&good);
	put_head(&good, ZOO_CHECK_OP, false);
	few = good;
	put_head(&good, -1, true);
	assert_needs_all(&good, &q);
	put_head(&few, ZOO_CHECK_OP, false); /* one too many */
	put_head(&few, -1, true);
	assert_int_equal(message_answers(few.at, few.n, &q), ANSWER_WRONG);
	for (int i = 0; i < 3; i++) {
		put_head(&failed, -1, false);
		put(&failed, -101);
	}
	put_head(&failed, -1, true);
	assert_needs_all(&failed, &q);
}

static void
news_are_answers_to_nothing(void **state)
{
	struct bytes event = answer(-1, 0), session = answer(-1, 0), ping = answer(-2, 0),
		     login = answer(-4, -115);

	(void)state;
	put(&event, 2);
	put(&event, 3);
	put_text(&event, "/job");
	put(&session, -1);
	put(&session, -112);
	put_text(&session, "");
	assert_int_equal(message_answers(event.at, event.n, NULL), ANSWER_NEWS);
	assert_int_equal(message_answers(event.at, event.n - 1, NULL), ANSWER_WRONG);
	assert_int_equal(message_answers(session.at, session.n, NULL), ANSWER_WRONG);
	assert_int_equal(message_answers(ping.at, ping.n, NULL), ANSWER_NEWS);
	assert_int_equal(message_answers(login.at, login.n, NULL), ANSWER_LOGIN);
	assert_int_equal(message_answers(ping.at, ping.n - 1, NULL), ANSWER_WRONG);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(answers_need_all_of_their_bytes),
	    cmocka_unit_test(lengths_are_not_believed),
	    cmocka_unit_test(a_transaction_has_as_many_results_as_steps),
	    cmocka_unit_test(news_are_answers_to_nothing),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
