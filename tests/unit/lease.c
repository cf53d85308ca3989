/*
 * lease.c - Goal of these tests: the arithmetic of a lease is that of the design, digit
 * by digit.
 */
#include "cmd/supervise/lease.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#define MS NS_PER_MS
#define S NS_PER_S

static const struct {
	int64_t ttl, attempt, grace, term_after, kill_after; /* in ms */
	int attempts;
} table[] = {
    {3000, 300, 500, 1970, 2470, 2},
    {5000, 500, 833, 3617, 4450, 3},
    {10000, 1000, 1667, 7733, 9400, 3},
    {15000, 1500, 2500, 11850, 14350, 3},
    {30000, 3000, 5000, 24200, 29200, 4},
};

static void
near(int64_t ns, int64_t ms)
{
	if (llabs(ns - ms * MS) > MS)
		fail_msg("%.4f s is not %.3f s", (double)ns / S, (double)ms / 1000);
}

static void
table_of_deadlines(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
		int64_t ttl = table[i].ttl * MS, grace = lease_grace(ttl);
		instant term_at, kill_at, sent = 1000 * S;

		near(lease_attempt(ttl), table[i].attempt);
		near(grace, table[i].grace);
		lease_deadlines(sent, ttl, grace, &term_at, &kill_at);
		near(term_at - sent, table[i].term_after);
		near(kill_at - sent, table[i].kill_after);
		assert_true(lease_fits(ttl, lease_pace(ttl), grace));
	}
}

/*
 * How many attempts fit between the first renewal and TERM, as section 3.4 counts them.
 */
static void
attempts_before_term(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
		int64_t ttl = table[i].ttl * MS, attempt = lease_attempt(ttl);
		instant term_at, kill_at;

		lease_deadlines(0, ttl, lease_grace(ttl), &term_at, &kill_at);
		assert_int_equal(
		    (term_at - ttl / 3) / (attempt + attempt / 6), table[i].attempts);
	}
}

static void
lease_for_ever_has_no_deadline(void **state)
{
	instant term_at = 1, kill_at = 1;

	(void)state;
	lease_deadlines(1000 * S, LEASE_FOREVER, 5 * S, &term_at, &kill_at);
	assert_true(term_at == NEVER && kill_at == NEVER);
	assert_true(lease_grace(LEASE_FOREVER) == 5 * S);
}

/*
 * From every ttl of 3 s on, the default grace fits; there are shorter ones that do not.
 */
static void
defaults_fit_from_three_seconds_on(void **state)
{
	(void)state;
	for (int64_t ttl = 3 * S; ttl < 200 * S; ttl += 7 * MS)
		assert_true(lease_fits(ttl, lease_pace(ttl), lease_grace(ttl)));
	for (int64_t ttl = 365 * 86400 * S; ttl > 200 * S; ttl /= 3)
		assert_true(lease_fits(ttl, lease_pace(ttl), lease_grace(ttl)));
	assert_false(
	    lease_fits(1900 * MS, lease_pace(1900 * MS), lease_grace(1900 * MS)));
	assert_false(lease_fits(S, lease_pace(S), 0));
	assert_false(lease_fits(0, lease_pace(0), 0));
}

/* The least ttl is what it says: it fits, and a tenth of a second less does not. */
static void
least_ttl_for_a_grace(void **state)
{
	(void)state;
	assert_true(lease_least(60 * S) == 103 * S);
	assert_true(lease_least(0) == 3 * S);
	for (int64_t grace = 0; grace < 100 * S; grace += 333 * MS) {
		int64_t least = lease_least(grace);

		assert_true(lease_fits(least, lease_pace(least), grace));
		assert_true(least == 3 * S ||
		    !lease_fits(least - S, lease_pace(least - S), grace));
	}
	assert_true(lease_least(365 * 86400 * S) < NEVER);
}

/* If a ttl fits, so does every longer one; lease_least() relies on it. */
static void
longer_leases_fit_better(void **state)
{
	(void)state;
	for (int64_t grace = 0; grace < 20 * S; grace += 777 * MS) {
		bool fitted = false;

		for (int64_t ttl = S; ttl < 60 * S; ttl += 10 * MS) {
			bool fits = lease_fits(ttl, lease_pace(ttl), grace);

			assert_true(fits || !fitted);
			fitted = fits;
		}
		assert_true(fitted);
	}
}

/* TERM before KILL before the server can give the lock away, at a clock 1 % fast. */
static void
deadlines_lie_before_the_end(void **state)
{
	(void)state;
	for (int64_t ttl = 3 * S; ttl < 100 * S; ttl += 13 * MS) {
		instant term_at, kill_at, sent = 77 * S;

		lease_deadlines(sent, ttl, lease_grace(ttl), &term_at, &kill_at);
		assert_true(sent + ttl / 3 < term_at);
		assert_true(term_at < kill_at);
		assert_true(kill_at + KAPPA <= sent + ttl / 101 * 100 + S / 1000);
	}
}

/*
 * Do the first renewal and one more get their whole time before TERM, if nobody answers
 * and the pause is the longest?
 */
static bool
two_attempts_fit(int64_t lease, int64_t pace)
{
	int64_t attempt = lease_attempt(lease), grace = lease_grace(lease);
	instant term_at, kill_at;

	lease_deadlines(0, lease, grace, &term_at, &kill_at);
	return pace + attempt + attempt / 6 * 3 / 2 + attempt <= term_at;
}

/*
 * A server may grant less than the least ttl.  ZooKeeper's pace is a twelfth of its
 * session, which is the lease where it is alone, and else 53 % of it: one
 * second just does in the one case, and does not in the other.
 */
static void
tiny_leases_of_a_server(void **state)
{
	(void)state;
	for (int64_t session = 100 * MS; session < 10 * S; session += MS) {
		int64_t pace = session / 12,
			member = session - session * 3 / 10 - 2 * pace;

		assert_true(!lease_fits(session, pace, lease_grace(session)) ||
		    two_attempts_fit(session, pace));
		assert_true(!lease_fits(member, pace, lease_grace(member)) ||
		    two_attempts_fit(member, pace));
	}
	assert_true(lease_fits(S, S / 12, lease_grace(S)));
	assert_false(lease_fits(950 * MS, 950 * MS / 12, lease_grace(950 * MS)));
	assert_false(lease_fits(533 * MS, S / 12, lease_grace(533 * MS)));
	assert_false(lease_fits(600 * MS, 50 * MS, lease_grace(600 * MS)));
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(table_of_deadlines),
	    cmocka_unit_test(attempts_before_term),
	    cmocka_unit_test(lease_for_ever_has_no_deadline),
	    cmocka_unit_test(defaults_fit_from_three_seconds_on),
	    cmocka_unit_test(least_ttl_for_a_grace),
	    cmocka_unit_test(longer_leases_fit_better),
	    cmocka_unit_test(deadlines_lie_before_the_end),
	    cmocka_unit_test(tiny_leases_of_a_server),
	};

	return cmocka_run_group_tests_name("lease", tests, NULL, NULL);
}
