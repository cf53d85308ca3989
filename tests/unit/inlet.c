/* inlet.c - the program's recv(), send() and poll(), with and without somebody who watches. */
#include "backends/common/inlet.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

static int pair[2];
static size_t received, sent;

static ssize_t
take_one(struct inlet *i, int fd, void *to, size_t size, int flags)
{
	(void)i;
	received++;
	return inlet_recv(fd, to, size < 1 ? size : 1, flags);
}

/* At most two bytes. */
static ssize_t
give_two(struct inlet *i, int fd, const void *from, size_t size, int flags)
{
	(void)i;
	sent += size;
	return inlet_send(fd, from, size < 2 ? size : 2, flags);
}

static struct inlet
inlet_at(int fd)
{
	return (struct inlet){.fd = fd, .recv = take_one, .send = give_two};
}

static int
setup(void **state)
{
	(void)state;
	received = sent = 0;
	return socketpair(AF_UNIX, SOCK_STREAM, 0, pair);
}

static int
teardown(void **state)
{
	(void)state;
	close(pair[0]);
	close(pair[1]);
	return 0;
}

/* Whatever a library's recv() finds. */
static ssize_t
library_recv(int fd, char *to, size_t size)
{
	void *symbol = dlsym(RTLD_DEFAULT, "recv");
	ssize_t (*found)(int, void *, size_t, int);

	memcpy(&found, &symbol, sizeof found);
	return found(fd, to, size, MSG_DONTWAIT);
}

static void
test_libraries_find_ours_and_it_is_as_the_systems(void **state)
{
	char got[8];

	(void)state;
	assert_int_equal(library_recv(pair[1], got, sizeof got), -1);
	assert_int_equal(errno, EAGAIN);
	assert_int_equal(send(pair[0], "abc", 3, 0), 3);
	assert_int_equal(library_recv(pair[1], got, sizeof got), 3);
	assert_memory_equal(got, "abc", 3);
	assert_int_equal(received, 0);
}

static void
test_what_is_watched_goes_through_the_inlet(void **state)
{
	struct inlet one = inlet_at(pair[1]), other = inlet_at(1000);
	char got[8];

	(void)state;
	inlet_watch(&one);
	inlet_watch(&other);
	inlet_watch(&one);
	assert_int_equal(send(pair[0], "abc", 3, 0), 3);
	assert_int_equal(sent, 0);
	assert_int_equal(library_recv(pair[1], got, sizeof got), 1);
	assert_int_equal(received, 1);
	assert_int_equal(send(pair[1], "xyz", 3, 0), 2);
	assert_int_equal(sent, 3);
	inlet_leave(&one);
	inlet_leave(&one);
	assert_int_equal(library_recv(pair[1], got, sizeof got), 2);
	inlet_leave(&other);
	assert_int_equal(received, 1);
}

/* Of this thread, whether it is watched or not. */
static void
test_where_was_sent_last_is_known(void **state)
{
	(void)state;
	assert_int_equal(send(pair[0], "abc", 3, 0), 3);
	assert_int_equal(inlet_sent_on(), pair[0]);
	assert_int_equal(send(pair[1], "abc", 3, 0), 3);
	assert_int_equal(inlet_sent_on(), pair[1]);
}

static void *
read_elsewhere(void *n)
{
	char got[8];

	*(ssize_t *)n = library_recv(pair[1], got, sizeof got);
	return NULL;
}

static void
test_another_thread_has_inlets_of_its_own(void **state)
{
	struct inlet any = inlet_at(-1);
	pthread_t thread;
	ssize_t n = 0;
	char got[8];

	(void)state;
	assert_int_equal(send(pair[0], "abcd", 4, 0), 4);
	inlet_watch(&any);
	assert_int_equal(library_recv(pair[1], got, sizeof got), 1);
	assert_int_equal(pthread_create(&thread, NULL, read_elsewhere, &n), 0);
	pthread_join(thread, NULL);
	assert_int_equal(n, 3);
	inlet_leave(&any);
	assert_int_equal(received, 1);
}

/* Whatever a library's poll() finds. */
static int
library_poll(struct pollfd *at, nfds_t n, int timeout)
{
	void *symbol = dlsym(RTLD_DEFAULT, "poll");
	int (*found)(struct pollfd *, nfds_t, int);

	memcpy(&found, &symbol, sizeof found);
	return found(at, n, timeout);
}

/* All that is asked about is ready. */
static int
say_ready(struct inlet *i, struct pollfd *at, nfds_t n, int timeout)
{
	(void)i, (void)timeout;
	for (nfds_t k = 0; k < n; k++)
		at[k].revents = at[k].events;
	return (int)n;
}

static void
test_poll_is_as_the_systems_until_somebody_answers_for_it(void **state)
{
	struct inlet reads = inlet_at(pair[0]), waits = {.fd = -1, .poll = say_ready};
	struct pollfd at[] = {{.fd = pair[0], .events = POLLIN}, {.fd = -1}};

	(void)state;
	inlet_watch(&reads);
	assert_int_equal(library_poll(at, 2, 0), 0);
	assert_int_equal(library_poll(at, 2, 30), 0);
	assert_int_equal(send(pair[1], "abc", 3, 0), 3);
	assert_int_equal(library_poll(at, 2, -1), 1);
	assert_int_equal(at[0].revents, POLLIN);
	assert_int_equal(library_poll(at, -1, 0), -1);
	assert_int_equal(errno, EINVAL);
	inlet_watch(&waits);
	at[0].fd = pair[1];
	assert_int_equal(library_poll(at, 2, -1), 2);
	inlet_leave(&waits);
	assert_int_equal(library_poll(at, 2, 0), 0);
	inlet_leave(&reads);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test_setup_teardown(
		test_where_was_sent_last_is_known, setup, teardown),
	    cmocka_unit_test_setup_teardown(
		test_libraries_find_ours_and_it_is_as_the_systems, setup, teardown),
	    cmocka_unit_test_setup_teardown(
		test_what_is_watched_goes_through_the_inlet, setup, teardown),
	    cmocka_unit_test_setup_teardown(
		test_another_thread_has_inlets_of_its_own, setup, teardown),
	    cmocka_unit_test_setup_teardown(
		test_poll_is_as_the_systems_until_somebody_answers_for_it, setup,
		teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
