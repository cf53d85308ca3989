/*
 * unit task.c - Goal of these tests: the work is done once, its end is seen, and
 * whoever lets go last frees it, in either order.
 */
#include "backends/common/task.h"

#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cmocka.h>

static atomic_int freed, go;

struct work {
	struct task task;
	int result;
};

static void
work(struct task *t)
{
	while (!atomic_load(&go) && !atomic_load(&t->dropped))
		sched_yield();
	((struct work *)t)->result = 42;
}

static void
work_free(struct task *t)
{
	free(t);
	atomic_fetch_add(&freed, 1);
}

static struct work *
new_work(void)
{
	struct work *w = calloc(1, sizeof *w);

	w->task.work = work;
	w->task.free = work_free;
	atomic_store(&freed, 0);
	return w;
}

static void
await_freed(void)
{
	while (atomic_load(&freed) == 0)
		sched_yield();
	assert_int_equal(atomic_load(&freed), 1);
}

static void
its_end_is_seen(void **state)
{
	struct work *w = new_work();

	(void)state;
	atomic_store(&go, 0);
	assert_true(task_start(&w->task, 64 * 1024));
	assert_int_equal(
	    poll(&(struct pollfd){.fd = w->task.done, .events = POLLIN}, 1, 0), 0);
	atomic_store(&go, 1);
	assert_int_equal(
	    poll(&(struct pollfd){.fd = w->task.done, .events = POLLIN}, 1, -1), 1);
	assert_int_equal(w->result, 42);
	task_drop(&w->task);
	await_freed();
}

static void
it_may_be_left_behind(void **state)
{
	struct work *w = new_work();

	(void)state;
	atomic_store(&go, 0);
	assert_true(task_start(&w->task, 0));
	task_drop(&w->task);
	await_freed();
	task_drop(NULL);
}

static void
what_cannot_start_is_freed(void **state)
{
	struct rlimit was, none = {0, 0};
	struct work *w = new_work();

	(void)state;
	getrlimit(RLIMIT_NOFILE, &was);
	none.rlim_max = was.rlim_max;
	setrlimit(RLIMIT_NOFILE, &none);
	assert_false(task_start(&w->task, 0));
	assert_int_equal(errno, EMFILE);
	setrlimit(RLIMIT_NOFILE, &was);
	await_freed();
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(its_end_is_seen),
	    cmocka_unit_test(it_may_be_left_behind),
	    cmocka_unit_test(what_cannot_start_is_freed),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
