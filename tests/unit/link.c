/*
 * link.c - Goal of these tests: messages between front and keeper arrive whole, never
 * block, and carry descriptors.
 */
#include "cmd/supervise/link.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static bool resets;

/* As a kernel has it which says ECONNRESET for ever. */
ssize_t
recvmsg(int fd, struct msghdr *h, int flags)
{
	if (!resets)
		return syscall(SYS_recvmsg, fd, h, flags);
	errno = ECONNRESET;
	return -1;
}

static int
open_link(void **state)
{
	static int ends[2];

	*state = ends;
	return link_open(ends);
}

static int
close_link(void **state)
{
	int *ends = *state;

	close(ends[0]);
	close(ends[1]);
	return 0;
}

static void
messages_arrive_whole_and_in_order(void **state)
{
	const int *ends = *state;
	struct msg m = {.kind = MSG_GRANTED,
		       .got = {.apart = true},
		       .number = INT64_MIN,
		       .token = UINT64_MAX},
		   waits = {.kind = MSG_WAITING,
		       .number = 3,
		       .key = 1,
		       .holding = {KIND_LIMIT, 4, 5, true, -1, ""}},
		   got;
	struct anchors a = {.n = 7};

	memset(m.text, 't', sizeof m.text - 1);
	memset(waits.holding.record, 'r', RECORD_BYTES - 1);
	link_send(ends[0], &m, NULL, NULL);
	link_send(ends[0], &waits, NULL, NULL);
	strcpy(m.text, "");
	m.kind = MSG_SIGNAL;
	link_send(ends[0], &m, NULL, NULL);
	assert_int_equal(link_receive(ends[1], &got, &a, NULL), 1);
	assert_int_equal(a.n, 0);
	assert_int_equal(got.kind, MSG_GRANTED);
	assert_true(got.got.apart && !got.got.ends && got.number == INT64_MIN &&
	    got.token == UINT64_MAX);
	assert_int_equal(strspn(got.text, "t"), sizeof m.text - 1);
	assert_int_equal(link_receive(ends[1], &got, &a, NULL), 1);
	assert_int_equal(got.kind, MSG_WAITING);
	assert_true(got.number == 3 && got.key == 1 && got.holding.kind == KIND_LIMIT &&
	    got.holding.holders == 4 && got.holding.limit == 5 && got.holding.frozen &&
	    got.holding.held == -1);
	assert_string_equal(got.holding.record, waits.holding.record);
	assert_int_equal(link_receive(ends[1], &got, &a, NULL), 1);
	assert_int_equal(got.kind, MSG_SIGNAL);
	assert_string_equal(got.text, "");
	assert_int_equal(link_receive(ends[1], &got, &a, NULL), 0);
	link_send(ends[1], &m, NULL, NULL); /* and the other way */
	assert_int_equal(link_receive(ends[0], &got, &a, NULL), 1);
}

static size_t
open_descriptors(void)
{
	DIR *d = opendir("/proc/self/fd");
	size_t n = 0;

	while (readdir(d))
		n++;
	closedir(d);
	return n;
}

static void
descriptors_travel(void **state)
{
	const int *ends = *state;
	struct msg m = {.kind = MSG_GRANTED, .text = "with an anchor"}, got;
	struct anchors given = {.n = 0}, a;
	struct stat sent, received;
	int pipe_ends[2];
	size_t before;

	assert_int_equal(pipe(pipe_ends), 0);
	while (given.n < KEYS_MAX + 1) {
		given.fds[given.n] = pipe_ends[given.n % 2];
		before = open_descriptors();
		given.n++;
		link_send(ends[0], &m, &given, NULL);
		assert_int_equal(link_receive(ends[1], &got, &a, NULL), 1);
		assert_string_equal(got.text, "with an anchor");
		assert_int_equal(a.n, given.n);
		assert_int_equal(open_descriptors(), before + a.n);
		while (a.n-- > 0) {
			assert_true(a.fds[a.n] >= 0 && a.fds[a.n] != given.fds[a.n]);
			assert_true(fcntl(a.fds[a.n], F_GETFD) & FD_CLOEXEC);
			fstat(given.fds[a.n], &sent);
			fstat(a.fds[a.n], &received);
			assert_int_equal(sent.st_ino, received.st_ino);
			close(a.fds[a.n]);
		}
	}
	close(pipe_ends[0]);
	close(pipe_ends[1]);
}

/*
 * Whoever talks to a stopped process must not stand still: messages may be lost, never
 * time.
 */
static void
full_link_does_not_block(void **state)
{
	const int *ends = *state;
	struct msg m = {.kind = MSG_TRACE,
		       .text = "redis 127.0.0.1:6379: renew: ok in 0.2 ms"},
		   got;
	int arrived = 0, sent = 5000;
	struct anchors a;

	alarm(20); /* instead of hanging */
	for (int i = 0; i < sent; i++) {
		m.number = i;
		link_send(ends[0], &m, NULL, NULL);
	}
	alarm(0);
	while (link_receive(ends[1], &got, &a, NULL) == 1) {
		assert_int_equal(got.number, arrived); /* the first ones, without a gap */
		arrived++;
	}
	assert_in_range(arrived, 100, sent - 1);
}

/* A receiver that sleeps has what it must hear, and all descriptors, behind ever so much else. */
static void
full_link_has_room_for_what_must_arrive(void **state)
{
	static const enum msg_kind less[] = {MSG_TRACE, MSG_WAITING, MSG_RETRYING,
	    MSG_NOTICE, MSG_SUSPECT, MSG_SUSPENDED, MSG_RESUMED},
				   must[] = {MSG_TRUSTED, MSG_STARTED, MSG_STOPPING,
				       MSG_SKIPPED};
	const int *ends = *state;
	struct msg m = {.kind = MSG_TRACE}, got;
	struct anchors given = {.n = KEYS_MAX}, a;
	size_t heard = 0;
	bool granted = false;

	memset(m.text, 't', sizeof m.text - 1);
	for (size_t i = 0; i < KEYS_MAX; i++)
		given.fds[i] = ends[0];
	for (size_t i = 0; i < sizeof less / sizeof *less; i++) {
		m.kind = less[i];
		for (int n = 0; n < 1000; n++)
			link_send(ends[0], &m, NULL, NULL);
		assert_true(link_is_crowded(ends[0]));
		assert_false(link_send(ends[0], &m, NULL, NULL));
		assert_int_equal(errno, EAGAIN);
	}
	m.kind = MSG_GRANTED;
	assert_true(link_send(ends[0], &m, &given, NULL));
	for (size_t i = 0; i < sizeof must / sizeof *must; i++) {
		m.kind = must[i];
		assert_true(link_send(ends[0], &m, NULL, NULL));
	}
	while (link_receive(ends[1], &got, &a, NULL) == 1) {
		heard += got.kind == must[0] || got.kind == must[1] ||
		    got.kind == must[2] || got.kind == must[3];
		granted = granted || a.n == KEYS_MAX;
		while (a.n > 0)
			close(a.fds[--a.n]);
	}
	assert_true(granted && heard == sizeof must / sizeof *must);
	assert_false(link_is_crowded(ends[0]));
}

/* The kernel tells first that it has left something unread. */
static void
what_one_that_has_ended_had_sent_is_heard(void **state)
{
	struct msg m = {.kind = MSG_GRANTED}, got;
	struct anchors given = {.n = 1}, a;
	int ends[2];

	(void)state;
	assert_int_equal(link_open(ends), 0);
	given.fds[0] = STDERR_FILENO;
	assert_true(link_send(ends[1], &m, &given, NULL));
	assert_true(link_send(ends[0], &(struct msg){.kind = MSG_SIGNAL}, NULL, NULL));
	close(ends[1]);
	assert_int_equal(link_receive(ends[0], &got, &a, NULL), 1);
	assert_int_equal(got.kind, MSG_GRANTED);
	assert_int_equal(a.n, 1);
	close(a.fds[0]);
	assert_int_equal(link_receive(ends[0], &got, &a, NULL), -1);
	close(ends[0]);
}

static void
a_reset_that_stays_is_the_end(void **state)
{
	const int *ends = *state;
	struct anchors a;
	struct msg got;

	alarm(20); /* instead of spinning */
	resets = true;
	assert_int_equal(link_receive(ends[0], &got, &a, NULL), -1);
	resets = false;
	alarm(0);
}

/* A grant without all that keeps the lock is known as such, at either end. */
static void
missing_descriptors_are_noticed(void **state)
{
	const int *ends = *state;
	struct msg m = {.kind = MSG_GRANTED}, got;
	struct anchors given = {.fds = {ends[0], ends[0]}, .n = 2}, a;
	struct rlimit before, few;

	assert_true(link_send(ends[0], &m, &given, NULL));
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
	few = before;
	few.rlim_cur = (rlim_t)dup(ends[0]) + 1; /* the lowest that was free */
	close((int)few.rlim_cur - 1);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
	assert_int_equal(link_receive(ends[1], &got, &a, NULL), 1);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
	assert_true(a.cut && a.n == 1);
	close(a.fds[0]);
	given.fds[1] = -1;
	assert_false(link_send(ends[0], &m, &given, NULL));
	assert_int_equal(errno, EBADF);
	assert_int_equal(link_receive(ends[1], &got, &a, NULL), 0);
}

static void
end_of_the_other_is_heard_after_its_last_words(void **state)
{
	int *ends = *state;
	struct msg m = {.kind = MSG_STARTED, .text = "last"}, got;
	struct anchors a;

	link_send(ends[0], &m, NULL, NULL);
	close(ends[0]);
	assert_int_equal(link_receive(ends[1], &got, &a, NULL), 1);
	assert_string_equal(got.text, "last");
	assert_int_equal(link_receive(ends[1], &got, &a, NULL), -1);
	link_send(ends[1], &m, NULL, NULL); /* neither a SIGPIPE nor anything else */
	ends[0] = open("/dev/null", O_RDONLY);
}

static void
ends_are_not_inherited(void **state)
{
	const int *ends = *state;

	for (int i = 0; i < 2; i++) {
		assert_true(fcntl(ends[i], F_GETFD) & FD_CLOEXEC);
		assert_true(fcntl(ends[i], F_GETFL) & O_NONBLOCK);
	}
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(what_one_that_has_ended_had_sent_is_heard),
	    cmocka_unit_test_setup_teardown(
		messages_arrive_whole_and_in_order, open_link, close_link),
	    cmocka_unit_test_setup_teardown(
		a_reset_that_stays_is_the_end, open_link, close_link),
	    cmocka_unit_test_setup_teardown(descriptors_travel, open_link, close_link),
	    cmocka_unit_test_setup_teardown(
		full_link_does_not_block, open_link, close_link),
	    cmocka_unit_test_setup_teardown(
		full_link_has_room_for_what_must_arrive, open_link, close_link),
	    cmocka_unit_test_setup_teardown(
		missing_descriptors_are_noticed, open_link, close_link),
	    cmocka_unit_test_setup_teardown(
		end_of_the_other_is_heard_after_its_last_words, open_link, close_link),
	    cmocka_unit_test_setup_teardown(
		ends_are_not_inherited, open_link, close_link),
	};

	return cmocka_run_group_tests_name("link", tests, NULL, NULL);
}
