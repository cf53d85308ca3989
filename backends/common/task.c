/* task.c - runs work that blocks in a thread, which may be left behind. */
#include "task.h"

#include <errno.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <unistd.h>

static void
task_let_go(struct task *t)
{
	int done = t->done;

	if (atomic_fetch_sub(&t->owners, 1) > 1)
		return;
	if (done >= 0)
		close(done);
	t->free(t);
}

static void *
task_run(void *arg)
{
	struct task *t = arg;

	t->work(t);
	eventfd_write(t->done, 1);
	task_let_go(t);
	return NULL;
}

bool
task_start(struct task *t, size_t stack)
{
	pthread_attr_t attr;
	pthread_t thread;
	int error;

	atomic_init(&t->dropped, false);
	atomic_init(&t->owners, 2);
	t->done = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	error = errno;
	if (t->done >= 0) {
		pthread_attr_init(&attr);
		pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
		if (stack > 0)
			pthread_attr_setstacksize(&attr, stack);
		error = pthread_create(&thread, &attr, task_run, t);
		pthread_attr_destroy(&attr);
	}
	if (t->done >= 0 && error == 0)
		return true;
	atomic_init(&t->owners, 1);
	task_let_go(t);
	errno = error;
	return false;
}

void
task_drop(struct task *t)
{
	if (!t)
		return;
	atomic_store(&t->dropped, true);
	task_let_go(t);
}
