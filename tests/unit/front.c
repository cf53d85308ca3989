/*
 * front.c - Goal of these tests: whatever the front does without its keeper, the user is told
 * what the keeper has still said.
 */
#define front_run test_front_run
#define front_await_joined test_front_await_joined
#define front_has_grant test_front_has_grant
#define waiting_tick test_waiting_tick
#include "cmd/supervise/front.c"

#include "cmd/supervise/told.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

static struct run run;
static struct front front;

static int
begin(void **state)
{
	(void)state;
	run = (struct run){.page = page_new(), .ward = &command_ward};
	front = (struct front){.run = &run, .page = run.page};
	page_put_ending(
	    front.page, &(struct ending){.kind = END_REFUSED, .value = RC_DENIED});
	front.page->end.why = (struct fault){"no such password"};
	atomic_store(&front.page->end.finished, true);
	return 0;
}

static void
a_keeper_that_has_told_its_end_as_it_is_given_up_is_quoted(void **state)
{
	(void)state;
	atomic_store(&front.page->end.final, true);
	take_over(&front, "it was stopped");
	assert_true(front.end.over);
	assert_int_equal(front.end.ending.kind, END_REFUSED);
	assert_int_equal(front.end.ending.value, RC_DENIED);
	assert_false(front.end.ending.unconfirmed);
	assert_string_equal(front.end.words, "no such password");
}

static void
a_keeper_that_has_not_is_told_of(void **state)
{
	(void)state;
	take_over(&front, "it was stopped");
	assert_true(front.end.over);
	assert_true(front.end.ending.unconfirmed);
	assert_string_equal(front.end.words, "it was stopped");
}

/* A process that is late has not been stopped by anybody. */
static void
what_is_said_of_a_silent_keeper_is_known(void **state)
{
	int status;

	(void)state;
	for (int stopped = 0; stopped < 2; stopped++) {
		begin(state);
		front.keeper.anchors.n = 1;
		front.keeper.pid = fork();
		if (front.keeper.pid == 0)
			for (;;)
				pause();
		if (stopped) {
			kill(front.keeper.pid, SIGSTOP);
			waitpid(front.keeper.pid, &status, WUNTRACED);
		}
		take_over_adrift(&front);
		waitpid(front.keeper.pid, &status, 0);
		assert_non_null(
		    strstr(front.end.words, "the lock's connection has ended, and "));
		assert_int_equal(
		    stopped, strstr(front.end.words, "process was stopped") != NULL);
		assert_int_equal(
		    stopped, strstr(front.end.words, "did not react in time") == NULL);
	}
}

/* What comes while a keeper ends is for the next one, or ends us before that one begins. */
static void
a_signal_that_comes_at_the_end_is_kept(void **state)
{
	sigset_t all, before, pending;

	(void)state;
	sigfillset(&all);
	sigprocmask(SIG_BLOCK, &all, &before);
	assert_int_equal(loop_open(&front.loop, &all), 0);
	raise(SIGTERM);
	raise(SIGCHLD);
	pause_until(&front, instant_now() + NS_PER_S);
	assert_int_equal(sigpending(&pending), 0);
	assert_true(sigismember(&pending, SIGTERM));
	assert_false(sigismember(&pending, SIGCHLD));
	loop_close(&front.loop);
	signal(SIGTERM, SIG_IGN); /* which takes it back */
	signal(SIGTERM, SIG_DFL);
	sigprocmask(SIG_SETMASK, &before, NULL);
}

/* ---- what is drawn ---- */

static bool drawn_unseen, drawn;

void
waiting_tick(struct waiting *g, instant now)
{
	(void)g, (void)now;
	drawn = true;
	drawn_unseen = !atomic_load(&front.page->front.on_screen);
}

/* Or the command writes before the line is drawn, which erases what it has written. */
static void
a_line_is_in_the_page_before_it_is_drawn(void **state)
{
	(void)state;
	front.waiting.line.live = true;
	show_waiting(&front);
	assert_true(drawn && !drawn_unseen);
	assert_false(atomic_load(&front.page->front.on_screen));
	drawn = false;
	atomic_store(&front.page->granted_at, instant_now());
	show_waiting(&front);
	assert_false(drawn || atomic_load(&front.page->front.on_screen));
}

/* ---- a hold ---- */

static char printed[64];
static bool takes_long, left;
static int left_with;
static void (*meanwhile)(const struct run *);

static bool
print(const struct run *r)
{
	const char *key = told_value(&r->told, VAR_KEY);

	snprintf(printed, sizeof printed, "%s", key ? key : "nothing");
	if (takes_long)
		atomic_store(&r->page->term_at, instant_now());
	if (meanwhile)
		meanwhile(r);
	return true;
}

static bool
leave(const struct run *r, int status)
{
	(void)r;
	left = true;
	left_with = status;
	return true;
}

static _Atomic int delivery;
static struct script script;
static sigset_t before_it;
static int keeper_end;

/* A front whose keeper is this test. */
static int
begin_hold(void **state)
{
	static const struct params params = {.terms.ttl = 30 * NS_PER_S,
	    .show = {.quiet = true, .status_fd = -1, .log.kind = LOG_NOWHERE}};
	static const struct origin origin = {.has_tty = false};
	static char room[sizeof "DLOCK_KEY=job"];
	sigset_t all;

	(void)state;
	delivery = UNDELIVERED;
	*printed = '\0';
	takes_long = left = false;
	meanwhile = NULL;
	script = (struct script){
	    .ward = {.ops = &script_ops, .is_hold = true, .delivery = &delivery},
	    .print = print,
	    .leave = leave};
	run = (struct run){.params = &params,
	    .origin = &origin,
	    .page = page_new(),
	    .ward = &script.ward,
	    .told = {.text = room, .n = sizeof room},
	    .parent.fd = -1};
	front = (struct front){0};
	sigfillset(&all);
	sigprocmask(SIG_BLOCK, &all, &before_it);
	if (link_open(run.ends) != 0)
		return -1;
	keeper_end = dup(run.ends[1]); /* front_begin() closes the other */
	front_begin(&front, &run, 0);
	return 0;
}

static int
end_hold(void **state)
{
	(void)state;
	close(keeper_end);
	loop_close(&front.loop);
	signal(SIGTSTP, SIG_IGN); /* which takes one back that is pending */
	signal(SIGTSTP, SIG_DFL);
	sigprocmask(SIG_SETMASK, &before_it, NULL);
	return 0;
}

static void
grant(void)
{
	static char told[] = "DLOCK_KEY=job";

	assert_true(link_send(keeper_end, &(struct msg){.kind = MSG_GRANTED},
	    &(struct anchors){0}, &(struct told){told, sizeof told}));
	atomic_store(&front.page->granted_at, instant_now());
}

/*
 * The keeper tells of the grant by a message, and then says so in the page.  A front that a signal
 * has woken may see the page first.
 */
static void
a_hold_is_delivered_when_the_message_of_the_grant_is_here(void **state)
{
	(void)state;
	atomic_store(&front.page->granted_at, instant_now());
	raise(SIGWINCH);
	front_turn(&front);
	assert_string_equal(printed, "");
	assert_int_equal(delivery, UNDELIVERED);
	grant();
	front_turn(&front);
	assert_string_equal(printed, "job");
	assert_true(left);
	assert_int_equal(delivery, DELIVERED);
}

/* Its process may have been told to end: so it stays the one that is stopped. */
static void
a_hold_that_is_lost_while_it_is_printed_ends_its_asker(void **state)
{
	(void)state;
	takes_long = true;
	grant();
	front_turn(&front);
	assert_string_equal(printed, "job");
	assert_false(left);
	assert_int_equal(delivery, DELIVERED);
	/* as a keeper does that finds nothing to be stopped any more */
	atomic_store(&front.page->end.lost, true);
	atomic_store(&front.page->end.finished, true);
	raise(SIGWINCH);
	front_turn(&front);
	page_put_ending(
	    front.page, &(struct ending){.kind = END_LOST, .loss = LOSS_TAKEN});
	atomic_store(&front.page->end.final, true);
	raise(SIGWINCH);
	front_turn(&front);
	assert_false(left);
	assert_true(front.end.over);
	assert_int_equal(front.end.ending.kind, END_LOST);
}

static void
lose_it(const struct run *r)
{
	atomic_store(&r->page->end.lost, true);
}

/* It is being stopped, with all the time of its grace. */
static void
a_hold_that_is_taken_while_it_is_printed_is_not_left_to_its_asker(void **state)
{
	(void)state;
	meanwhile = lose_it;
	grant();
	front_turn(&front);
	assert_string_equal(printed, "job");
	assert_false(left);
	assert_int_equal(delivery, DELIVERED);
	/* a process is told of it, and may wait for the asker */
	script.ward.outsider = &script.outsider;
	raise(SIGWINCH);
	front_turn(&front);
	assert_true(left);
	assert_int_equal(left_with, STATUS_LOST);
	assert_int_equal(delivery, DELIVERED);
}

static void
lose_it_at_the_end(const struct run *r)
{
	page_put_ending(r->page, &(struct ending){.kind = END_LOST, .loss = LOSS_FOUND});
	atomic_store(&r->page->end.finished, true);
}

/* Its time was over meanwhile, and then it could not be given back. */
static void
a_hold_that_was_lost_when_it_ended_is_not_left_to_its_asker(void **state)
{
	(void)state;
	meanwhile = lose_it_at_the_end;
	grant();
	front_turn(&front);
	assert_string_equal(printed, "job");
	assert_false(left);
}

static void
end_and_interrupt(const struct run *r)
{
	pid_t other = fork();

	if (other == 0) {
		kill(getppid(), SIGINT);
		_exit(0);
	}
	waitpid(other, NULL, 0);
	page_put_ending(r->page, &(struct ending){.kind = END_COMMAND});
	atomic_store(&r->page->end.finished, true);
	atomic_store(&r->page->end.final, true);
}

/* Its time was over meanwhile. */
static void
a_signal_while_a_hold_is_printed_ends_it_also_when_it_is_over(void **state)
{
	(void)state;
	signal(SIGINT, SIG_DFL); /* a shell's job in the background ignores it */
	meanwhile = end_and_interrupt;
	grant();
	front_turn(&front);
	assert_false(left);
	raise(SIGWINCH);
	front_turn(&front);
	assert_true(front.end.over);
	assert_int_equal(front.end.ending.kind, END_INTERRUPTED);
	assert_int_equal(front.end.ending.value, SIGINT);
}

/* The keeper may renew the lease at the very moment, or end the hold as it is meant to. */
static void
a_hold_whose_reader_is_slow_is_delivered_as_long_as_it_is_not_lost(void **state)
{
	(void)state;
	for (int over = 0; over < 2; over++) {
		if (over)
			begin_hold(state);
		takes_long = true;
		grant();
		front_turn(&front);
		assert_false(left);
		if (over)
			atomic_store(&front.page->end.finished, true);
		else
			atomic_store(&front.page->term_at, NEVER);
		raise(SIGWINCH);
		front_turn(&front);
		assert_true(left);
		assert_int_equal(delivery, DELIVERED);
		if (!over)
			end_hold(state);
	}
}

/* The keeper has given the hold back, since nobody could be told while the front was suspended. */
static void
a_signal_that_ends_is_not_forgotten_while_a_hold_goes_back(void **state)
{
	static const int ends[] = {0, W_EXITCODE(0, SIGSTOP)};

	(void)state;
	delivery = WITHDRAWN;
	for (int i = 0; i < 4; i++) {
		front.interrupt = i < 2 ? SIGINT : SIGTSTP;
		front_finish(&front,
		    (struct ending){.kind = END_COMMAND, .value = ends[i % 2]}, "");
		assert_int_equal(front.end.ending.kind, END_INTERRUPTED);
		assert_int_equal(front.end.ending.value, front.interrupt);
	}
	front_finish(&front,
	    (struct ending){.kind = END_COMMAND, .value = W_EXITCODE(0, SIGTERM)}, "");
	assert_int_equal(front.end.ending.kind, END_COMMAND);
	delivery = DELIVERED;
	front_finish(&front, (struct ending){.kind = END_COMMAND}, "");
	assert_int_equal(front.end.ending.kind, END_COMMAND);
}

/* Those who have joined are stopped; its own process goes on without the lock. */
static void
a_hold_that_was_given_back_before_it_was_lost_stops_nobody(void **state)
{
	(void)state;
	for (int returned = 0; returned < 2; returned++) {
		delivery = DELIVERED;
		atomic_store(&front.page->exec, EXEC_CALLED);
		atomic_store(&front.page->end.returned, returned);
		kill_and_finish(&front, failed, "its keeper was killed");
		assert_int_equal(front.end.ending.kind, END_LOST);
		assert_int_equal(front.end.ending.returned, returned);
	}
}

/* It means nobody but us: the hold has nobody else who could be suspended. */
static void
ctrl_z_at_the_grant_of_a_hold_stays_put_off(void **state)
{
	sigset_t pending;

	(void)state;
	front.suspension.put_off = true;
	loop_put_off(&front.loop, SIGTSTP);
	delivery = WITHDRAWN;
	grant();
	front_turn(&front);
	raise(SIGWINCH);
	front_turn(&front);
	assert_int_equal(sigpending(&pending), 0);
	assert_true(sigismember(&pending, SIGTSTP));
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test_setup(
		a_keeper_that_has_told_its_end_as_it_is_given_up_is_quoted, begin),
	    cmocka_unit_test_setup(a_keeper_that_has_not_is_told_of, begin),
	    cmocka_unit_test(what_is_said_of_a_silent_keeper_is_known),
	    cmocka_unit_test_setup(a_signal_that_comes_at_the_end_is_kept, begin),
	    cmocka_unit_test_setup(a_line_is_in_the_page_before_it_is_drawn, begin),
	    cmocka_unit_test_setup_teardown(
		a_hold_is_delivered_when_the_message_of_the_grant_is_here, begin_hold,
		end_hold),
	    cmocka_unit_test_setup_teardown(
		a_hold_that_is_lost_while_it_is_printed_ends_its_asker, begin_hold,
		end_hold),
	    cmocka_unit_test_setup_teardown(
		a_hold_that_is_taken_while_it_is_printed_is_not_left_to_its_asker,
		begin_hold, end_hold),
	    cmocka_unit_test_setup_teardown(
		a_hold_that_was_lost_when_it_ended_is_not_left_to_its_asker, begin_hold,
		end_hold),
	    cmocka_unit_test_setup_teardown(
		a_signal_while_a_hold_is_printed_ends_it_also_when_it_is_over, begin_hold,
		end_hold),
	    cmocka_unit_test_setup_teardown(
		a_hold_whose_reader_is_slow_is_delivered_as_long_as_it_is_not_lost,
		begin_hold, end_hold),
	    cmocka_unit_test_setup_teardown(
		a_signal_that_ends_is_not_forgotten_while_a_hold_goes_back, begin_hold,
		end_hold),
	    cmocka_unit_test_setup_teardown(
		a_hold_that_was_given_back_before_it_was_lost_stops_nobody, begin_hold,
		end_hold),
	    cmocka_unit_test_setup_teardown(
		ctrl_z_at_the_grant_of_a_hold_stays_put_off, begin_hold, end_hold),
	};

	return cmocka_run_group_tests_name("front", tests, NULL, NULL);
}
