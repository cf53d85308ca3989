/*
 * watch.c - Goal of these tests: the front does a late keeper's duty when
 * that is due, once, and only while something runs that needs the lock.  (In
 * every order with what the keeper does: simulate.c.)
 */
#include "cmd/supervise/watch.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define MS NS_PER_MS
#define S NS_PER_S
#define BEGAN (1000 * S)
#define TERM_AT (BEGAN + 24 * S)
#define KILL_AT (BEGAN + 29 * S)

static struct watch front;
static struct watch_page page;

static int
begin(void **state)
{
	(void)state;
	watch_init(&front, 30 * S, 5 * S);
	page = (struct watch_page){
	    .granted = true, .term_at = TERM_AT, .kill_at = KILL_AT, .alive_at = BEGAN};
	return 0;
}

static void
assert_duty(instant now, enum duty duty)
{
	assert_int_equal(watch(&front, now, &page).duty, duty);
}

static void
assert_wake(instant now, instant wake)
{
	struct watch_due w = watch(&front, now, &page);

	assert_int_equal(w.duty, DUTY_NONE);
	assert_true(w.wake == wake);
}

static void
deadlines_have_a_slack(void **state)
{
	(void)state;
	assert_wake(BEGAN, TERM_AT + SLACK);
	assert_wake(TERM_AT + SLACK - 1, TERM_AT + SLACK);
	assert_duty(TERM_AT + SLACK, DUTY_TERM);
	page.stopping = true;
	assert_wake(TERM_AT + SLACK, KILL_AT + SLACK);
	assert_duty(KILL_AT + SLACK, DUTY_KILL);
}

static void
keeper_that_has_sent_term_is_not_helped(void **state)
{
	(void)state;
	page.stopping = true;
	assert_wake(BEGAN, KILL_AT + SLACK);
	assert_duty(TERM_AT + SLACK, DUTY_NONE);
}

/* Both slept: there is no time left for TERM. */
static void
past_kill_at_nobody_is_asked(void **state)
{
	(void)state;
	assert_duty(KILL_AT + SLACK, DUTY_KILL);
}

static void
what_needs_no_lock_is_left_alone(void **state)
{
	(void)state;
	page.finished = true;
	assert_wake(
	    BEGAN, KILL_AT + SLACK > BEGAN + 30 * S ? BEGAN + 30 * S : KILL_AT + SLACK);
	assert_duty(TERM_AT + SLACK, DUTY_NONE);
	page.alive_at = KILL_AT;
	assert_wake(KILL_AT + SLACK, KILL_AT + SLACK + KEEPER_PATIENCE);
	assert_duty(KILL_AT + SLACK + KEEPER_PATIENCE, DUTY_GIVE_UP);
}

/* --min-hold: a renewal has come after all. */
static void
retry_begins_anew_with_a_lease(void **state)
{
	(void)state;
	page.finished = true;
	page.alive_at = KILL_AT;
	assert_duty(KILL_AT + SLACK, DUTY_NONE);
	page.kill_at = KILL_AT + S;
	assert_duty(KILL_AT + 2 * SLACK, DUTY_NONE);
	assert_wake(KILL_AT + S + SLACK, KILL_AT + S + SLACK + KEEPER_PATIENCE);
}

static void
before_the_grant_the_page_is_looked_at_in_time(void **state)
{
	instant term_at, kill_at;

	(void)state;
	page = (struct watch_page){.term_at = NEVER, .kill_at = NEVER, .alive_at = BEGAN};
	lease_deadlines(BEGAN, 30 * S, 5 * S, &term_at, &kill_at);
	assert_wake(BEGAN, term_at);
}

/* A silent keeper: doubted from a ttl on, given up after some time of our own. */
static void
silence_is_borne_for_a_ttl(void **state)
{
	(void)state;
	page.term_at = page.kill_at = NEVER;
	assert_wake(BEGAN, BEGAN + 30 * S);
	assert_wake(BEGAN + 30 * S, BEGAN + 30 * S + DOUBT);
	assert_duty(BEGAN + 30 * S + DOUBT, DUTY_GIVE_UP);
	page.alive_at = BEGAN + 31 * S;
	assert_wake(BEGAN + 32 * S, BEGAN + 61 * S);
}

/* One that wants a processor is doubted anew, but not for ever: of our own time awake. */
static void
silence_of_who_starves_is_borne_longer(void **state)
{
	instant now = BEGAN + 1000 * S;

	(void)state;
	page.term_at = page.kill_at = NEVER;
	assert_wake(now, now + DOUBT);
	for (int i = 0; i < BORNE_MOST; i++) {
		now += DOUBT;
		assert_duty(now, DUTY_GIVE_UP);
		watch_bear(&front, now, &page);
		assert_wake(now, now + DOUBT);
	}
	now += DOUBT;
	watch_bear(&front, now, &page);
	assert_duty(now, DUTY_GIVE_UP);
	page.alive_at = now; /* it has shown itself: all begins anew */
	assert_wake(now, now + 30 * S);
	assert_wake(now + 30 * S, now + 30 * S + DOUBT);
	watch_bear(&front, now + 30 * S + DOUBT, &page);
	assert_wake(now + 30 * S + DOUBT, now + 30 * S + 2 * DOUBT);
}

/* It holds nothing back but the exit status, whatever its lock is. */
static void
who_only_has_to_release_is_not_borne(void **state)
{
	(void)state;
	page.finished = true;
	page.term_at = page.kill_at = NEVER;
	assert_wake(BEGAN + 30 * S, BEGAN + 30 * S + DOUBT);
	watch_bear(&front, BEGAN + 30 * S + DOUBT, &page);
	assert_duty(BEGAN + 30 * S + DOUBT, DUTY_GIVE_UP);
}

/* And nobody is borne past the end of a lease. */
static void
who_starves_is_killed_in_time(void **state)
{
	const instant silent = KILL_AT - S + DOUBT;

	(void)state;
	page.stopping = true;
	page.alive_at = KILL_AT - 31 * S;
	assert_wake(KILL_AT - S, KILL_AT + SLACK);
	assert_duty(silent, DUTY_GIVE_UP);
	watch_bear(&front, silent, &page);
	assert_duty(silent, DUTY_KILL);
}

static void
interrupt_is_for_who_waits(void **state)
{
	(void)state;
	page.granted = false;
	watch_interrupted(&front, BEGAN);
	watch_interrupted(&front, BEGAN + S); /* the first counts */
	assert_wake(BEGAN, BEGAN + INTERRUPT_PATIENCE);
	assert_duty(BEGAN + INTERRUPT_PATIENCE, DUTY_INTERRUPT);
	page.granted = true;
	assert_duty(BEGAN + INTERRUPT_PATIENCE, DUTY_NONE);
}

static void
connection_that_ends_gives_the_keeper_a_moment(void **state)
{
	(void)state;
	watch_adrift(&front, BEGAN);
	assert_wake(BEGAN, BEGAN + ANCHOR_PATIENCE);
	assert_duty(BEGAN + ANCHOR_PATIENCE, DUTY_ADRIFT);
	page.finished = true;
	assert_duty(BEGAN + ANCHOR_PATIENCE, DUTY_NONE);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test_setup(deadlines_have_a_slack, begin),
	    cmocka_unit_test_setup(keeper_that_has_sent_term_is_not_helped, begin),
	    cmocka_unit_test_setup(past_kill_at_nobody_is_asked, begin),
	    cmocka_unit_test_setup(what_needs_no_lock_is_left_alone, begin),
	    cmocka_unit_test_setup(retry_begins_anew_with_a_lease, begin),
	    cmocka_unit_test_setup(before_the_grant_the_page_is_looked_at_in_time, begin),
	    cmocka_unit_test_setup(silence_is_borne_for_a_ttl, begin),
	    cmocka_unit_test_setup(silence_of_who_starves_is_borne_longer, begin),
	    cmocka_unit_test_setup(who_only_has_to_release_is_not_borne, begin),
	    cmocka_unit_test_setup(who_starves_is_killed_in_time, begin),
	    cmocka_unit_test_setup(interrupt_is_for_who_waits, begin),
	    cmocka_unit_test_setup(connection_that_ends_gives_the_keeper_a_moment, begin),
	};

	return cmocka_run_group_tests_name("watch", tests, NULL, NULL);
}
