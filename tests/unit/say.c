/*
 * say.c - Goal of these tests: whatever stderr is and whoever listens, a
 * line does not make dlock wait.
 */
#include "cmd/say.h"

#include <fcntl.h>
#include <pty.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <termios.h>
#include <unistd.h>

#include <cmocka.h>

#define SOON (2 * NS_PER_S) /* for what takes milliseconds */

static char page[65536];

/* Who waits too long is ended: then a test has found something. */
static size_t
timed(int fd, size_t n, int64_t patience)
{
	instant began = instant_now();
	size_t done;

	alarm(20);
	done = say_bytes(fd, page, n, patience);
	alarm(0);
	assert_true(instant_now() - began < patience + SOON);
	assert_true(instant_now() - began >= (done < n ? patience : 0));
	return done;
}

static void
halted_terminal(void **state)
{
	int master, slave;

	(void)state;
	assert_int_equal(openpty(&master, &slave, NULL, NULL, NULL), 0);
	assert_int_equal(timed(slave, 100, SAY_AT_ONCE), 100);
	assert_int_equal(tcflow(slave, TCOOFF), 0);
	assert_int_equal(timed(slave, 100, SAY_AT_ONCE), 0);
	assert_int_equal(timed(slave, 100, NS_PER_S / 5), 0);
	assert_int_equal(tcflow(slave, TCOON), 0);
	assert_int_equal(timed(slave, 100, SAY_AT_ONCE), 100);
	close(master);
	close(slave);
}

/* There is some room, as poll says; but not enough. */
static void
little_room(void **state)
{
	int ends[2], master, slave;

	(void)state;
	assert_int_equal(openpty(&master, &slave, NULL, NULL, NULL), 0);
	assert_true(timed(slave, sizeof page, SAY_AT_ONCE) < sizeof page);
	close(master);
	close(slave);
	assert_int_equal(pipe(ends), 0);
	assert_int_equal(fcntl(ends[1], F_SETPIPE_SZ, 8192), 8192);
	assert_int_equal(write(ends[1], page, 4096), 4096);
	assert_int_equal(timed(ends[1], 8192, SAY_AT_ONCE), 4096);
	close(ends[0]);
	close(ends[1]);
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
	assert_int_equal(
	    setsockopt(ends[1], SOL_SOCKET, SO_SNDBUF, &(int){4096}, sizeof(int)), 0);
	assert_true(timed(ends[1], sizeof page, SAY_AT_ONCE) < sizeof page);
	close(ends[0]);
	close(ends[1]);
}

/* The last line is worth some waiting. */
static void
room_that_comes(void **state)
{
	int ends[2];
	pid_t reader;

	(void)state;
	assert_int_equal(pipe(ends), 0);
	assert_int_equal(fcntl(ends[1], F_SETPIPE_SZ, 4096), 4096);
	assert_int_equal(write(ends[1], page, 4096), 4096);
	reader = fork();
	if (reader == 0) {
		usleep(100000);
		while (read(ends[0], page, 1000) > 0)
			continue;
		_exit(0);
	}
	assert_int_equal(timed(ends[1], 4000, SOON), 4000);
	kill(reader, SIGKILL);
	close(ends[0]);
	close(ends[1]);
}

/*
 * Nobody else is to notice: no flag of the open file is changed, no signal left behind.
 */
static void
nothing_is_changed(void **state)
{
	int ends[2], flags;
	sigset_t before, after, pending;

	(void)state;
	assert_int_equal(pipe(ends), 0);
	flags = fcntl(ends[1], F_GETFL);
	sigprocmask(SIG_SETMASK, NULL, &before);
	assert_int_equal(timed(ends[1], 10, SAY_AT_ONCE), 10);
	sigprocmask(SIG_SETMASK, NULL, &after);
	assert_memory_equal(&before, &after, 8); /* as much as the kernel fills */
	assert_int_equal(fcntl(ends[1], F_GETFL), flags);
	sigpending(&pending);
	assert_false(sigismember(&pending, SIGCHLD));
	close(ends[0]);
	signal(SIGPIPE, SIG_IGN);
	assert_int_equal(say_bytes(ends[1], page, 10, SAY_PATIENTLY), 0);
	close(ends[1]);
	assert_int_equal(say_bytes(ends[1], page, 10, SAY_AT_ONCE), 0);
}

/* Timers count as pending signals, of which there may be none. */
static void
without_timers(void **state)
{
	struct rlimit old, none;
	int ends[2];

	(void)state;
	assert_int_equal(pipe(ends), 0);
	getrlimit(RLIMIT_SIGPENDING, &old);
	none = old;
	none.rlim_cur = 0;
	setrlimit(RLIMIT_SIGPENDING, &none);
	say_bytes(ends[1], page, 10, SAY_AT_ONCE);
	assert_int_equal(timed(ends[1], 10, SAY_PATIENTLY), 10);
	setrlimit(RLIMIT_SIGPENDING, &old);
	close(ends[0]);
	close(ends[1]);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(halted_terminal),
	    cmocka_unit_test(little_room),
	    cmocka_unit_test(room_that_comes),
	    cmocka_unit_test(nothing_is_changed),
	    cmocka_unit_test(without_timers),
	};

	memset(page, 'x', sizeof page);
	return cmocka_run_group_tests_name("say", tests, NULL, NULL);
}
