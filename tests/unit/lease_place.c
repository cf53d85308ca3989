/*
 * lease_place.c - Goal of these tests: what a database says of a place in its queue is
 * believed only if it makes sense, and a thousand who wait ask neither too often, nor too
 * late, nor in step.
 */
#include "backends/sql/lease.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { FIELDS = ANSWER_MORE + 3 };

#define CHUNK (10 * NS_PER_S)

static const char owner[] = "0123456789abcdef0123456789abcdef";

static struct row
row_of(struct answer *a)
{
	for (int i = 0; i < FIELDS; i++)
		a->lengths[i] = a->at[i] ? strlen(a->at[i]) : 0;
	return (struct row){a->at, a->lengths};
}

/* Second in the queue behind one reader. */
static struct answer
queued(void)
{
	return (struct answer){.at = {[ANSWER_CODE] = "0",
				   [ANSWER_PLACE] = "2",
				   [ANSWER_LEFT_MS] = "700",
				   [ANSWER_HELD_MS] = "40",
				   [ANSWER_HOLDER] = "{}",
				   [ANSWER_HOLDERS] = "1",
				   [ANSWER_KIND] = "shared",
				   [ANSWER_LIMIT] = "0",
				   [ANSWER_NEXT] = "f"}};
}

static struct claim
claim_of(enum lock_kind kind)
{
	return (struct claim){
	    .key = "k", .kind = kind, .limit = 3, .owner = owner, .ttl = 60 * NS_PER_S};
}

static bool
read_all(
    struct lease_place *s, struct host *host, struct answer a, const struct claim *claim)
{
	struct row row = row_of(&a);

	*s = (struct lease_place){.jitter = 7};
	return lease_place_read(s, claim, host, &row, ANSWER_MORE);
}

static bool
with(struct lease_place *s, struct answer a, int field, char *value)
{
	struct claim claim = claim_of(KIND_LIMIT);
	struct host host = {0};

	a.at[field] = value;
	return read_all(s, &host, a, &claim);
}

/* ---- what the server says ---- */

static void
a_place_is_read_with_who_holds(void **state)
{
	struct claim claim = claim_of(KIND_EXCLUSIVE);
	struct host host = {0};
	struct lease_place s;

	(void)state;
	assert_true(read_all(&s, &host, queued(), &claim));
	assert_int_equal(s.code, QUEUED);
	assert_int_equal(s.position, 2);
	assert_int_equal(s.left_ms, 700);
	assert_int_equal(s.jitter, 7);
	assert_false(lease_place_concerns_us(&s));
	assert_int_equal(host.seen.position, 2);
	assert_int_equal(host.seen.holding.held, 40 * NS_PER_MS);
	assert_int_equal(host.seen.holding.kind, KIND_SHARED);
	assert_int_equal(host.seen.holding.holders, 1);
	assert_string_equal(host.seen.holding.record, "{}");
	assert_false(host.seen.holding.frozen);
}

static void
nobody_may_hold_and_a_freeze_is_no_holder(void **state)
{
	struct claim claim = claim_of(KIND_EXCLUSIVE);
	struct host host = {0};
	struct answer a = queued();
	struct lease_place s;

	(void)state;
	a.at[ANSWER_LEFT_MS] = a.at[ANSWER_HELD_MS] = a.at[ANSWER_KIND] = NULL;
	assert_true(read_all(&s, &host, a, &claim));
	assert_int_equal(s.left_ms, 0);
	assert_int_equal(host.seen.holding.held, -1);
	assert_string_equal(host.seen.holding.record, "");
	assert_int_equal(host.seen.holding.holders, 0);
	a = queued();
	a.at[ANSWER_KIND] = "freeze";
	assert_true(read_all(&s, &host, a, &claim));
	assert_true(host.seen.holding.frozen);
	assert_int_equal(host.seen.holding.holders, 0);
	assert_int_equal(host.seen.holding.held, 40 * NS_PER_MS);
}

static void
a_grant_has_a_token_and_a_limit_a_slot(void **state)
{
	static char *const none[] = {NULL, "-1", "0"};
	struct answer a = {.at = {"1", "12", "2"}};
	struct claim claim = claim_of(KIND_EXCLUSIVE);
	struct host host = {0};
	struct lease_place s;

	(void)state;
	assert_true(with(&s, a, ANSWER_SLOT, "2"));
	assert_int_equal(s.token, 12);
	assert_int_equal(s.slot, 2);
	assert_false(with(&s, a, ANSWER_SLOT, "3"));
	assert_false(with(&s, a, ANSWER_SLOT, NULL));
	assert_false(with(&s, a, ANSWER_TOKEN, "0"));
	for (size_t i = 0; i < sizeof none / sizeof *none; i++) {
		a.at[ANSWER_SLOT] = none[i];
		assert_true(read_all(&s, &host, a, &claim));
		assert_int_equal(s.slot, 0);
	}
	a.at[ANSWER_SLOT] = "1";
	assert_false(read_all(&s, &host, a, &claim));
}

static void
a_job_that_is_done_says_when(void **state)
{
	struct answer a = {.at = {[ANSWER_CODE] = "2",
			       [ANSWER_MORE + DONE_BY] = "cooldown",
			       [ANSWER_MORE + DONE_AGE_MS] = "50"}};
	struct claim claim = claim_of(KIND_EXCLUSIVE);
	struct host host = {0};
	struct lease_place s;

	(void)state;
	assert_true(read_all(&s, &host, a, &claim));
	assert_true(s.done.recently);
	assert_true(s.done.forgotten);
	assert_int_equal(s.done.age_ms, 50);
	a.at[ANSWER_MORE + DONE_BY] = "id";
	a.at[ANSWER_MORE + DONE_BEGAN_MS] = "1000";
	a.at[ANSWER_TOKEN] = "12";
	assert_false(read_all(&s, &host, a, &claim)); /* it has asked for no ID */
	claim.job.once = "night";
	assert_true(read_all(&s, &host, a, &claim));
	assert_false(s.done.recently);
	assert_false(s.done.forgotten);
	assert_int_equal(s.done.began_ms, 1000);
	a.at[ANSWER_MORE + DONE_BEGAN_MS] = NULL;
	assert_false(read_all(&s, &host, a, &claim));
}

static void
another_kind_in_use_is_named(void **state)
{
	struct answer a = {
	    .at = {[ANSWER_CODE] = "-1", [ANSWER_KIND] = "limit", [ANSWER_LIMIT] = "9"}};
	struct lease_place s;

	(void)state;
	assert_true(with(&s, a, ANSWER_LIMIT, "9"));
	assert_int_equal(s.code, IN_USE);
	assert_int_equal(s.kind, KIND_LIMIT);
	assert_int_equal(s.limit, 9);
	assert_false(with(&s, a, ANSWER_KIND, "freeze"));
	assert_false(with(&s, a, ANSWER_KIND, NULL));
}

static void
nonsense_is_refused(void **state)
{
	static const struct {
		int field;
		char *value;
	} wrong[] = {{ANSWER_CODE, "3"}, {ANSWER_CODE, "-2"}, {ANSWER_CODE, ""},
	    {ANSWER_CODE, NULL}, {ANSWER_PLACE, "0"}, {ANSWER_PLACE, "1e3"},
	    {ANSWER_PLACE, "9999999999"}, {ANSWER_NEXT, "true"}, {ANSWER_NEXT, NULL}};
	struct lease_place s;

	(void)state;
	for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
		assert_false(with(&s, queued(), wrong[i].field, wrong[i].value));
	assert_true(with(&s, queued(), ANSWER_NEXT, "1"));
	assert_true(lease_place_concerns_us(&s));
}

static void
whether_there_is_nobody_is_a_token(void **state)
{
	struct answer a = {.at = {"12"}}, none = {.at = {"0"}};
	struct row row = row_of(&a), nothing = row_of(&none);
	struct lease_place s = {.jitter = 7};

	(void)state;
	assert_false(lease_place_read_taken(&s, &nothing));
	assert_int_equal(s.code, QUEUED);
	assert_true(lease_place_read_taken(&s, &row));
	assert_int_equal(s.code, GRANTED);
	assert_int_equal(s.token, 12);
	assert_int_equal(s.jitter, 7);
}

/* ---- when to ask again ---- */

static void
who_is_first_asks_often_and_nobody_late(void **state)
{
	struct claim claim = claim_of(KIND_EXCLUSIVE);
	struct lease_place s = {.jitter = 0};

	(void)state;
	for (int place = 1; place < 1000; place++) {
		int64_t most = place < 10 ? place * 200 * NS_PER_MS : 2 * NS_PER_S;
		int64_t pause = lease_place_pause(&s, &claim, place);

		assert_true(pause >= most * 3 / 4);
		assert_true(pause < most * 5 / 4);
	}
}

static void
pauses_differ(void **state)
{
	struct claim claim = claim_of(KIND_EXCLUSIVE);
	struct lease_place s = {.jitter = 0};
	int64_t first = lease_place_pause(&s, &claim, 1),
		chunk = lease_place_chunk(&s, &claim, CHUNK);

	(void)state;
	assert_int_not_equal(lease_place_pause(&s, &claim, 1), first);
	assert_int_not_equal(lease_place_chunk(&s, &claim, CHUNK), chunk);
}

static void
a_chunk_is_shorter_than_half_a_lease(void **state)
{
	struct claim claim = claim_of(KIND_EXCLUSIVE);
	struct lease_place s = {.jitter = 0};

	(void)state;
	for (int i = 0; i < OWNER_CHARS; i++) {
		int64_t chunk = lease_place_chunk(&s, &claim, CHUNK);

		assert_true(chunk <= CHUNK);
		assert_true(chunk > CHUNK * 3 / 4);
	}
	claim.ttl = 2 * NS_PER_S;
	assert_true(lease_place_chunk(&s, &claim, CHUNK) <= NS_PER_S);
}

static void
the_end_of_a_lease_wakes_whom_it_concerns(void **state)
{
	struct lease_place s = {.position = 2, .left_ms = 50};
	instant now = instant_now(), far = now + 10 * NS_PER_S;

	(void)state;
	assert_true(lease_place_wake(&s, far) == far);
	s.next = true;
	assert_true(lease_place_wake(&s, far) >= now + 50 * NS_PER_MS);
	assert_true(lease_place_wake(&s, far) < now + 5 * NS_PER_S);
	assert_true(lease_place_wake(&s, now) == now);
	s = (struct lease_place){.position = 1, .left_ms = 50};
	assert_true(lease_place_wake(&s, far) < now + 5 * NS_PER_S);
	s.left_ms = 0;
	assert_true(lease_place_wake(&s, far) == far);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(a_place_is_read_with_who_holds),
	    cmocka_unit_test(nobody_may_hold_and_a_freeze_is_no_holder),
	    cmocka_unit_test(a_grant_has_a_token_and_a_limit_a_slot),
	    cmocka_unit_test(a_job_that_is_done_says_when),
	    cmocka_unit_test(another_kind_in_use_is_named),
	    cmocka_unit_test(nonsense_is_refused),
	    cmocka_unit_test(whether_there_is_nobody_is_a_token),
	    cmocka_unit_test(who_is_first_asks_often_and_nobody_late),
	    cmocka_unit_test(pauses_differ),
	    cmocka_unit_test(a_chunk_is_shorter_than_half_a_lease),
	    cmocka_unit_test(the_end_of_a_lease_wakes_whom_it_concerns),
	};

	return cmocka_run_group_tests_name("lease_place", tests, NULL, NULL);
}
