/*
 * stub.c - Goal of these tests: the stub executes what it was told, with all of it, in time,
 * or nothing; it lives in the keeper's memory, and writes to none of it.
 */
#include "cmd/exit.h"
#include "cmd/supervise/stub.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static _Atomic int *exec_state;
static char **caller; /* NULL: the environment */

enum { RANGES = 256 };

struct range {
	void *start;
	size_t size;
};

/* All that this process could write to, but its stack and what it shares. */
static size_t
find_writable(struct range *ranges)
{
	FILE *maps = fopen("/proc/self/maps", "re");
	char line[512], kind[8];
	unsigned long from, to;
	size_t n = 0;

	assert_non_null(maps);
	while (fgets(line, sizeof line, maps)) {
		assert_int_equal(3, sscanf(line, "%lx-%lx %7s", &from, &to, kind));
		if (kind[1] != 'w' || kind[3] != 'p' || strstr(line, "[stack]"))
			continue;
		assert_true(n < RANGES);
		ranges[n++] = (struct range){(void *)from, to - from};
	}
	fclose(maps);
	return n;
}

/* A write to anything else is SIGSEGV. */
static _Noreturn void
run_read_only(struct stub s)
{
	struct range ranges[RANGES];
	size_t n = find_writable(ranges);

	for (size_t i = 0; i < n; i++)
		if (mprotect(ranges[i].start, ranges[i].size, PROT_READ) != 0)
			_exit(99);
	_exit(stub_run(&s));
}

static struct stub
stub_of(const char *path, int gate)
{
	static char *argv[] = {"true", "-e", NULL};
	static struct origin origin = {.chld_ignored = true};

	return (struct stub){.front = getppid(),
	    .keeper = getpid(),
	    .others = {-1, -1},
	    .origin = &origin,
	    .path = path,
	    .argv = argv,
	    .gate = gate,
	    .caller = caller ? caller : environ,
	    .exec = exec_state};
}

/* What becomes of a stub that hears `said`, in pieces of at most `piece`: a status. */
static int
run_stub(const char *path, const void *said, size_t size, size_t piece)
{
	struct stub s;
	int ends[2], status;
	pid_t pid;

	atomic_store(exec_state, EXEC_NOT_CALLED);
	assert_int_equal(0, pipe2(ends, O_CLOEXEC));
	s = stub_of(path, ends[0]);
	pid = fork();
	if (pid == 0) {
		close(ends[1]);
		run_read_only(s);
	}
	close(ends[0]);
	for (const char *at = said; size > 0; at += piece, size -= piece) {
		piece = piece < size ? piece : size;
		assert_int_equal((ssize_t)piece, write(ends[1], at, piece));
	}
	close(ends[1]);
	assert_int_equal(pid, waitpid(pid, &status, 0));
	assert_true(WIFEXITED(status));
	return WEXITSTATUS(status);
}

/* The same with "go" and these variables. */
static int
say_go(const char *path, instant latest, const char *told, size_t n, size_t piece)
{
	struct go go = {latest, n};
	char *said = malloc(sizeof go + n);
	int status;

	assert_non_null(said);
	memcpy(said, &go, sizeof go);
	memcpy(said + sizeof go, told, n);
	status = run_stub(path, said, sizeof go + n, piece);
	free(said);
	return status;
}

/* A script without #! in a file of its own; its status. */
static int
run_script(const char *text, const char *told, size_t n, size_t piece)
{
	char path[] = "/tmp/dlock-unit-stub-XXXXXX";
	int fd = mkstemp(path), status;

	assert_int_equal(fd >= 0 && fchmod(fd, 0700) == 0, 1);
	dprintf(fd, "%s\n", text);
	close(fd);
	status = say_go(path, NEVER, told, n, piece);
	unlink(path);
	return status;
}

static void
the_command_runs(void **state)
{
	(void)state;
	assert_int_equal(0, say_go("/bin/true", NEVER, "", 0, 4096));
	assert_int_equal(EXEC_CALLED, atomic_load(exec_state));
}

static void
a_script_of_no_interpreter_gets_a_shell(void **state)
{
	static const char told[] = "DLOCK_KEY=b";

	(void)state;
	assert_int_equal(7,
	    run_script(
		"test \"$DLOCK_KEY $1\" = 'b -e' && exit 7", told, sizeof told, 4096));
}

static void
variables_are_told_once_and_the_others_kept(void **state)
{
	static const char told[] = "DLOCK_KEY=a\0DLOCK_TOKEN=7";

	(void)state;
	setenv("DLOCK_KEY", "an outer one", 1);
	setenv("DLOCK_SLOT", "3", 1);
	setenv("OTHER", "kept", 1);
	assert_int_equal(7,
	    run_script(
		"test \"$DLOCK_KEY $DLOCK_TOKEN $OTHER ${DLOCK_SLOT-none}\" = 'a 7 kept none' && "
		"test $(env | grep -c ^DLOCK_KEY=) = 1 && exit 7",
		told, sizeof told, 1));
	unsetenv("DLOCK_KEY");
	unsetenv("DLOCK_SLOT");
}

/* The keeper's libraries change the list meanwhile. */
static void
the_caller_s_variables_are_those_of_the_beginning(void **state)
{
	char *before[] = {"OTHER=old", "PATH=/usr/bin:/bin", NULL};

	(void)state;
	setenv("OTHER", "new", 1);
	caller = before;
	assert_int_equal(7, run_script("test $OTHER = old && exit 7", "", 0, 4096));
	caller = NULL;
}

/* More than a pipe has room for. */
static void
a_long_variable_arrives_whole(void **state)
{
	enum { LONG = 60000 };
	static char told[LONG] = "DLOCK_TOKENS=";

	(void)state;
	memset(told + strlen("DLOCK_TOKENS="), 'x', LONG - sizeof "DLOCK_TOKENS=");
	assert_int_equal(7,
	    run_script(
		"test ${#DLOCK_TOKENS} = 59986 && exit 7", told, sizeof told, 4096));
}

static void
a_pid_that_named_dlock_names_the_command(void **state)
{
	char parent[24];

	(void)state;
	snprintf(parent, sizeof parent, "%d", (int)getppid());
	setenv("LISTEN_PID", parent, 1);
	setenv("WATCHDOG_PID", "1", 1);
	assert_int_equal(7,
	    run_script(
		"test \"$LISTEN_PID $WATCHDOG_PID\" = \"$$ 1\" && exit 7", "", 0, 4096));
	unsetenv("LISTEN_PID");
	unsetenv("WATCHDOG_PID");
}

static void
what_cannot_be_executed_is_told(void **state)
{
	(void)state;
	assert_int_equal(
	    STATUS_NOT_FOUND, say_go("/nonexistent/command", NEVER, "", 0, 4096));
	assert_int_equal(ENOENT, atomic_load(exec_state));
	assert_int_equal(STATUS_NOT_FOUND, say_go("/etc", NEVER, "", 0, 4096));
	assert_int_equal(EACCES, atomic_load(exec_state));
}

static void
too_late_is_never(void **state)
{
	(void)state;
	assert_int_equal(
	    STATUS_NOT_FOUND, say_go("/bin/true", instant_now() - 1, "", 0, 4096));
	assert_int_equal(ETIME, atomic_load(exec_state));
}

/* The clock is looked at after the last byte, not after "go". */
static void
too_late_for_the_last_byte_is_never(void **state)
{
	struct go go = {instant_now() + 50 * NS_PER_MS, 2};
	struct timespec late = {0, 60 * NS_PER_MS};
	struct stub s;
	int ends[2], status;
	pid_t pid;

	(void)state;
	atomic_store(exec_state, EXEC_NOT_CALLED);
	assert_int_equal(0, pipe2(ends, O_CLOEXEC));
	s = stub_of("/bin/true", ends[0]);
	pid = fork();
	if (pid == 0)
		run_read_only(s);
	assert_int_equal(sizeof go, write(ends[1], &go, sizeof go));
	assert_int_equal(1, write(ends[1], "A", 1));
	nanosleep(&late, NULL);
	assert_int_equal(1, write(ends[1], "", 1));
	assert_int_equal(pid, waitpid(pid, &status, 0));
	close(ends[0]);
	close(ends[1]);
	assert_int_equal(ETIME, atomic_load(exec_state));
}

static void
without_all_of_go_nothing_is_run(void **state)
{
	struct go go = {NEVER, 2};
	char half[sizeof go + 1] = {0};

	(void)state;
	memcpy(half, &go, sizeof go);
	for (size_t n = 0; n <= sizeof half; n += 4) {
		assert_int_equal(STATUS_NOT_FOUND, run_stub("/bin/true", half, n, 4096));
		assert_int_equal(EXEC_NOT_CALLED, atomic_load(exec_state));
	}
}

/* The C library may have the kernel write to memory of its own (rseq): that is not the stub. */
static void
do_without_rseq(char **argv)
{
	static const char name[] = "GLIBC_TUNABLES";

	if (!getenv(name) && setenv(name, "glibc.pthread.rseq=0", 1) == 0)
		execv("/proc/self/exe", argv);
}

int
main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(the_command_runs),
	    cmocka_unit_test(a_script_of_no_interpreter_gets_a_shell),
	    cmocka_unit_test(variables_are_told_once_and_the_others_kept),
	    cmocka_unit_test(the_caller_s_variables_are_those_of_the_beginning),
	    cmocka_unit_test(a_long_variable_arrives_whole),
	    cmocka_unit_test(a_pid_that_named_dlock_names_the_command),
	    cmocka_unit_test(what_cannot_be_executed_is_told),
	    cmocka_unit_test(too_late_is_never),
	    cmocka_unit_test(too_late_for_the_last_byte_is_never),
	    cmocka_unit_test(without_all_of_go_nothing_is_run),
	};

	(void)argc;
	do_without_rseq(argv);
	exec_state = mmap(NULL, sizeof *exec_state, PROT_READ | PROT_WRITE,
	    MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (exec_state == MAP_FAILED)
		return 1;
	return cmocka_run_group_tests_name("stub", tests, NULL, NULL);
}
