/*
 * unit_tree.c - Goal of these tests: what the command has brought into the
 * world is found and stopped, and nothing else is.
 */
#include "cmd/tree.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

/* Forks a process that sleeps until it is killed. */
static pid_t
sleeper(void)
{
	pid_t pid = fork();

	if (pid == 0)
		for (;;)
			pause();
	assert_true(pid > 0);
	return pid;
}

/*
 * Forks a family: a child (returned) and a grandchild (*grand), which leaves
 * session and group; with `orphan` it loses its parent too.
 */
static pid_t
family(pid_t *grand, bool orphan)
{
	int ends[2];
	pid_t pid;

	assert_int_equal(pipe(ends), 0);
	pid = fork();
	if (pid == 0) {
		pid_t self = fork() == 0 ? setsid() : 0;

		if (self > 0 && write(ends[1], &self, sizeof self) < 0)
			_exit(1);
		if (self == 0 && orphan)
			_exit(0);
		for (;;)
			pause();
	}
	assert_int_equal(read(ends[0], grand, sizeof *grand), sizeof *grand);
	close(ends[0]);
	close(ends[1]);
	return pid;
}

static void
bury(pid_t pid)
{
	kill(pid, SIGKILL);
	assert_int_equal(waitpid(pid, NULL, 0), pid);
}

static void
parent_and_state(void **state)
{
	pid_t child = sleeper();
	char letter = 0;

	(void)state;
	assert_int_equal(tree_parent(child, &letter), getpid());
	assert_non_null(strchr("RS", letter));
	kill(child, SIGSTOP);
	waitpid(child, NULL, WUNTRACED);
	assert_int_equal(tree_parent(child, &letter), getpid());
	assert_int_equal(letter, 'T');
	kill(child, SIGKILL);
	waitid(P_PID, child, NULL, WEXITED | WNOWAIT);
	assert_int_equal(tree_parent(child, &letter), getpid());
	assert_int_equal(letter, 'Z');
	bury(child);
	assert_int_equal(tree_parent(child, &letter), 0);
}

/* The name in /proc is the process's own to choose. */
static void
hostile_names_do_not_confuse(void **state)
{
	static const char *const names[] = {") Z 1", "((((", "a b c", "\n", "", "))))))))))))))"};
	char letter = 0;

	(void)state;
	for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
		int ends[2];
		pid_t child;
		char c;

		assert_int_equal(pipe(ends), 0);
		child = fork();
		if (child == 0) {
			prctl(PR_SET_NAME, names[i]);
			close(ends[1]);
			for (;;)
				pause();
		}
		close(ends[1]);
		assert_int_equal(read(ends[0], &c, 0), 0);
		while (tree_parent(child, &letter) && letter == 'R')
			usleep(1000);
		assert_int_equal(tree_parent(child, &letter), getpid());
		assert_true(tree_contains(getpid(), child));
		close(ends[0]);
		bury(child);
	}
}

static void
descendants_are_contained(void **state)
{
	pid_t grand, child = family(&grand, false), other = sleeper();

	(void)state;
	assert_true(tree_contains(getpid(), child));
	assert_true(tree_contains(getpid(), grand));
	assert_true(tree_contains(child, grand));
	assert_false(tree_contains(child, other));
	assert_false(tree_contains(child, child));
	assert_false(tree_contains(child, getpid()));
	assert_false(tree_contains(getpid(), 1));
	assert_false(tree_contains(getpid(), 0));
	kill(grand, SIGKILL);
	bury(child);
	bury(other);
	waitpid(grand, NULL, 0);
}

/* Signals reach the whole family below its root, not the root, not others. */
static void
signal_reaches_descendants_only(void **state)
{
	pid_t grand, child = family(&grand, false), other = sleeper();
	int status;

	(void)state;
	assert_int_equal(tree_signal(child, SIGKILL, false, NULL), 1);
	assert_int_equal(waitpid(child, &status, WNOHANG), 0);
	assert_int_equal(waitpid(other, &status, WNOHANG), 0);
	kill(child, SIGKILL); /* now the grandchild is ours, dead as it is */
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(waitpid(grand, &status, 0), grand);
	assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
	bury(other);
}

/* setsid and a double fork do not escape a subreaper. */
static void
orphans_are_found(void **state)
{
	pid_t grand, child = family(&grand, true);
	int status;

	(void)state;
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_true(tree_contains(getpid(), grand));
	assert_int_equal(tree_signal(getpid(), SIGKILL, false, NULL), 1);
	assert_int_equal(waitpid(grand, &status, 0), grand);
	assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
}

static void
stopped_processes_are_woken_to_obey(void **state)
{
	pid_t child = sleeper();
	int status;

	(void)state;
	kill(child, SIGSTOP);
	waitpid(child, &status, WUNTRACED);
	assert_int_equal(tree_signal(getpid(), SIGTERM, true, NULL), 1);
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM);
}

/* What was there before is left alone, with all that it has begotten. */
static void
the_spared_are_spared(void **state)
{
	pid_t grand, child = family(&grand, false), other;
	struct spared spared;
	int status;

	(void)state;
	tree_spare_children(&spared);
	assert_int_equal(spared.n, 1);
	other = sleeper();
	assert_int_equal(tree_signal(getpid(), SIGKILL, false, &spared), 1);
	assert_int_equal(waitpid(other, &status, 0), other);
	assert_int_equal(waitpid(child, &status, WNOHANG), 0);
	assert_int_equal(tree_signal(getpid(), SIGKILL, false, NULL), 2);
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(waitpid(grand, &status, 0), grand);
}

static void
large_families_are_found_whole(void **state)
{
	enum { N = 400 };
	int status, dead = 0;

	(void)state;
	for (int i = 0; i < N; i++)
		sleeper();
	assert_int_equal(tree_signal(getpid(), SIGKILL, false, NULL), N);
	while (waitpid(-1, &status, 0) > 0)
		dead += WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
	assert_int_equal(dead, N);
}

static int
become_subreaper(void **state)
{
	(void)state;
	return prctl(PR_SET_CHILD_SUBREAPER, 1);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(parent_and_state),
	    cmocka_unit_test(hostile_names_do_not_confuse),
	    cmocka_unit_test(descendants_are_contained),
	    cmocka_unit_test(signal_reaches_descendants_only),
	    cmocka_unit_test(orphans_are_found),
	    cmocka_unit_test(stopped_processes_are_woken_to_obey),
	    cmocka_unit_test(the_spared_are_spared),
	    cmocka_unit_test(large_families_are_found_whole),
	};

	return cmocka_run_group_tests_name("tree", tests, become_subreaper, NULL);
}
