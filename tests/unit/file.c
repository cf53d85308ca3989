/*
 * file.c - Goal of these tests: what the file backend does while others keep byte
 * 0 of a lock file, which a frozen process may do for as long as it likes.
 */
#include "backends/file/line.h"
#include "backends/file/place.h"
#include "backends/registry.h"

#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

enum { ROUNDS = 100 };

/*
 * A caller, and somebody else who keeps byte 0 until the caller waits for the second
 * time.
 */
struct test {
	struct host host;
	char dir[32], url[64], lock[64], runs[64], last[80];
	int other, looker;
	int waits;
	bool guarded; /* was byte 0 taken when the second wait was over? */
};

static enum woke
wait_twice(struct host *host, int fd, short events, instant until)
{
	struct test *t = (struct test *)host;
	struct pollfd p = {.fd = fd, .events = events};

	(void)until;
	if (t->waits++ == 0) {
		poll(NULL, 0, 1);
		return WOKE_TIMEOUT;
	}
	close(t->other);
	assert_int_equal(poll(&p, 1, 60000), 1);
	poll(NULL, 0, 2); /* for the other thread, if there is one */
	t->guarded = tickets_lock(t->looker, F_WRLCK, META) != 0;
	return WOKE_READY;
}

static struct store *
begin(struct test *t, const struct claim *claim)
{
	const struct backend *b = registry_named("file");
	struct store *s = NULL;
	struct grant g;
	struct fault f;

	*t = (struct test){
	    .host = {.wait = wait_twice, .alert = -1}, .dir = "/tmp/unit_file.XXXXXX"};
	assert_non_null(mkdtemp(t->dir));
	snprintf(t->url, sizeof t->url, "file://%s", t->dir);
	snprintf(t->lock, sizeof t->lock, "%s/k.lock", t->dir);
	snprintf(t->runs, sizeof t->runs, "%s/k.runs", t->dir);
	snprintf(t->last, sizeof t->last, "%s/last", t->runs);
	assert_int_equal(b->open(&s, &t->host, &(struct site){.url = t->url}, &f), RC_OK);
	assert_int_equal(b->lock->acquire(s, claim, NEVER, &g, &f), RC_OK);
	t->other = open(t->lock, O_RDWR | O_CLOEXEC);
	t->looker = open(t->lock, O_RDWR | O_CLOEXEC);
	assert_int_equal(tickets_lock(t->other, F_WRLCK, META), 0);
	return s;
}

static void
end(struct test *t)
{
	close(t->looker);
	unlink(t->lock);
	assert_int_equal(unlink(t->last), 0);
	assert_int_equal(rmdir(t->runs), 0);
	assert_int_equal(rmdir(t->dir), 0);
}

/* Other holders of a limit write down their runs, too: nobody may do so beside us. */
static void
a_release_that_is_tried_again_writes_alone(void **state)
{
	const struct claim claim = {.key = "k",
	    .kind = KIND_LIMIT,
	    .limit = 2,
	    .job = {.once = "a"},
	    .owner = "0123456789abcdef0123456789abcdef",
	    .record = "{}",
	    .ttl = NS_PER_S};

	(void)state;
	for (int round = 0; round < ROUNDS; round++) {
		struct test t;
		struct store *s = begin(&t, &claim);
		struct fault f;

		assert_int_equal(s->backend->lock->release(s, (struct outcome){0},
				     instant_now() + NS_PER_S, &f),
		    RC_AGAIN);
		assert_int_equal(s->backend->lock->release(s, (struct outcome){0},
				     instant_now() + NS_PER_S, &f),
		    RC_OK);
		assert_true(t.guarded);
		assert_int_equal(tickets_lock(t.looker, F_WRLCK, META), 0);
		assert_false(line_is_used(t.looker));
		s->backend->close(s);
		end(&t);
	}
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(a_release_that_is_tried_again_writes_alone),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
