/*
 * retry.c - Goal of these tests: a server that is away is asked for as
 * long as was promised and no longer, soon by those who are next, and by five
 * hundred others not more often than two hundred times a second.
 */
#include "backends/common/retry.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { CROWD = 500, SECONDS = 12 };

/* A caller for whom no time passes: it notes how long it was to sleep. */
struct caller {
	struct host host;
	enum woke woke;
	int64_t slept;
	unsigned waits;
};

static enum woke
sleep_at_once(struct host *host, int fd, short events, instant until)
{
	struct caller *h = (struct caller *)host;

	(void)fd;
	(void)events;
	h->slept = until - instant_now();
	h->waits++;
	return h->woke;
}

static struct caller
caller_at(unsigned position)
{
	return (struct caller){
	    .host = {.wait = sleep_at_once, .alert = -1, .seen = {.position = position}},
	    .woke = WOKE_TIMEOUT};
}

static struct retry
retry_of(const char *owner, bool persist)
{
	struct retry p;

	retry_init(&p);
	retry_begin(&p,
	    &(struct claim){.owner = owner, .ttl = 30 * NS_PER_S, .persist = persist});
	retry_end_outage(&p);
	return p;
}

static bool
is_near(instant a, instant b)
{
	return llabs(a - b) < NS_PER_S / 2;
}

/* ---- bounds ---- */

static void
first_answer_is_awaited_for_connect_timeout(void **state)
{
	struct retry p = retry_of("a", false);
	instant now = instant_now();

	(void)state;
	p.since = instant_now();
	assert_true(is_near(retry_first(&p, NEVER), now + 5 * NS_PER_S));
	assert_true(is_near(retry_first(&p, 0), now + 5 * NS_PER_S));
	assert_true(is_near(retry_first(&p, now + 3 * NS_PER_S), now + 3 * NS_PER_S));
	/* so much may a server take at least */
	assert_true(is_near(retry_first(&p, now + 1), now + NS_PER_S));
	p.first = 2 * NS_PER_S;
	assert_true(is_near(retry_first(&p, NEVER), now + 2 * NS_PER_S));
	p.since -= NS_PER_S; /* it counts from the beginning, not from each attempt */
	assert_true(is_near(retry_first(&p, NEVER), now + NS_PER_S));
}

static void
wait_replaces_connect_timeout_but_bounds_no_attempt(void **state)
{
	struct retry p = retry_of("a", true);
	instant now = instant_now();

	(void)state;
	p.since = instant_now();
	assert_true(retry_first(&p, NEVER) == NEVER);
	assert_true(is_near(retry_attempt(&p, NEVER), now + 5 * NS_PER_S));
	assert_true(is_near(retry_first(&p, now + 60 * NS_PER_S), now + 60 * NS_PER_S));
	assert_true(is_near(retry_attempt(&p, now + 2 * NS_PER_S), now + 2 * NS_PER_S));
	assert_true(is_near(retry_attempt(&p, 0), now + 5 * NS_PER_S));
}

/* How long it goes on, where each failure comes `step` after the one before. */
static int64_t
lasts(struct retry p, bool queued, instant until, int64_t step)
{
	struct caller h = caller_at(1);
	int64_t passed = 0;

	p.since = instant_now();
	while (retry_wait(&p, &h.host, RC_AGAIN, queued, until) == RC_OK) {
		assert_true(h.slept > 0);
		assert_true(passed < 1000 * NS_PER_S);
		p.since -= step; /* instead of letting time pass */
		until = until == NEVER || until == 0 ? until : until - step;
		passed += step;
	}
	return passed;
}

static void
outages_are_borne_for_so_long(void **state)
{
	struct retry plain = retry_of("a", false), persistent = retry_of("a", true);
	instant now = instant_now();

	(void)state;
	assert_int_equal(lasts(plain, false, NEVER, NS_PER_S) / NS_PER_S, 5);
	assert_int_equal(lasts(plain, true, NEVER, NS_PER_S) / NS_PER_S, 30);
	assert_int_equal(
	    lasts(plain, true, now + 10 * NS_PER_S, NS_PER_S) / NS_PER_S, 10);
	assert_int_equal(
	    lasts(persistent, false, now + 60 * NS_PER_S, NS_PER_S) / NS_PER_S, 60);
	assert_int_equal(
	    lasts(persistent, true, now + 90 * NS_PER_S, NS_PER_S) / NS_PER_S, 90);
	assert_int_equal(lasts(plain, false, 0, NS_PER_S), 0); /* -n: once */
	assert_int_equal(lasts(persistent, false, 0, NS_PER_S), 0);
}

static void
no_attempt_begins_when_the_time_is_up(void **state)
{
	struct retry p = retry_of("a", true);
	struct caller h = caller_at(9);
	instant until = instant_now() + 300 * NS_PER_MS;

	(void)state;
	assert_int_equal(retry_wait(&p, &h.host, RC_AGAIN, true, until), RC_OK);
	assert_true(h.slept < 300 * NS_PER_MS);
}

static void
an_attempt_has_a_second_to_tell_why_it_fails(void **state)
{
	struct retry p = retry_of("a", true);
	instant now = instant_now();

	(void)state;
	assert_true(is_near(retry_attempt_by(&p, now), now + NS_PER_S));
	assert_true(
	    is_near(retry_attempt_by(&p, now + 3 * NS_PER_S), now + 3 * NS_PER_S));
	assert_true(is_near(retry_attempt_by(&p, NEVER), now + 5 * NS_PER_S));
	p.first = NS_PER_S / 8;
	assert_true(retry_attempt_by(&p, now) < now + NS_PER_S);
}

/* The rc of the last of `failures` + 1 first attempts, and how many there were. */
static enum rc
first_attempts(struct caller *h, unsigned failures, enum rc last, instant until)
{
	struct retry p = retry_of("a", true);
	enum rc rc;

	retry_begin(&p, &(struct claim){.owner = "a", .ttl = NS_PER_S});
	do
		rc = h->waits < failures ? RC_AGAIN : last;
	while (retry_first_again(&p, &h->host, until, &rc));
	assert_false(retry_is_outage(&p));
	assert_false(h->host.seen.silent);
	return rc;
}

static void
first_attempts_end_with_an_answer(void **state)
{
	struct caller h = caller_at(0), once = h, stopped = h;

	(void)state;
	assert_int_equal(first_attempts(&h, 3, RC_DENIED, NEVER), RC_DENIED);
	assert_int_equal(h.waits, 3);
	assert_int_equal(first_attempts(&once, 3, RC_OK, 0), RC_AGAIN);
	assert_int_equal(once.waits, 0);
	stopped.woke = WOKE_STOP;
	assert_int_equal(first_attempts(&stopped, 3, RC_OK, NEVER), RC_STOP);
}

static void
only_silence_is_borne(void **state)
{
	static const enum rc others[] = {RC_OK, RC_BUSY, RC_STOP, RC_LOST, RC_DENIED,
	    RC_USAGE, RC_CONFIG, RC_PROTOCOL, RC_SYSTEM};
	struct retry p = retry_of("a", true);
	struct caller h = caller_at(1);

	(void)state;
	for (size_t i = 0; i < sizeof others / sizeof *others; i++)
		assert_int_equal(
		    retry_wait(&p, &h.host, others[i], true, NEVER), others[i]);
	assert_int_equal(h.waits, 0);
	assert_false(retry_is_outage(&p));
	assert_int_equal(retry_wait(&p, &h.host, RC_AGAIN, true, NEVER), RC_OK);
	assert_true(retry_is_outage(&p));
	retry_end_outage(&p);
	assert_false(retry_is_outage(&p));
	h.woke = WOKE_STOP;
	assert_int_equal(retry_wait(&p, &h.host, RC_AGAIN, true, NEVER), RC_STOP);
}

/* ---- how often ---- */

static void
owner_of(char owner[OWNER_CHARS + 1], unsigned i)
{
	snprintf(owner, OWNER_CHARS + 1, "%016x%016x", i * 2654435761U, ~i);
}

/* The moments of one waiter's attempts, counted by tenths of a second. */
static void
count_attempts(unsigned i, unsigned position, bool queued, unsigned tenths[SECONDS * 10])
{
	char owner[OWNER_CHARS + 1];
	struct retry p;
	struct caller h = caller_at(position);

	owner_of(owner, i);
	p = retry_of(owner, true);
	for (int64_t at = 0;; at += h.slept) {
		assert_int_equal(retry_wait(&p, &h.host, RC_AGAIN, queued, NEVER), RC_OK);
		if (at + h.slept >= SECONDS * NS_PER_S)
			return;
		tenths[(at + h.slept) / (100 * NS_PER_MS)]++;
	}
}

static void
a_crowd_makes_two_hundred_attempts_in_any_second(void **state)
{
	unsigned tenths[SECONDS * 10] = {0};

	(void)state;
	for (unsigned i = 0; i < CROWD; i++)
		count_attempts(i, i + 1, true, tenths);
	for (unsigned first = 0; first + 10 <= SECONDS * 10; first++) {
		unsigned sum = 0;

		for (unsigned t = first; t < first + 10; t++)
			sum += tenths[t];
		if (sum > 200 || sum < 150)
			fail_msg("%u attempts from %.1f s on", sum, first / 10.0);
	}
}

static void
everybody_is_back_within_four_seconds(void **state)
{
	(void)state;
	for (unsigned position = 0; position < CROWD; position++) {
		unsigned tenths[SECONDS * 10] = {0}, silent = 0, longest = 0;

		count_attempts(position, position, true, tenths);
		for (unsigned t = 0; t < SECONDS * 10; t++) {
			silent = tenths[t] ? 0 : silent + 1;
			longest = silent > longest ? silent : longest;
		}
		assert_true(longest <= (position >= 1 && position <= 4 ? 9 : 35));
	}
}

/* Or it would lose its place to those who take it for dead. */
static void
a_waiter_is_back_before_it_is_taken_for_dead(void **state)
{
	(void)state;
	for (unsigned i = 0; i < CROWD; i++) {
		char owner[OWNER_CHARS + 1];
		struct caller h = caller_at(i);
		struct retry p;

		owner_of(owner, i);
		p = retry_of(owner, true);
		for (int n = 0; n < 100; n++) {
			retry_wait(&p, &h.host, RC_AGAIN, true, NEVER);
			/* and what is left is for the attempt itself */
			assert_true(h.slept < RETRY_RETURN - NS_PER_S / 2);
		}
	}
}

static void
new_runs_come_soon_and_slow_down(void **state)
{
	unsigned tenths[SECONDS * 10] = {0}, early = 0, late = 0;

	(void)state;
	for (unsigned i = 0; i < CROWD; i++)
		count_attempts(i, 0, false, tenths);
	for (unsigned t = 0; t < SECONDS * 10; t++)
		*(t < 10 ? &early : &late) += tenths[t];
	assert_true(early >= 2 * CROWD);
	assert_true(late < CROWD * (SECONDS - 1) / 2);
}

static void
an_answer_is_not_awaited_long_after_the_wait(void **state)
{
	const instant s = NS_PER_S;

	(void)state;
	assert_int_equal(retry_answer(10 * s, 5 * s, NEVER), 15 * s);
	assert_int_equal(retry_answer(10 * s, 5 * s, 20 * s), 15 * s);
	assert_int_equal(retry_answer(10 * s, 5 * s, 12 * s), 13 * s);
	assert_int_equal(retry_answer(10 * s, 5 * s, 10 * s), 11 * s);
	assert_int_equal(retry_answer(10 * s, 5 * s, 3 * s), 11 * s);
	assert_int_equal(retry_answer(NEVER, 5 * s, NEVER), NEVER);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(first_answer_is_awaited_for_connect_timeout),
	    cmocka_unit_test(wait_replaces_connect_timeout_but_bounds_no_attempt),
	    cmocka_unit_test(outages_are_borne_for_so_long),
	    cmocka_unit_test(no_attempt_begins_when_the_time_is_up),
	    cmocka_unit_test(an_attempt_has_a_second_to_tell_why_it_fails),
	    cmocka_unit_test(first_attempts_end_with_an_answer),
	    cmocka_unit_test(an_answer_is_not_awaited_long_after_the_wait),
	    cmocka_unit_test(only_silence_is_borne),
	    cmocka_unit_test(a_crowd_makes_two_hundred_attempts_in_any_second),
	    cmocka_unit_test(everybody_is_back_within_four_seconds),
	    cmocka_unit_test(a_waiter_is_back_before_it_is_taken_for_dead),
	    cmocka_unit_test(new_runs_come_soon_and_slow_down),
	};

	return cmocka_run_group_tests_name("patience", tests, NULL, NULL);
}
