/*
 * command.c - Goal of these tests: the page forgets a command before its number is free for others.
 */
#include <sys/wait.h>

/* What has stopped a child is seen; then the child is killed, before anything else is asked. */
static int
waitid_then_kill(idtype_t type, id_t id, siginfo_t *info, int options)
{
	int result = waitid(type, id, info, options);
	siginfo_t end;

	if (result == 0 && info->si_pid && info->si_code == CLD_STOPPED &&
	    (options & WNOWAIT)) {
		kill(info->si_pid, SIGKILL);
		waitid(P_PID, info->si_pid, &end, WEXITED | WNOWAIT);
	}
	return result;
}

static const struct page *shared;
static int shown; /* by the page when the command was reaped */

static pid_t waitpid_then_look(pid_t pid, int *status, int options);

#define waitid waitid_then_kill
#define waitpid waitpid_then_look
#define command_ward test_command_ward
#define command_find test_command_find
#define command_lacks_interpreter test_command_lacks_interpreter
#include "cmd/supervise/command.c"
#undef waitid
#undef waitpid

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

static pid_t
waitpid_then_look(pid_t pid, int *status, int options)
{
	pid_t got = waitpid(pid, status, options);

	if (got > 0 && (WIFEXITED(*status) || WIFSIGNALED(*status)))
		shown = atomic_load(&shared->command);
	return got;
}

static void
a_command_that_is_killed_as_it_stops_is_forgotten_first(void **state)
{
	static struct keeper k = {.keep.phase = PH_OVER, .command.gate = -1};
	static struct ward ward;
	static struct run run = {.ward = &ward};
	siginfo_t stop;

	(void)state;
	shared = k.page = run.page = page_new();
	k.run = &run;
	k.news.link = -1;
	k.job.leave_at = k.keep.tree.killing_since = NEVER;
	k.command.pid = fork();
	if (k.command.pid == 0) {
		raise(SIGSTOP);
		_exit(0);
	}
	atomic_store(&k.page->command, k.command.pid);
	assert_int_equal(waitid(P_PID, k.command.pid, &stop, WSTOPPED | WNOWAIT), 0);
	shown = -1;
	command_reap(&k);
	assert_int_equal(shown, 0);
	assert_int_equal(atomic_load(&k.page->died_of), SIGKILL);
	assert_true(k.command.childless);
	page_free(k.page);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(a_command_that_is_killed_as_it_stops_is_forgotten_first),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
