/*
 * step.c - Goal of these tests: an end that is seen late is a loss.  (The
 * arithmetic of a lease: lease.c.  All else that step() does: simulate.c.)
 */
#include "cmd/supervise/step.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define MS NS_PER_MS
#define S NS_PER_S

static void
instants_do_not_wrap(void **state)
{
	(void)state;
	assert_true(instant_after(5, 6) == 11);
	assert_true(instant_after(5, NEVER) == NEVER);
	assert_true(instant_after(NEVER, 5) == NEVER);
	assert_true(instant_after(NEVER - 1, 5) == NEVER);
	assert_true(instant_after(NEVER - 5, 4) == NEVER - 1);
	assert_true(instant_first(5, NEVER) == 5 && instant_first(NEVER, 5) == 5);
	assert_true(ns_to_ms(0) == 0 && ns_to_ms(1) == 1 && ns_to_ms(MS) == 1 &&
	    ns_to_ms(MS + 1) == 2);
}

/* ---- one keeper, told what happens when; times in seconds after the grant ---- */

#define GRANT (100 * S) /* ttl 6 s: TERM 4.44 s, KILL 5.44 s after it */

static struct keep keeper;

static struct actions
tell_event(double after, struct event e)
{
	return step(&keeper, GRANT + (instant)(after * S), &e);
}

static struct actions
tell(double after, enum event_kind kind, int value)
{
	return tell_event(after, (struct event){.kind = kind, .value = value});
}

static void
begin_with(struct terms terms)
{
	terms.ttl = 6 * S;
	terms.grace = S;
	terms.max_run = NEVER;
	terms.kill_after = terms.kill_after ? terms.kill_after : NEVER;
	keep_init(&keeper, &terms, 1);
	tell(-0.1, EV_TICK, 0);
	assert_true(tell_event(0,
			(struct event){.kind = EV_GRANTED, .sent = GRANT, .lease = 6 * S})
			.set &
	    DO_GO);
	tell(0.1, EV_STARTED, 0);
	assert_true(tell(2, EV_TICK, 0).set & DO_RENEW);
	tell(2.6, EV_UNANSWERED, 0);
}

static int
begin(void **state)
{
	(void)state;
	begin_with((struct terms){.min_hold = 0});
	return 0;
}

static void
assert_lost(void)
{
	assert_int_equal(keeper.ending.kind, END_LOST);
	assert_int_equal(keeper.ending.loss, LOSS_SILENCE);
}

/* The renewal after that is due as ever, and what is told to nested runs never was less. */
static void
a_renewal_that_is_wanted_soon_comes_early_once(void **state)
{
	const struct terms terms = {
	    .ttl = 6 * S, .grace = S, .max_run = NEVER, .kill_after = NEVER};

	(void)state;
	keep_init(&keeper, &terms, 1);
	tell(-0.1, EV_TICK, 0);
	tell_event(0,
	    (struct event){.kind = EV_GRANTED, .sent = GRANT, .lease = 6 * S, .soon = S});
	assert_int_equal(keeper.lease.pace, 2 * S);
	tell(0.1, EV_STARTED, 0);
	assert_false(tell(0.9, EV_TICK, 0).set & DO_RENEW);
	assert_true(tell(1, EV_TICK, 0).set & DO_RENEW);
	tell_event(
	    1.1, (struct event){.kind = EV_RENEWED, .sent = GRANT + S, .lease = 6 * S});
	assert_false(tell(2.9, EV_TICK, 0).set & DO_RENEW);
	assert_true(tell(3, EV_TICK, 0).set & DO_RENEW);
}

/* A command that a signal has asked to end goes on until the time is over, and no longer. */
static void
what_was_asked_to_end_is_killed_in_time(void **state)
{
	(void)state;
	begin_with((struct terms){.kill_after = S});
	tell(2.7, EV_ASKED, 15);
	assert_int_equal(tell(3, EV_ASKED, 1).wake, GRANT + (instant)(3.7 * S));
	assert_false(tell(3.6, EV_TICK, 0).set & DO_KILL);
	assert_true(tell(3.7, EV_TICK, 0).set & DO_KILL);
	tell(3.8, EV_ENDED, 9);
	tell(3.8, EV_EMPTY, 0);
	assert_int_equal(keeper.phase, PH_GIVE_BACK);
	assert_int_equal(keeper.ending.kind, END_KILLED);
	assert_int_equal(keeper.ending.value, 15);
}

/* Its own end counts; that of what it has left does not. */
static void
what_ends_when_it_was_asked_ends_as_it_did(void **state)
{
	(void)state;
	for (int wait_tree = 0; wait_tree < 2; wait_tree++) {
		begin_with((struct terms){.kill_after = S, .wait_tree = wait_tree});
		tell(2.7, EV_ASKED, 15);
		tell(3, EV_ENDED, 3 << 8);
		assert_int_equal(
		    tell(3.7, EV_TICK, 0).set & DO_KILL, wait_tree ? DO_KILL : 0);
		assert_int_equal(
		    keeper.ending.kind, wait_tree ? END_KILLED : END_COMMAND);
	}
}

static void
a_lock_that_is_lost_meanwhile_is_lost(void **state)
{
	(void)state;
	for (int i = 1; i <= 10; i += 9) { /* killed already, and slow to die; not yet */
		begin_with((struct terms){.kill_after = i * S});
		tell(2.7, EV_ASKED, 15);
		tell(3.7, EV_TICK, 0);
		tell(4.5, EV_TICK, 0);
		assert_lost();
	}
}

static void
what_has_not_begun_when_it_is_killed_is_interrupted(void **state)
{
	const struct terms terms = {
	    .ttl = 6 * S, .grace = S, .max_run = NEVER, .kill_after = S};

	(void)state;
	keep_init(&keeper, &terms, 1);
	tell(-0.1, EV_TICK, 0);
	tell_event(0, (struct event){.kind = EV_GRANTED, .sent = GRANT, .lease = 6 * S});
	tell(0.1, EV_ASKED, 15);
	assert_true(tell(1.1, EV_TICK, 0).set & DO_KILL);
	tell(1.2, EV_EXEC_FAILED, 0);
	assert_int_equal(keeper.ending.kind, END_INTERRUPTED);
	assert_int_equal(keeper.ending.value, 15);
}

/* It is given back with the patience of a lease, for others would wait for its end. */
static void
a_grant_that_is_refused_after_all_goes_back(void **state)
{
	const struct terms terms = {
	    .ttl = 6 * S, .grace = S, .max_run = NEVER, .kill_after = NEVER};
	struct actions a;

	(void)state;
	keep_init(&keeper, &terms, 1);
	tell(-0.1, EV_TICK, 0);
	a = tell_event(0,
	    (struct event){
		.kind = EV_GRANTED, .value = RC_DENIED, .sent = GRANT, .lease = 6 * S});
	assert_int_equal(a.set, DO_RELEASE);
	assert_int_equal(keeper.ending.kind, END_REFUSED);
	assert_int_equal(keeper.ending.value, RC_DENIED);
	a = tell(0.8, EV_RELEASED, RC_AGAIN);
	assert_int_equal(a.set, DO_REPORT);
	assert_true(tell(2, EV_TICK, 0).set & DO_RELEASE);
	assert_int_equal(tell(2.1, EV_RELEASED, RC_OK).set, DO_EXIT);
}

/*
 * The keeper slept from before TERM until after it; the front has stopped the command,
 * which ended with 0.
 */
static void
late_keeper_takes_no_end_for_the_commands_own(void **state)
{
	(void)state;
	assert_int_equal(tell(4.9, EV_ENDED, 0).set & (DO_RELEASE | DO_TERM), DO_TERM);
	assert_lost();
	assert_true(tell(5.44, EV_TICK, 0).set & DO_KILL);
	assert_true(tell(5.45, EV_EMPTY, 0).set & DO_RELEASE);
	assert_true(tell(5.46, EV_RELEASED, RC_OK).set & DO_REPORT);
	assert_lost();
}

static void
late_keeper_takes_no_empty_tree_for_a_good_end(void **state)
{
	(void)state;
	begin_with((struct terms){.wait_tree = true});
	tell(4.4, EV_ENDED, 0);
	/* a renewal is under way */
	assert_int_equal(tell(4.9, EV_EMPTY, 0).set, DO_END_CALL);
	assert_lost();
}

static void
late_keeper_takes_no_parting_for_a_good_end(void **state)
{
	(void)state;
	tell(3, EV_JOINED, 0);
	tell(4.4, EV_ENDED, 0);
	assert_false(tell(4.9, EV_PARTED, 0).set & DO_RELEASE);
	assert_lost();
}

/*
 * Overtaken between two steps: the renewal was in time, the front did not see it any
 * more.
 */
static void
what_the_front_has_stopped_is_lost_whatever_the_deadline(void **state)
{
	struct actions a;

	(void)state;
	tell_event(4.43,
	    (struct event){.kind = EV_RENEWED, .sent = GRANT + 4 * S, .lease = 6 * S});
	a = tell(4.6, EV_OVERTAKEN, 0);
	assert_false(a.set & DO_TERM); /* it has got one */
	assert_lost();
	assert_false(tell(4.6, EV_ENDED, 0).set & DO_RELEASE);
	assert_true(tell(9.44, EV_TICK, 0).set & DO_KILL);
}

/* A front that gives up a silent keeper of a lock without a lease may be killed before it has killed. */
static void
what_the_front_was_to_kill_does_not_run_for_ever(void **state)
{
	(void)state;
	tell_event(4.43,
	    (struct event){
		.kind = EV_RENEWED, .sent = GRANT + 4 * S, .lease = LEASE_FOREVER});
	tell(20, EV_OVERTAKEN, 0);
	assert_int_equal(tell(20.1, EV_ORPHANED, 0).wake, GRANT + 21 * S);
	assert_false(tell(20.9, EV_TICK, 0).set & DO_KILL);
	assert_true(tell(21, EV_TICK, 0).set & DO_KILL);
	assert_lost();
}

static void
end_in_time_is_the_commands_own(void **state)
{
	(void)state;
	assert_true(tell(4.4, EV_ENDED, 0).set & DO_RELEASE);
	tell(4.9, EV_OVERTAKEN, 0); /* it could not know yet */
	assert_true(tell(5, EV_RELEASED, RC_OK).set & DO_REPORT);
	assert_int_equal(keeper.ending.kind, END_COMMAND);
}

/* An attempt has a tenth of the lease, but none lasts beyond TERM. */
static void
no_renewal_is_awaited_beyond_term(void **state)
{
	struct actions a;

	(void)state;
	a = tell(3, EV_TICK, 0);
	assert_true(a.set & DO_RENEW);
	assert_true(a.until == GRANT + 3 * S + 600 * MS);
	tell(3.6, EV_UNANSWERED, 0);
	a = tell(4.4, EV_TICK, 0);
	assert_true(a.set & DO_RENEW);
	assert_true(a.until == keeper.lease.term_at && a.until < GRANT + 4500 * MS);
}

/* ---- giving back ---- */

static void
unanswered_release_is_told_and_asked_for_again(void **state)
{
	struct actions a;
	double now = 3;

	(void)state;
	assert_true(tell(now, EV_ENDED, 0).set & DO_RELEASE);
	a = tell(now, EV_RELEASED, RC_AGAIN);
	assert_int_equal(a.set, DO_REPORT);
	assert_true(keeper.ending.unconfirmed && keeper.ending.kept == KEPT_TRYING);
	for (int tries = 0; !(a.set & DO_EXIT); tries++) {
		double pause = (double)(a.wake - GRANT) / S - now;

		assert_true(pause >= 0.499 && pause <= 1.001);
		now += pause;
		a = tell(now, EV_TICK, 0);
		if (a.set & DO_EXIT)
			break;
		assert_int_equal(a.set, DO_RELEASE);
		a = tell(now, EV_RELEASED, RC_AGAIN);
		assert_true(tries < 20);
	}
	/* a lease after the last request for one */
	assert_true(now > 2 + 6 && now < 2 + 6.2 + 1);
	assert_true(keeper.ending.unconfirmed);
}

static void
asking_again_ends_with_the_answer_and_with_term(void **state)
{
	(void)state;
	tell(3, EV_ENDED, 0);
	tell(3, EV_RELEASED, RC_AGAIN);
	assert_int_equal(tell(4.1, EV_TICK, 0).set, DO_RELEASE);
	assert_int_equal(tell(4.1, EV_RELEASED, RC_LOST).set, DO_EXIT);
	assert_int_equal(keeper.ending.kind, END_COMMAND);
	begin(state);
	tell(3, EV_ENDED, 0);
	tell(3, EV_RELEASED, RC_AGAIN);
	assert_int_equal(tell(3.1, EV_TERMINATED, 15).set, DO_EXIT);
}

static void
kernel_locks_end_with_the_process(void **state)
{
	(void)state;
	keep_init(&keeper,
	    &(struct terms){.ttl = 6 * S, .max_run = NEVER, .kill_after = NEVER}, 1);
	tell(-0.1, EV_TICK, 0);
	tell_event(
	    0, (struct event){.kind = EV_GRANTED, .sent = GRANT, .lease = LEASE_FOREVER});
	assert_true(tell(1, EV_ENDED, 0).set & DO_RELEASE);
	assert_int_equal(tell(1, EV_RELEASED, RC_AGAIN).set, DO_REPORT | DO_EXIT);
}

static void
min_hold_ends_with_term(void **state)
{
	(void)state;
	begin_with((struct terms){.min_hold = 3600 * S});
	assert_true(tell(3, EV_ENDED, 0).set & DO_RENEW);
	assert_true(
	    tell_event(3,
		(struct event){.kind = EV_RENEWED, .sent = GRANT + 3 * S, .lease = 6 * S})
		.set &
	    DO_REPORT);
	assert_int_equal(keeper.ending.kept, KEPT_MIN_HOLD);
	assert_int_equal(tell(4, EV_TERMINATED, 15).set, DO_RELEASE);
	assert_int_equal(tell(4, EV_RELEASED, RC_OK).set, DO_EXIT);
}

/*
 * TERM to all of a service's processes: the command ends of it, and the lock is not
 * kept.
 */
static void
min_hold_is_given_up_with_term_while_the_command_runs(void **state)
{
	(void)state;
	begin_with((struct terms){.min_hold = 3600 * S});
	tell(3, EV_TERMINATED, 15);
	/* a renewal is under way */
	assert_int_equal(tell(3.1, EV_ENDED, 15).set, DO_END_CALL);
	assert_int_equal(tell(3.1, EV_UNANSWERED, 0).set, DO_RELEASE);
}

static void
min_hold_ends_when_the_lock_is_wanted_back(void **state)
{
	(void)state;
	begin_with((struct terms){.min_hold = 3600 * S});
	assert_true(tell(3, EV_ENDED, 0).set & DO_RENEW);
	assert_int_equal(
	    tell_event(3,
		(struct event){.kind = EV_REVOKED, .sent = GRANT + 3 * S, .lease = 6 * S})
		    .set &
		(DO_RELEASE | DO_RENEW),
	    DO_RELEASE);
	assert_int_equal(keeper.ending.kind, END_COMMAND);
}

static void
nested_min_hold_is_the_outer_ones(void **state)
{
	(void)state;
	begin_with((struct terms){.min_hold = 3600 * S});
	keeper.lock.nested = true;
	assert_int_equal(tell(3, EV_ENDED, 0).set, DO_RELEASE);
	assert_true(keep_wanted_until(&keeper) == GRANT + 3600 * S);
	assert_true(tell(3, EV_RELEASED, RC_OK).set & DO_REPORT);
	assert_int_equal(keeper.ending.kept, KEPT_OUTSIDE);
}

static void
one_of_several_keys_that_is_lost_leaves_the_others_to_be_released(void **state)
{
	(void)state;
	for (int several = 0; several < 2; several++) {
		begin_with((struct terms){.min_hold = 0});
		keeper.lock.several = several;
		assert_true(tell(3, EV_TICK, 0).set & DO_RENEW);
		assert_true(tell(3, EV_DISOWNED, 0).set & DO_KILL);
		/* its tree may still run */
		assert_false(tell(3.1, EV_ENDED, 9).set & (DO_RELEASE | DO_REPORT));
		assert_int_equal(tell(3.2, EV_EMPTY, 0).set,
		    several ? DO_RELEASE : DO_REPORT | DO_EXIT);
		if (several)
			assert_int_equal(
			    tell(3.3, EV_RELEASED, RC_LOST).set, DO_REPORT | DO_EXIT);
		assert_int_equal(keeper.ending.kind, END_LOST);
		assert_int_equal(keeper.ending.loss, LOSS_TAKEN);
	}
}

/* ---- those that have joined a hold, and are not below it ---- */

/* The process has ended; the other runs on. */
static void
begin_joined(void)
{
	begin_with((struct terms){0});
	tell(1, EV_JOINED, 0);
	tell(1, EV_EMPTY, 0);
	assert_false(tell(1, EV_ENDED, 0).set & DO_RELEASE);
}

static void
what_is_lost_is_not_released_before_those_who_joined_have_parted(void **state)
{
	(void)state;
	for (int parts = 0; parts < 2; parts++) {
		begin_joined();
		assert_true(tell(4.5, EV_TICK, 0).set & DO_TERM); /* they are told */
		assert_lost();
		if (parts) {
			assert_true(tell(4.9, EV_PARTED, 0).set & DO_RELEASE);
			continue;
		}
		assert_false(tell(5.4, EV_TICK, 0).set & (DO_RELEASE | DO_EXIT));
		/* it is frozen, and may go on at any time */
		assert_int_equal(tell(5.45, EV_TICK, 0).set, DO_REPORT | DO_EXIT);
	}
}

/* Its tree is gone; only the one that has joined may still run. */
static void
nobody_is_woken_again_and_again_for_who_has_joined(void **state)
{
	struct actions a;

	(void)state;
	begin_with((struct terms){0});
	tell(1, EV_JOINED, 0);
	assert_true(tell(3, EV_TICK, 0).set & DO_RENEW);
	assert_true(tell(3, EV_DISOWNED, 0).set & DO_KILL);
	tell(3.1, EV_ENDED, 9);
	a = tell(3.1, EV_EMPTY, 0);
	assert_false(a.set & (DO_KILL | DO_RELEASE | DO_EXIT));
	assert_true(a.wake == keeper.lease.kill_at);
}

static void
what_is_asked_back_is_not_renewed_for_ever_for_who_has_joined(void **state)
{
	struct actions a;

	(void)state;
	begin_joined();
	assert_true(tell(3, EV_TICK, 0).set & DO_RENEW);
	a = tell_event(
	    3, (struct event){.kind = EV_REVOKED, .sent = GRANT + 3 * S, .lease = 6 * S});
	assert_true(a.set & DO_TERM);
	a = tell(5.1, EV_TICK, 0); /* grace is over */
	assert_int_equal(a.set, 0);
	assert_true(a.wake == keeper.lease.kill_at);
	assert_int_equal(tell(7.5, EV_TICK, 0).set, 0);
	assert_int_equal(tell(8.45, EV_TICK, 0).set, DO_REPORT | DO_EXIT);
	assert_int_equal(keeper.ending.loss, LOSS_REVOKED);
}

/* ---- alerts ---- */

enum { LONG = 300 }; /* s: a lease of which a thirtieth is 10 s */

static void
begin_long(void)
{
	keep_init(&keeper,
	    &(struct terms){
		.ttl = LONG * S, .grace = S, .max_run = NEVER, .kill_after = NEVER},
	    1);
	tell(-0.1, EV_TICK, 0);
	tell_event(
	    0, (struct event){.kind = EV_GRANTED, .sent = GRANT, .lease = LONG * S});
	tell(0, EV_STARTED, 0);
}

static struct actions
renewed_at(instant now)
{
	return step(&keeper, now,
	    &(struct event){.kind = EV_RENEWED, .sent = now, .lease = LONG * S});
}

/*
 * As if each renewal opened a connection that ends at once.  Returns how often we renewed
 * from `now` on for so long.
 */
static int
renewals_while_it_rings(instant now, int64_t length)
{
	instant ends = now + length;
	int n = 0;

	while (now < ends) {
		bool rings = keep_wants_alert(&keeper, now);
		struct actions a = step(
		    &keeper, now, &(struct event){.kind = rings ? EV_ALERT : EV_TICK});

		if (a.set & DO_RENEW) {
			a = renewed_at(now);
			n++;
		}
		now = keep_wants_alert(&keeper, now) ? now + MS : a.wake;
	}
	return n;
}

static void
alerts_are_followed_at_once(void **state)
{
	(void)state;
	begin_long();
	for (int i = 1; i <= 5; i++) {
		assert_true(keep_wants_alert(&keeper, GRANT + i));
		assert_true(
		    step(&keeper, GRANT + i, &(struct event){.kind = EV_ALERT}).set &
		    DO_RENEW);
		assert_false(keep_wants_alert(&keeper, GRANT + i)); /* one is under way */
		renewed_at(GRANT + i);
	}
}

static void
alerts_of_a_tied_lock_are_all_followed_at_once(void **state)
{
	(void)state;
	begin_long();
	keeper.lock.tied = true;
	for (int i = 1; i <= 100; i++) {
		assert_true(keep_wants_alert(&keeper, GRANT + i));
		step(&keeper, GRANT + i, &(struct event){.kind = EV_ALERT});
		renewed_at(GRANT + i);
	}
}

static void
alerts_without_end_are_followed_now_and_then(void **state)
{
	(void)state;
	begin_long();
	assert_int_equal(renewals_while_it_rings(GRANT + S, S), 5);
	assert_in_range(renewals_while_it_rings(GRANT + 2 * S, 100 * S), 9, 11);
	/* and are forgotten */
	renewed_at(GRANT + 200 * S);
	assert_int_equal(renewals_while_it_rings(GRANT + 200 * S, S), 5);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(what_was_asked_to_end_is_killed_in_time),
	    cmocka_unit_test(what_ends_when_it_was_asked_ends_as_it_did),
	    cmocka_unit_test(a_lock_that_is_lost_meanwhile_is_lost),
	    cmocka_unit_test(what_has_not_begun_when_it_is_killed_is_interrupted),
	    cmocka_unit_test(a_grant_that_is_refused_after_all_goes_back),
	    cmocka_unit_test(instants_do_not_wrap),
	    cmocka_unit_test(a_renewal_that_is_wanted_soon_comes_early_once),
	    cmocka_unit_test_setup(late_keeper_takes_no_end_for_the_commands_own, begin),
	    cmocka_unit_test_setup(late_keeper_takes_no_empty_tree_for_a_good_end, begin),
	    cmocka_unit_test_setup(late_keeper_takes_no_parting_for_a_good_end, begin),
	    cmocka_unit_test_setup(
		what_the_front_has_stopped_is_lost_whatever_the_deadline, begin),
	    cmocka_unit_test_setup(
		what_the_front_was_to_kill_does_not_run_for_ever, begin),
	    cmocka_unit_test_setup(end_in_time_is_the_commands_own, begin),
	    cmocka_unit_test_setup(no_renewal_is_awaited_beyond_term, begin),
	    cmocka_unit_test_setup(unanswered_release_is_told_and_asked_for_again, begin),
	    cmocka_unit_test_setup(
		asking_again_ends_with_the_answer_and_with_term, begin),
	    cmocka_unit_test_setup(kernel_locks_end_with_the_process, begin),
	    cmocka_unit_test_setup(min_hold_ends_with_term, begin),
	    cmocka_unit_test_setup(
		min_hold_is_given_up_with_term_while_the_command_runs, begin),
	    cmocka_unit_test_setup(min_hold_ends_when_the_lock_is_wanted_back, begin),
	    cmocka_unit_test_setup(nested_min_hold_is_the_outer_ones, begin),
	    cmocka_unit_test(
		one_of_several_keys_that_is_lost_leaves_the_others_to_be_released),
	    cmocka_unit_test(
		what_is_lost_is_not_released_before_those_who_joined_have_parted),
	    cmocka_unit_test(nobody_is_woken_again_and_again_for_who_has_joined),
	    cmocka_unit_test(
		what_is_asked_back_is_not_renewed_for_ever_for_who_has_joined),
	    cmocka_unit_test(alerts_are_followed_at_once),
	    cmocka_unit_test(alerts_of_a_tied_lock_are_all_followed_at_once),
	    cmocka_unit_test(alerts_without_end_are_followed_now_and_then),
	};

	return cmocka_run_group_tests_name("step", tests, NULL, NULL);
}
