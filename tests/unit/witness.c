/*
 * witness.c - Goal of these tests: the witness tells a signal to the group from one to us alone,
 * also where one that stops and one that continues have cancelled each other.
 */
#include "cmd/supervise/witness.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

static struct witness witness;

/* As a signalfd reads it, or as a stop takes it. */
static void
have(int sig)
{
	static const struct timespec soon = {.tv_sec = 5};
	sigset_t one;

	sigemptyset(&one);
	sigaddset(&one, sig);
	assert_int_equal(sigtimedwait(&one, NULL, &soon), sig);
}

static enum signal_reach
ask(int sig)
{
	return witness_ask(&witness, sig, getpid(), NEVER);
}

static int
begin(void **state)
{
	(void)state;
	witness_begin(&witness);
	return witness.pid ? 0 : -1;
}

static int
end(void **state)
{
	(void)state;
	witness_end(&witness);
	return 0;
}

static void
what_the_group_gets_is_told_from_what_we_get(void **state)
{
	(void)state;
	kill(0, SIGTERM);
	have(SIGTERM);
	assert_int_equal(ask(SIGTERM), REACH_GROUP);
	kill(getpid(), SIGTERM);
	have(SIGTERM);
	assert_int_equal(ask(SIGTERM), REACH_US);
}

static void
what_is_cancelled_after_we_have_read_it_was_for_the_group(void **state)
{
	(void)state;
	kill(0, SIGCONT);
	have(SIGCONT);
	kill(0, SIGTSTP);
	assert_int_equal(ask(SIGCONT), REACH_GROUP);
	have(SIGTSTP);
	assert_int_equal(ask(SIGTSTP), REACH_GROUP);
	kill(0, SIGTSTP);
	have(SIGTSTP);
	kill(0, SIGCONT);
	assert_int_equal(ask(SIGTSTP), REACH_GROUP);
	have(SIGCONT);
	assert_int_equal(ask(SIGCONT), REACH_GROUP);
}

/* We have stopped by it, and never read it. */
static void
what_continues_us_alone_after_a_stop_of_the_group_is_for_us(void **state)
{
	(void)state;
	kill(0, SIGTSTP);
	have(SIGTSTP);
	kill(getpid(), SIGCONT);
	have(SIGCONT);
	assert_int_equal(ask(SIGCONT), REACH_US);
	kill(getpid(), SIGTSTP);
	have(SIGTSTP);
	assert_int_equal(ask(SIGTSTP), REACH_US);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test_setup_teardown(
		what_the_group_gets_is_told_from_what_we_get, begin, end),
	    cmocka_unit_test_setup_teardown(
		what_is_cancelled_after_we_have_read_it_was_for_the_group, begin, end),
	    cmocka_unit_test_setup_teardown(
		what_continues_us_alone_after_a_stop_of_the_group_is_for_us, begin, end),
	};
	sigset_t all;

	alarm(60);
	setpgid(0, 0);
	sigfillset(&all);
	sigdelset(&all, SIGALRM);
	sigprocmask(SIG_SETMASK, &all, NULL);
	return cmocka_run_group_tests_name("witness", tests, NULL, NULL);
}
