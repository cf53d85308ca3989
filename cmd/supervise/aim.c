/* aim.c - sends a signal to one process. */
#include "aim.h"

#include "backends/common/libc.h"

#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

void
aim_send(pid_t pid, const struct aim *a)
{
	kill(pid, a->sig);
	if (a->wake)
		kill(pid, SIGCONT);
}

bool
aim_send_by(int pidfd, const struct aim *a)
{
	if (libc_pidfd_send_signal(pidfd, a->sig) != 0)
		return false;
	if (a->wake)
		libc_pidfd_send_signal(pidfd, SIGCONT);
	return true;
}

bool
aim_leaves(const struct process *p, const struct aim *a)
{
	return (a->sig == SIGKILL || a->sig == SIGSTOP) && process_is_hold_front(p);
}

/*
 * The pid may be another process's since we looked: hold it fast, look again.  (Its parent
 * may differ by now: the one before it in the list has just got the same signal.)  A
 * directory in /proc is as good as a pidfd, and means the same process whatever number it
 * has here.  Without a second descriptor a moment lies between the look and the signal.
 */
void
aim_at(const struct process *p, const struct aim *a)
{
	char path[32];
	bool sent;
	int fd;

	snprintf(path, sizeof path, "/proc/%d", (int)p->pid);
	fd = process_open_file(path, O_DIRECTORY);
	sent = fd >= 0 && process_is_still(p) && aim_send_by(fd, a);
	if (fd >= 0)
		close(fd);
	if (!sent && process_self() == getpid() && process_is_still(p))
		aim_send(p->pid, a);
}
