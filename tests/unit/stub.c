/* stub.c - the stub lives in the keeper's memory, and may write to none of it. */
#include "cmd/exit.h"
#include "cmd/supervise/stub.h"

#include "backends/common/clock.h"

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
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

enum { RANGES = 256 };

struct range {
	void *start;
	size_t size;
};

static _Atomic int *page;

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

static _Noreturn void
begin_read_only(struct stub *s, int gate)
{
	struct range ranges[RANGES];
	size_t n;

	s->keeper = getppid();
	s->gate = gate;
	n = find_writable(ranges);
	for (size_t i = 0; i < n; i++)
		if (mprotect(ranges[i].start, ranges[i].size, PROT_READ) != 0)
			_exit(99);
	_exit(stub_begin(s));
}

/* What becomes of a stub that hears `said`, as waitpid has it. */
static int
run_stub(const char *path, const void *said, size_t size)
{
	char *argv[] = {"true", "-e", NULL}, *envp[] = {"A=b", NULL};
	char *script[] = {"/bin/sh", (char *)path, "-e", NULL};
	static sigset_t none;
	static struct stub s; /* not on the stack, where it may write */
	int ends[2], status;
	pid_t pid;

	s = (struct stub){.others = {-1, -1},
	    .mask = &none,
	    .chld_ignored = true,
	    .path = path,
	    .argv = argv,
	    .envp = envp,
	    .script = script,
	    .exec = page};
	sigemptyset(&none);
	atomic_store(page, EXEC_NOT_CALLED);
	assert_int_equal(0, pipe2(ends, O_CLOEXEC));
	if (size)
		assert_int_equal((ssize_t)size, write(ends[1], said, size));
	close(ends[1]);
	pid = fork();
	if (pid == 0)
		begin_read_only(&s, ends[0]);
	close(ends[0]);
	assert_int_equal(pid, waitpid(pid, &status, 0));
	return status;
}

static int
told(const char *path, instant latest)
{
	int status = run_stub(path, &latest, sizeof latest);

	assert_true(WIFEXITED(status)); /* SIGSEGV: it has written to what it must not */
	return WEXITSTATUS(status);
}

static void
test_the_command_runs(void **state)
{
	(void)state;
	assert_int_equal(0, told("/bin/true", NEVER));
	assert_int_equal(EXEC_CALLED, atomic_load(page));
}

static void
test_a_script_of_no_interpreter_gets_a_shell(void **state)
{
	char path[] = "/tmp/dlock-unit-stub-XXXXXX";
	int fd = mkstemp(path);

	(void)state;
	assert_int_equal(fd >= 0 && fchmod(fd, 0700) == 0, 1);
	dprintf(fd, "test \"$A $1\" = 'b -e' && exit 7\n");
	close(fd);
	assert_int_equal(7, told(path, NEVER));
	unlink(path);
}

static void
test_what_cannot_be_executed_is_told(void **state)
{
	(void)state;
	assert_int_equal(STATUS_NOT_FOUND, told("/nonexistent/command", NEVER));
	assert_int_equal(ENOENT, atomic_load(page));
	assert_int_equal(STATUS_NOT_FOUND, told("/etc", NEVER));
	assert_int_equal(EACCES, atomic_load(page));
}

static void
test_too_late(void **state)
{
	(void)state;
	assert_int_equal(STATUS_NOT_FOUND, told("/bin/true", instant_now() - 1));
	assert_int_equal(ETIME, atomic_load(page));
}

static void
test_without_go_nothing_is_run(void **state)
{
	static const struct {
		const void *said;
		size_t size;
	} all[] = {{NULL, 0}, {"half", 4}};

	(void)state;
	for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
		int status = run_stub("/bin/true", all[i].said, all[i].size);

		assert_true(WIFEXITED(status));
		assert_int_equal(STATUS_NOT_FOUND, WEXITSTATUS(status));
		assert_int_equal(EXEC_NOT_CALLED, atomic_load(page));
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
	    cmocka_unit_test(test_the_command_runs),
	    cmocka_unit_test(test_a_script_of_no_interpreter_gets_a_shell),
	    cmocka_unit_test(test_what_cannot_be_executed_is_told),
	    cmocka_unit_test(test_too_late),
	    cmocka_unit_test(test_without_go_nothing_is_run),
	};

	(void)argc;
	do_without_rseq(argv);
	page = mmap(NULL, sizeof *page, PROT_READ | PROT_WRITE,
	    MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (page == MAP_FAILED)
		return 1;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
