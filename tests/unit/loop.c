/*
 * loop.c - Goal of these tests: the child that asks the kernel whether our group would stop
 * leaves nothing behind, at whatever moment its parent is killed.
 */
#include "cmd/supervise/loop.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static int to_close = -1; /* of a parent that is not to come to its wait */

/* Before the C library's: here a parent stays as long as it lives. */
pid_t
waitpid(pid_t pid, int *status, int flags)
{
	if (to_close >= 0) {
		close(to_close);
		for (;;)
			pause();
	}
	return wait4(pid, status, flags, NULL);
}

static void
a_probe_ends_with_its_parent_and_keeps_nothing_open(void **state)
{
	int ends[2];
	pid_t parent;
	siginfo_t found = {0};

	(void)state;
	prctl(PR_SET_CHILD_SUBREAPER, 1);
	assert_int_equal(pipe(ends), 0);
	parent = fork();
	if (parent == 0) {
		to_close = ends[1];
		loop_suspends_group(SIGSTOP, true);
		_exit(1);
	}
	close(ends[1]);
	assert_int_equal(read(ends[0], &(char){0}, 1), 0); /* the probe has closed it */
	kill(parent, SIGKILL);
	assert_int_equal(waitpid(parent, NULL, 0), parent);
	for (int i = 0; i < 2000 && found.si_pid == 0; i++) {
		usleep(5000);
		assert_int_equal(
		    waitid(P_ALL, 0, &found, WEXITED | WNOHANG | WNOWAIT), 0);
	}
	assert_int_not_equal(found.si_pid, 0);
	assert_int_equal(waitpid(found.si_pid, NULL, 0), found.si_pid);
	close(ends[0]);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(a_probe_ends_with_its_parent_and_keeps_nothing_open),
	};

	alarm(60);
	return cmocka_run_group_tests_name("loop", tests, NULL, NULL);
}
