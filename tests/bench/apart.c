/*
 * apart.c - valgrind knows no process that shares memory but a thread: to be preloaded, so
 * that dlock's stub (cmd/supervise/stub.h) has a copy there.  Its counts are higher by that.
 */
#include <sys/types.h>
#include <unistd.h>

int
clone(int (*fn)(void *), void *stack, int flags, void *arg, ...)
{
	pid_t pid = fork();

	(void)stack, (void)flags;
	if (pid == 0)
		_exit(fn(arg));
	return pid;
}
