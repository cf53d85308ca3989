/*
 * front_signals.c - Goal of these tests: whatever else lies before a keeper that sleeps, it gets
 * each signal from which something else follows; what the command had is for nobody else, and a
 * hold ends with its parent.
 */
#define front_signals_reap test_front_signals_reap
#define front_signals_ends test_front_signals_ends
#define front_signals_take test_front_signals_take
#define front_signals_suspended test_front_signals_suspended
#define front_signals_suspend test_front_signals_suspend
#define front_signals_granted test_front_signals_granted
#define front_signals_begin test_front_signals_begin
#define front_signals_watch test_front_signals_watch
#include "cmd/supervise/front_signals.c"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

static void
a_crowd_keeps_back_only_what_is_the_same(void **state)
{
	static const struct signal_case cases[] = {
	    {.sig = SIGTERM, .reach = REACH_US},
	    {.sig = SIGTERM, .reach = REACH_GROUP},
	    {.sig = SIGTERM, .reach = REACH_US, .sender = FROM_COMMAND},
	    {.sig = SIGINT, .reach = REACH_GROUP, .by_key = true},
	    {.sig = SIGINT, .reach = REACH_GROUP},
	    {.sig = SIGINT, .reach = REACH_GROUP, .had = true},
	};
	enum { N = sizeof cases / sizeof *cases };
	struct msg m = {.kind = MSG_TRACE}, got;
	struct anchors a;
	struct front f = {0};
	int ends[2];
	size_t n = 0;

	(void)state;
	assert_int_equal(link_open(ends), 0);
	f.keeper.link = ends[0];
	memset(m.text, 't', sizeof m.text - 1);
	while (!link_is_crowded(ends[0]))
		link_send(ends[0], &m, NULL, NULL);
	for (size_t i = 0; i < 2 * N; i++)
		pass_on(&f, &(struct msg){.kind = MSG_SIGNAL, .got = cases[i % N]});
	while (link_receive(ends[1], &got, &a, NULL) == 1)
		if (got.kind == MSG_SIGNAL) {
			assert_in_range(n, 0, N - 1);
			assert_memory_equal(&got.got, &cases[n], sizeof got.got);
			n++;
		}
	assert_int_equal(n, N);
	/* what has been read may come again */
	pass_on(&f, &(struct msg){.kind = MSG_SIGNAL, .got = *cases});
	assert_int_equal(link_receive(ends[1], &got, &a, NULL), 1);
	close(ends[0]);
	close(ends[1]);
}

static void
what_the_command_had_is_for_nobody_else(void **state)
{
	static struct page page;
	struct front f = {.page = &page};
	struct signal_case c = {.sig = SIGTERM,
	    .reach = REACH_GROUP,
	    .state = SIGNAL_RESTS,
	    .ends = true,
	    .terminal = true};

	(void)state;
	page.died_at = instant_now() + 60 * NS_PER_S; /* just now, however slow we are */
	page.died_of = SIGTERM;
	assert_true(had_it(&f, &c, 0));
	assert_false(had_it(&f, &c, 0));
	/* it died of one that was sent to it alone */
	f.given = 0;
	page.died_at = instant_now() - 2 * NS_PER_S;
	assert_false(had_it(&f, &c, 0));
	/* it ends between our look and the keeper's */
	c.state = SIGNAL_RUNS;
	c.had = had_it(&f, &c, 0);
	c.state = SIGNAL_RESTS;
	assert_int_equal(signal_decide(&c), DEED_NOTHING);
}

/* Between the front's look at its number and its group, the keeper has reaped it. */
static void
a_command_that_was_just_reaped_was_in_our_group(void **state)
{
	pid_t gone = fork(), other;
	int ends[2];

	(void)state;
	if (gone == 0)
		_exit(0);
	waitpid(gone, NULL, 0);
	assert_false(is_in_other_group(gone));
	assert_false(is_in_other_group(0));
	assert_int_equal(pipe(ends), 0);
	other = fork();
	if (other == 0) {
		setpgid(0, 0);
		close(ends[1]);
		pause();
		_exit(0);
	}
	close(ends[1]);
	assert_int_equal(read(ends[0], &(char){0}, 1), 0);
	assert_true(is_in_other_group(other));
	kill(other, SIGKILL);
	waitpid(other, NULL, 0);
	close(ends[0]);
}

/* It is killed as soon as it was forked, and has our ends of the pipe still. */
static void
a_guard_that_has_not_run_continues_nobody(void **state)
{
	struct guard g = {0};
	sigset_t cont, before;
	int ends[2], its;

	(void)state;
	sigemptyset(&cont);
	sigaddset(&cont, SIGCONT);
	sigprocmask(SIG_BLOCK, &cont, &before);
	assert_int_equal(pipe(ends), 0);
	fcntl(ends[0], F_SETOWN, getpid());
	fcntl(ends[0], F_SETSIG, SIGCONT);
	fcntl(ends[0], F_SETFL, O_ASYNC | O_NONBLOCK);
	its = dup(ends[0]);
	g.fd = ends[0];
	guard_end(&g);
	close(ends[1]);
	sigpending(&cont);
	assert_false(sigismember(&cont, SIGCONT));
	close(its);
	sigprocmask(SIG_SETMASK, &before, NULL);
}

/* The asker tells of the end of its parent, for which nobody ignores TERM. */
static void
term_of_the_asker_ends_though_the_caller_ignores_it(void **state)
{
	struct script script = {.ward.ops = &script_ops, .asker = 4711};
	const struct run run = {.ward = &script.ward};
	const struct front f = {.run = &run};
	const struct received asker = {.sig = SIGTERM, .sender = 4711},
			      other = {.sig = SIGTERM, .sender = 4712},
			      winch = {.sig = SIGWINCH, .sender = 4711};

	(void)state;
	signal(SIGTERM, SIG_IGN);
	assert_true(front_signals_ends(&f, &asker));
	assert_false(front_signals_ends(&f, &other));
	assert_false(front_signals_ends(&f, &winch));
	signal(SIGTERM, SIG_DFL);
	assert_true(front_signals_ends(&f, &other));
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(a_crowd_keeps_back_only_what_is_the_same),
	    cmocka_unit_test(a_command_that_was_just_reaped_was_in_our_group),
	    cmocka_unit_test(what_the_command_had_is_for_nobody_else),
	    cmocka_unit_test(a_guard_that_has_not_run_continues_nobody),
	    cmocka_unit_test(term_of_the_asker_ends_though_the_caller_ignores_it),
	};

	return cmocka_run_group_tests_name("front_signals", tests, NULL, NULL);
}
