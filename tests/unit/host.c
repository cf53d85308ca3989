/*
 * unit host.c - Goal of these tests: a backend can wait, and a lock be taken and
 * given back, without any process to supervise it.
 */
#include "cmd/look.h"

#include "backends/registry.h"

#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static void
waits(void **state)
{
	struct host h;
	int ends[2];

	(void)state;
	look_host(&h);
	assert_int_equal(pipe(ends), 0);
	assert_int_equal(h.wait(&h, -1, 0, 0), WOKE_TIMEOUT);
	assert_int_equal(
	    h.wait(&h, ends[0], POLLIN, instant_now() + NS_PER_MS), WOKE_TIMEOUT);
	assert_int_equal(write(ends[1], "x", 1), 1);
	assert_int_equal(h.wait(&h, ends[0], POLLIN, NEVER), WOKE_READY);
	close(ends[1]);
	assert_int_equal(h.wait(&h, ends[0], POLLIN, NEVER), WOKE_READY);
	close(ends[0]);
}

static void
takes_a_lock(void **state)
{
	char dir[] = "/tmp/dlock-unit-XXXXXX", url[64], command[64];
	struct claim claim = {.key = "k",
	    .owner = "00112233445566778899aabbccddeeff",
	    .record = "{}",
	    .ttl = 30 * NS_PER_S};
	const struct backend *b = registry_named("file");
	struct site site = {.url = url};
	struct store *s, *other;
	struct grant g;
	struct host h;
	struct fault f;

	(void)state;
	look_host(&h);
	assert_non_null(mkdtemp(dir));
	snprintf(url, sizeof url, "file://%s", dir);
	assert_int_equal(b->open(&s, &h, &site, &f), RC_OK);
	assert_int_equal(b->open(&other, &h, &site, &f), RC_OK);
	assert_int_equal(b->lock->acquire(s, &claim, 0, &g, &f), RC_OK);
	assert_true(g.token > 0);
	assert_int_equal(b->lock->acquire(other, &claim, 0, &g, &f), RC_BUSY);
	assert_int_equal(b->lock->release(other, NO_OUTCOME, NEVER, &f), RC_OK);
	assert_int_equal(b->lock->release(s, NO_OUTCOME, NEVER, &f), RC_OK);
	b->close(other);
	b->close(s);
	snprintf(command, sizeof command, "rm -r %s", dir);
	assert_int_equal(system(command), 0);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(waits),
	    cmocka_unit_test(takes_a_lock),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
