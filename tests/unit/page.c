/*
 * page.c - Goal of these tests: what one process writes there the others read, and never by
 * halves.
 */
#include "cmd/supervise/page.h"

#include <limits.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static void
page_is_shared_with_children(void **state)
{
	struct page *s = page_new();
	pid_t child;

	(void)state;
	assert_non_null(s);
	assert_true(
	    atomic_load(&s->term_at) == NEVER && atomic_load(&s->kill_at) == NEVER);
	assert_false(atomic_load(&s->granted_at) || atomic_load(&s->end.final) ||
	    atomic_load(&s->end.finished));
	child = fork();
	if (child == 0) {
		atomic_store(&s->kill_at, 42);
		page_put_ending(s, &(struct ending){.kind = END_LOST});
		_exit(0);
	}
	waitpid(child, NULL, 0);
	assert_int_equal(atomic_load(&s->kill_at), 42);
	assert_int_equal(page_ending(s).kind, END_LOST);
}

/* A front that takes over reads it while the keeper writes the next one. */
static void
ending_is_never_read_by_halves(void **state)
{
	static const struct ending ends[] = {
	    {.kind = END_NONE},
	    {.kind = END_COMMAND, .value = -1, .kept = KEPT_MIN_HOLD},
	    {.kind = END_EXEC, .value = INT_MAX, .returned = true},
	    {.kind = END_REFUSED, .value = INT_MIN, .too_late = true},
	    {.kind = END_MAX_RUN, .unconfirmed = true, .kept = KEPT_TRYING},
	    {.kind = END_LOST,
		.value = 139,
		.loss = LOSS_FOUND,
		.stuck = true,
		.kept = KEPT_OUTSIDE},
	};
	enum { ENDS = sizeof ends / sizeof *ends };
	struct page *s = page_new();
	struct ending e = {0}; /* with its gaps */
	pid_t child;
	int which;

	(void)state;
	assert_non_null(s);
	child = fork();
	for (unsigned n = 0; child == 0; n++)
		page_put_ending(s, &ends[n % ENDS]);
	for (int n = 0; n < 100000; n++) {
		e = page_ending(s);
		for (which = 0; which < ENDS; which++)
			if (e.kind == ends[which].kind && e.value == ends[which].value &&
			    e.loss == ends[which].loss && e.kept == ends[which].kept &&
			    e.stuck == ends[which].stuck &&
			    e.unconfirmed == ends[which].unconfirmed &&
			    e.too_late == ends[which].too_late &&
			    e.returned == ends[which].returned)
				break;
		if (which == ENDS)
			break;
	}
	kill(child, SIGKILL);
	waitpid(child, NULL, 0);
	assert_in_range(which, 0, ENDS - 1);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(page_is_shared_with_children),
	    cmocka_unit_test(ending_is_never_read_by_halves),
	};

	return cmocka_run_group_tests_name("page", tests, NULL, NULL);
}
