/*
 * instant.c - Goal of these tests: the clock by which leases end goes on while the machine sleeps,
 * and what is added to an instant never comes before it.
 */
#include "backends/common/instant.h"

#include <fcntl.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#ifndef CLONE_NEWTIME
#define CLONE_NEWTIME 0x80
#endif

enum { SLEPT = 100000, FORBIDDEN = 77 };

static int
status_of(pid_t pid)
{
	int status;

	if (pid < 0 || waitpid(pid, &status, 0) != pid || !WIFEXITED(status))
		return 1;
	return WEXITSTATUS(status);
}

/* Beside CLOCK_MONOTONIC, which stands still meanwhile. */
static int
tell_time(void)
{
	struct timespec awake;

	clock_gettime(CLOCK_MONOTONIC, &awake);
	return instant_now() - awake.tv_sec * NS_PER_S < SLEPT * NS_PER_S;
}

/* The children of this process live on a machine that has slept so long (time_namespaces(7)). */
static int
have_slept(void)
{
	char text[32];
	int fd, n = snprintf(text, sizeof text, "boottime %d 0\n", SLEPT);
	pid_t pid;

	if (unshare(CLONE_NEWTIME) != 0)
		return FORBIDDEN;
	fd = open("/proc/self/timens_offsets", O_WRONLY | O_CLOEXEC);
	if (fd < 0 || write(fd, text, (size_t)n) != n)
		return FORBIDDEN;
	pid = fork();
	if (pid == 0)
		_exit(tell_time());
	return status_of(pid);
}

static void
leases_end_while_the_machine_sleeps(void **state)
{
	pid_t pid;
	int status;

	(void)state;
	pid = fork();
	if (pid == 0)
		_exit(have_slept());
	status = status_of(pid);
	if (status == FORBIDDEN) {
		print_message("only root can make a time namespace, since Linux 5.6\n");
		skip();
	}
	assert_int_equal(status, 0);
}

static void
an_instant_is_never_earlier_than_its_start(void **state)
{
	(void)state;
	assert_true(instant_after(5, 10) == 15);
	assert_true(instant_after(5, NEVER) == NEVER);
	assert_true(instant_after(NEVER, 10) == NEVER);
	assert_true(instant_after(NEVER - 5, 10) == NEVER);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(leases_end_while_the_machine_sleeps),
	    cmocka_unit_test(an_instant_is_never_earlier_than_its_start),
	};

	return cmocka_run_group_tests_name("instant", tests, NULL, NULL);
}
