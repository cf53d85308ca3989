/*
 * front_signals.c - Goal of these tests: whatever else lies before a keeper that sleeps, it gets
 * each signal from which something else follows; and a hold ends with its parent.
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
	    cmocka_unit_test(term_of_the_asker_ends_though_the_caller_ignores_it),
	};

	return cmocka_run_group_tests_name("front_signals", tests, NULL, NULL);
}
