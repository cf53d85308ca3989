/*
 * credit.c - Goal of these tests: no lease is longer than the leader's patience with us
 * (the proof is in backends/zk/credit.h), and none is shorter than what was promised.
 */
#include "backends/zk/credit.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#define T (12 * NS_PER_S)
#define PACE (T / 12)
#define STEADY (T - T * 3 / 10 - 2 * PACE)
#define BEGAN (1000 * NS_PER_S)

static struct credit
granted(int64_t timeout, bool alone)
{
	struct credit c;

	credit_begin(&c, T, BEGAN);
	assert_true(credit_grant(&c, timeout));
	credit_set_alone(&c, alone);
	return c;
}

static void
whoever_follows_nobody_earns_all_of_it(void **state)
{
	struct credit c = granted(T, true);

	(void)state;
	assert_int_equal(credit_lease(&c, BEGAN + 1), T);
	assert_int_equal(credit_lease(&c, BEGAN + 100 * T), T);
	assert_int_equal(credit_steady(&c), T);
	assert_int_equal(credit_pace(&c), PACE);
	assert_true(credit_life(&c) < T);
	credit_set_alone(&c, false); /* another connection: its server may be a follower */
	assert_true(credit_lease(&c, BEGAN + 100 * T) < 0);
}

static void
a_follower_vouches_for_earlier_requests_alone(void **state)
{
	struct credit c = granted(T, false);
	instant write = BEGAN + T / 2;

	(void)state;
	assert_int_equal(credit_lease(&c, BEGAN), STEADY); /* the leader itself has begun the session */
	assert_int_equal(credit_lease(&c, write), T / 2);
	credit_answer(&c, write - NS_PER_S, write - NS_PER_MS); /* too late to be known */
	assert_int_equal(credit_lease(&c, write), T / 2);
	c = granted(T, false);
	credit_answer(&c, write - T * 3 / 10 - 2, write - T * 3 / 10);
	assert_int_equal(credit_lease(&c, write), STEADY);
	c = granted(T, false);
	credit_answer(&c, write - T * 3 / 10 - 2, write - T * 3 / 10 + 1);
	assert_int_equal(credit_lease(&c, write), T / 2);
}

static void
requests_at_the_pace_keep_the_lease_steady(void **state)
{
	struct credit c = granted(T, false);

	(void)state;
	for (int i = 0; i < 200; i++) {
		instant sent = BEGAN + i * credit_pace(&c);

		if (credit_lease(&c, sent) < credit_steady(&c))
			fail_msg("request %d: %lld", i, (long long)credit_lease(&c, sent));
		for (int burst = 0; burst < 10; burst++) /* one moment, however many requests it has */
			credit_answer(&c, sent + burst, sent + PACE / 5 + burst);
	}
	assert_true(credit_steady(&c) >= T * 53 / 100);
}

static void
a_shorter_timeout_ends_the_session(void **state)
{
	struct credit c = granted(T, true);

	(void)state;
	assert_true(credit_grant(&c, T));
	assert_false(credit_grant(&c, T - 1));
	assert_int_equal(credit_steady(&c), T);
	assert_true(credit_grant(&c, 2 * T));
	assert_int_equal(credit_steady(&c), 2 * T);
	assert_false(credit_grant(&c, T));
}

static void
absurd_timeouts_are_not_believed(void **state)
{
	struct credit c = granted(11 * T, true);

	(void)state;
	assert_int_equal(credit_steady(&c), T);
	c = granted(INT32_MAX * NS_PER_MS, true);
	assert_int_equal(credit_steady(&c), T);
	c = granted(0, true);
	assert_true(credit_pace(&c) <= 0);
	c = granted(INT32_MIN * NS_PER_MS, false);
	assert_true(credit_pace(&c) <= 0);
}

/* ---- a follower that pings its leader, and a client that asks whenever it likes ---- */

static int64_t
below(int64_t n)
{
	return rand() % 1000000 * n / 1000000;
}

/*
 * The follower answers a ping each `half` ns and then names the clients that it has
 * heard of since the last one.  The answer travels for less than `late`.  The leader
 * counts T from its arrival, or more; here, from when it was sent.
 */
struct follower {
	int64_t half, phase;
	instant pinged; /* the newest ping that named us, or the session's beginning */
};

static instant
next_ping(const struct follower *f, instant after)
{
	return after - (after - f->phase) % f->half + f->half;
}

/* A request has reached it; all pings up to `now` have been answered. */
static void
heard_at(struct follower *f, instant reached, instant now)
{
	instant ping = next_ping(f, reached);

	if (ping <= now && ping > f->pinged)
		f->pinged = ping;
}

/* Whatever the client's and the follower's rhythm, the leader's patience lasts as long as each lease. */
static void
no_lease_outlasts_the_leaders_patience(void **state)
{
	enum { REQUESTS = 60 };

	(void)state;
	srand(11);
	for (int round = 0; round < 3000; round++) {
		struct credit c = granted(T, false);
		struct follower f = {.half = T / 100 + below(T / 4 - T / 100), .phase = BEGAN - below(T)};
		int64_t gap = PACE / 8 + below(2 * PACE);
		instant reached[REQUESTS], sent = BEGAN;

		for (int i = 0; i < REQUESTS; i++) {
			int64_t there = below(PACE), back = below(PACE);

			f.pinged = BEGAN;
			for (int j = 0; j < i; j++)
				heard_at(&f, reached[j], sent);
			if (credit_lease(&c, sent) > f.pinged + T - sent)
				fail_msg("round %d, request %d: a lease that is %lld ns too long", round, i,
				    (long long)(credit_lease(&c, sent) - (f.pinged + T - sent)));
			reached[i] = sent + there;
			credit_answer(&c, sent, sent + there + back);
			sent += there + back + below(gap);
		}
	}
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(whoever_follows_nobody_earns_all_of_it),
	    cmocka_unit_test(a_follower_vouches_for_earlier_requests_alone),
	    cmocka_unit_test(requests_at_the_pace_keep_the_lease_steady),
	    cmocka_unit_test(a_shorter_timeout_ends_the_session),
	    cmocka_unit_test(absurd_timeouts_are_not_believed),
	    cmocka_unit_test(no_lease_outlasts_the_leaders_patience),
	};

	return cmocka_run_group_tests_name("credit", tests, NULL, NULL);
}
