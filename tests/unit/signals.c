/*
 * signals.c - Goal of these tests: each row of the table in cmd/supervise/signals.c is decided as it says.
 * (That no row is left out here, and what comes of each with real processes: tests/system/run/test_signals.py.)
 */
#include "cmd/supervise/signals.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

/* What most rows have: TERM by `kill PID`, to the front on a terminal, while the command runs. */
#define CASE(...) \
	{ \
		.sig = SIGTERM, .state = SIGNAL_RUNS, .reach = REACH_UNKNOWN, \
		.ends = true, .terminal = true, .foreground = true, __VA_ARGS__ \
	}
#define NO_TERMINAL .terminal = false, .foreground = false, .apart = true

#pragma GCC diagnostic ignored "-Woverride-init"

static const struct row {
	const char *name;
	struct signal_case is;
	enum signal_deed deed;
} rows[] = {
    {"A1", CASE(.sig = SIGCHLD, .ends = false), DEED_REAP},
    {"A1", CASE(.sig = SIGCHLD, .ends = false, .state = SIGNAL_WAITS), DEED_REAP},
    {"A2", CASE(.sig = SIGPIPE, .sender = FROM_DLOCK), DEED_NOTHING},
    {"A2", CASE(.sig = SIGPIPE, .sender = FROM_DLOCK, .state = SIGNAL_WAITS),
	DEED_NOTHING},
    {"A2", CASE(.sig = SIGCONT, .ends = false, .sender = FROM_DLOCK, NO_TERMINAL),
	DEED_NOTHING},
    {"A3", CASE(.state = SIGNAL_OVER), DEED_NOTHING},
    {"A3", CASE(.state = SIGNAL_OVER, .getter = BY_KEEPER, .min_hold = true),
	DEED_NOTHING},
    {"W1",
	CASE(.sig = SIGTSTP, .ends = false, .state = SIGNAL_WAITS, .may_suspend = true),
	DEED_SUSPEND_WAITING},
    {"W1",
	CASE(.sig = SIGTTIN, .ends = false, .state = SIGNAL_WAITS, .may_suspend = true,
	    NO_TERMINAL),
	DEED_SUSPEND_WAITING},
    {"W2", CASE(.sig = SIGTSTP, .ends = false, .state = SIGNAL_WAITS), DEED_NOTHING},
    {"W3", CASE(.state = SIGNAL_WAITS), DEED_END_WAITING},
    {"W3",
	CASE(.state = SIGNAL_WAITS, .reach = REACH_GROUP, .sig = SIGINT, .by_key = true),
	DEED_END_WAITING},
    {"W3", CASE(.state = SIGNAL_WAITS, .reach = REACH_US, .sig = SIGALRM),
	DEED_END_WAITING},
    {"W4", CASE(.state = SIGNAL_WAITS, .ends = false), DEED_NOTHING},
    {"W4", CASE(.state = SIGNAL_WAITS, .ends = false, .sig = SIGCONT), DEED_NOTHING},
    {"R1", CASE(.sig = SIGHUP, .sent = true, .apart = true, .reach = REACH_GROUP),
	DEED_NOTHING},
    {"R2", CASE(.sig = SIGCONT, .ends = false, .apart = true), DEED_NOTHING},
    {"R3", CASE(.sig = SIGCONT, .ends = false, .apart = true, .suspended = true),
	DEED_PASS_ON},
    {"R3", CASE(.sig = SIGCONT, .ends = false, NO_TERMINAL), DEED_PASS_ON},
    {"R3", CASE(.sig = SIGINT, .reach = REACH_GROUP, .by_key = true, .apart = true),
	DEED_PASS_ON},
    {"R3", CASE(.reach = REACH_GROUP, NO_TERMINAL), DEED_PASS_ON},
    {"R3", CASE(.sender = FROM_COMMAND, NO_TERMINAL), DEED_PASS_ON},
    {"R4", CASE(.sig = SIGINT, .reach = REACH_GROUP, .by_key = true), DEED_NOTHING},
    {"R4", CASE(.reach = REACH_GROUP), DEED_NOTHING},
    {"R4", CASE(.sig = SIGCONT, .ends = false, .reach = REACH_GROUP, .suspended = true),
	DEED_NOTHING},
    {"R5", CASE(.reach = REACH_US), DEED_PASS_ON},
    {"R5", CASE(.reach = REACH_US, .sender = FROM_COMMAND), DEED_PASS_ON},
    {"R5", CASE(.reach = REACH_US, .sig = SIGALRM), DEED_PASS_ON},
    {"R5", CASE(.reach = REACH_US, .sig = SIGCONT, .ends = false), DEED_PASS_ON},
    {"R5", CASE(.reach = REACH_US, .sig = SIGTSTP, .ends = false), DEED_PASS_ON},
    {"R6", CASE(.sender = FROM_COMMAND), DEED_NOTHING},
    {"R7", CASE(.sig = SIGCONT, .ends = false, .suspended = true), DEED_NOTHING},
    {"R7", CASE(.sig = SIGCONT, .ends = false, .foreground = false), DEED_NOTHING},
    {"R8", CASE(.sig = SIGCONT, .ends = false, .foreground = false, .suspended = true),
	DEED_PASS_ON},
    {"R8", CASE(.sig = SIGTERM), DEED_PASS_ON},
    {"L1",
	CASE(.sig = SIGTSTP, .ends = false, .state = SIGNAL_RESTS, .may_suspend = true),
	DEED_SUSPEND},
    {"L2", CASE(.sig = SIGTSTP, .ends = false, .state = SIGNAL_RESTS), DEED_NOTHING},
    {"L3",
	CASE(.sig = SIGINT, .by_key = true, .reach = REACH_GROUP, .state = SIGNAL_RESTS),
	DEED_END_REST},
    {"L4",
	CASE(.sig = SIGINT, .by_key = true, .ends = false, .reach = REACH_GROUP,
	    .state = SIGNAL_RESTS),
	DEED_NOTHING},
    {"L4",
	CASE(.sig = SIGWINCH, .ends = false, .reach = REACH_GROUP, .state = SIGNAL_RESTS),
	DEED_NOTHING},
    {"L5", CASE(.reach = REACH_GROUP, .state = SIGNAL_RESTS), DEED_PASS_ON_OUTSIDE},
    {"L6", CASE(.sig = SIGCONT, .ends = false, .state = SIGNAL_RESTS), DEED_NOTHING},
    {"L7", CASE(.state = SIGNAL_RESTS), DEED_PASS_ON},
    {"L7", CASE(.reach = REACH_US, .state = SIGNAL_RESTS), DEED_PASS_ON},
    {"L7", CASE(.sig = SIGTSTP, .ends = false, .state = SIGNAL_RESTS, NO_TERMINAL),
	DEED_PASS_ON},
    {"L8", CASE(.had = true, .reach = REACH_GROUP, .state = SIGNAL_RESTS), DEED_NOTHING},
    {"L8",
	CASE(.had = true, .sig = SIGINT, .by_key = true, .reach = REACH_GROUP,
	    .state = SIGNAL_RESTS),
	DEED_NOTHING},
    {"L9",
	CASE(.sig = SIGHUP, .sent = true, .apart = true, .reach = REACH_GROUP,
	    .state = SIGNAL_RESTS),
	DEED_NOTHING},
    {"L7", CASE(.sender = FROM_COMMAND, .state = SIGNAL_RESTS, NO_TERMINAL),
	DEED_PASS_ON},
    {"L9", CASE(.sender = FROM_COMMAND, .state = SIGNAL_RESTS), DEED_NOTHING},
    {"L7", CASE(.sender = FROM_COMMAND, .reach = REACH_US, .state = SIGNAL_RESTS),
	DEED_PASS_ON},
    {"H1", CASE(.state = SIGNAL_UNDELIVERED), DEED_END_HOLD},
    {"H1",
	CASE(.sig = SIGTSTP, .ends = false, .may_suspend = true,
	    .state = SIGNAL_UNDELIVERED),
	DEED_END_HOLD},
    {"H2", CASE(.sig = SIGCONT, .ends = false, .state = SIGNAL_UNDELIVERED),
	DEED_NOTHING},
    {"H3", CASE(.state = SIGNAL_DELIVERED, .for_nobody = true), DEED_END_HOLD},
    {"H4", CASE(.state = SIGNAL_DELIVERED, .for_nobody = true, .sender = FROM_ASKER),
	DEED_NOTHING},
    {"H4", CASE(.state = SIGNAL_DELIVERED, .for_nobody = true, .sig = SIGINT),
	DEED_NOTHING},
    {"H4", CASE(.state = SIGNAL_DELIVERED), DEED_NOTHING},
    {"S1", CASE(.getter = BY_ASKER, .sig = SIGINT, .reach = REACH_GROUP), DEED_NOTHING},
    {"S2", CASE(.getter = BY_ASKER, .ends = false), DEED_NOTHING},
    {"S3", CASE(.getter = BY_ASKER, .sig = SIGALRM, .reach = REACH_US), DEED_PASS_ON},
    {"S3", CASE(.getter = BY_ASKER, .sig = SIGTSTP, .ends = false), DEED_PASS_ON},
    {"S3", CASE(.getter = BY_ASKER), DEED_PASS_ON},
    {"K1", CASE(.getter = BY_KEEPER, .state = SIGNAL_WAITS), DEED_END_WAITING},
    {"K2", CASE(.getter = BY_KEEPER, .state = SIGNAL_UNDELIVERED), DEED_END_HOLD},
    {"K2", CASE(.getter = BY_KEEPER, .state = SIGNAL_DELIVERED, .for_nobody = true),
	DEED_END_HOLD},
    {"K3", CASE(.getter = BY_KEEPER, .min_hold = true), DEED_PASS_ON},
    {"K3", CASE(.getter = BY_KEEPER, .min_hold = true, .state = SIGNAL_RESTS),
	DEED_PASS_ON},
    {"K4", CASE(.getter = BY_KEEPER), DEED_NOTHING},
    {"K4", CASE(.getter = BY_KEEPER, .state = SIGNAL_DELIVERED), DEED_NOTHING},
};

static void
each_row_is_decided_as_it_says(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
		if (signal_decide(&rows[i].is) != rows[i].deed)
			fail_msg("row %s, case %zu: deed %d", rows[i].name, i,
			    signal_decide(&rows[i].is));
}

/* Whatever else is so: nothing that runs gets a signal twice, or never, by a rule for another state. */
static void
what_is_passed_on_has_not_been_had(void **state)
{
	(void)state;
	for (int sig = 1; sig <= 64; sig++)
		for (unsigned bits = 0; bits < 1 << 8; bits++) {
			struct signal_case c = {.sig = sig,
			    .state = SIGNAL_RUNS,
			    .ends = bits & 1,
			    .terminal = true,
			    .foreground = bits & 2,
			    .suspended = bits & 4,
			    .may_suspend = bits & 8,
			    .for_nobody = bits & 16,
			    .min_hold = bits & 32,
			    .sender = bits & 64 ? FROM_COMMAND : FROM_OTHERS,
			    .by_key = bits & 128};

			if (sig == SIGCHLD)
				continue;
			c.reach = REACH_GROUP;
			assert_int_equal(signal_decide(&c), DEED_NOTHING);
			c.reach = REACH_US;
			assert_int_equal(signal_decide(&c), DEED_PASS_ON);
			c.terminal = false;
			c.apart = true;
			for (c.reach = REACH_UNKNOWN; c.reach <= REACH_GROUP; c.reach++)
				assert_int_equal(signal_decide(&c), DEED_PASS_ON);
		}
}

static void
what_the_kernel_sends_to_a_group(void **state)
{
	(void)state;
	for (int sig = 1; sig < 32; sig++) {
		bool hang_up = sig == SIGHUP || sig == SIGCONT,
		     group = hang_up || sig == SIGINT || sig == SIGQUIT ||
		    sig == SIGTSTP || sig == SIGTTIN || sig == SIGTTOU || sig == SIGWINCH;

		assert_int_equal(signal_reach_by_code(sig, SI_KERNEL, false),
		    group ? REACH_GROUP : REACH_US);
		assert_int_equal(signal_reach_by_code(sig, SI_KERNEL, true),
		    group && !hang_up ? REACH_GROUP : REACH_US);
		assert_int_equal(
		    signal_reach_by_code(sig, SI_USER, false), REACH_UNKNOWN);
		assert_int_equal(signal_reach_by_code(sig, SI_QUEUE, false), REACH_US);
		assert_int_equal(signal_reach_by_code(sig, SI_TKILL, false), REACH_US);
	}
}

/* --kill-after counts from them. */
static void
what_asks_dlock_to_end(void **state)
{
	(void)state;
	for (int sig = 1; sig <= 64; sig++) {
		struct signal_case c = {.sig = sig, .ends = true};
		bool asks = sig == SIGTERM || sig == SIGHUP || sig == SIGINT;

		assert_int_equal(signal_asks(&c), asks);
		c.by_key = true;
		assert_int_equal(signal_asks(&c), asks && sig != SIGINT);
		c.ends = false;
		assert_false(signal_asks(&c));
		c = (struct signal_case){.sig = sig, .ends = true, .sender = FROM_DLOCK};
		assert_false(signal_asks(&c));
	}
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(each_row_is_decided_as_it_says),
	    cmocka_unit_test(what_is_passed_on_has_not_been_had),
	    cmocka_unit_test(what_the_kernel_sends_to_a_group),
	    cmocka_unit_test(what_asks_dlock_to_end),
	};

	return cmocka_run_group_tests_name("signals", tests, NULL, NULL);
}
