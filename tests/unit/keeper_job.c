/*
 * keeper_job.c - Goal of these tests: a front that is stopped by force sleeps on in no case when its
 * keeper ends.
 */
#include "cmd/supervise/keeper_job.h"

#include "cmd/supervise/guard.h"

#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static void
nap(void)
{
	usleep(2000);
}

static void
await_stop(pid_t front)
{
	while (process_state(front) != 'T')
		nap();
}

/* Its parent is stopped, goes on, and is stopped again before the keeper has looked. */
static _Noreturn void
keep(int link)
{
	static const struct params params = {.terms.ttl = 30 * NS_PER_S};
	static struct page page;
	static struct keeper k = {.page = &page,
	    .params = &params,
	    .keep.phase = PH_HOLD,
	    .job.guard = {-1, -1}};

	alarm(60);
	k.news.link = link;
	await_stop(getppid());
	keeper_job_look(&k);
	kill(getppid(), SIGCONT);
	while (link_is_unread(link))
		nap();
	await_stop(getppid());
	keeper_job_look(&k);
	_exit(0);
}

static _Noreturn void
be_stopped_twice(void)
{
	struct anchors a;
	struct msg m;
	int ends[2];

	if (link_open(ends) != 0)
		_exit(1);
	if (fork() == 0) {
		close(ends[0]);
		keep(ends[1]);
	}
	raise(SIGSTOP);
	if (link_receive(ends[0], &m, &a, NULL) != 1 || a.n != 1)
		_exit(2);
	guard_refuse(a.fds[0]);
	raise(SIGSTOP);
	_exit(0);
}

static void
a_front_that_was_stopped_again_is_continued(void **state)
{
	pid_t front = fork();
	int status = -1;

	(void)state;
	if (front == 0)
		be_stopped_twice();
	for (int i = 0; i < 10000 && waitpid(front, &status, WNOHANG) == 0; i++)
		nap();
	if (status < 0)
		kill(front, SIGKILL);
	assert_int_equal(status, 0);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(a_front_that_was_stopped_again_is_continued),
	};

	return cmocka_run_group_tests_name("keeper_job", tests, NULL, NULL);
}
