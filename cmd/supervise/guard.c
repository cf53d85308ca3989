/*
 * guard.c - a process that watches the keeper while the front is suspended.
 *
 *	guard_begin()  forks it, when the front is about to be suspended
 *	watch_alone()  asks page_watch(), as the front does, and looks whether the link is still open
 *	_exit()        the front is needed: the pipe that the guard kept open is closed, and so the
 *	               kernel continues the front
 *	guard_end()    the front goes on, and needs no guard any more
 */
#include "guard.h"

#include "backends/common/libc.h"
#include "loop.h"
#include "process.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/prctl.h>
#include <unistd.h>

/*
 * It ends with the front, keeps nothing of the user's open, and no anchor, and is in no job of
 * a shell.
 */
static void
leave_the_front(pid_t front, int link, int pipe)
{
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	prctl(PR_SET_NAME, "dlock-guard");
	libc_close_all_but(0, link, pipe);
	process_forget();
	if (getppid() != front)
		_exit(0);
	setsid();
}

static _Noreturn void
watch_alone(const struct page *s, struct watch w, pid_t keeper, int link)
{
	struct pollfd set[LOOP_OWN + 1];
	struct watch_due due;
	struct loop loop;
	sigset_t none;

	sigemptyset(&none);
	loop_open(&loop, &none); /* without a timer it still waits, though not as well */
	do {
		due = page_watch(s, &w, true, keeper);
		set[LOOP_OWN] = (struct pollfd){.fd = link, .events = POLLRDHUP};
		if (due.duty == DUTY_NONE)
			loop_wait(&loop, set, LOOP_OWN + 1, due.wake);
	} while (due.duty == DUTY_NONE && !set[LOOP_OWN].revents);
	_exit(0);
}

/*
 * The kernel continues us when all other ends of the pipe are closed.  That begins before the page
 * says that we are guarded, and ends after it has ceased to say so: SIGSTOP may come at any line.
 */
static void
be_continued_by(int pipe)
{
	fcntl(pipe, F_SETOWN, getpid());
	fcntl(pipe, F_SETSIG, SIGCONT);
	fcntl(pipe, F_SETFL, O_ASYNC | O_NONBLOCK);
}

struct guard
guard_begin(const struct page *s, const struct watch *w, pid_t keeper, int link)
{
	struct guard g = {.fd = -1};
	pid_t front = getpid();
	int ends[2];

	if (link < 0 || pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0)
		return g;
	be_continued_by(ends[0]);
	g.pid = process_fork();
	if (g.pid == 0) {
		leave_the_front(front, link, ends[1]);
		watch_alone(s, *w, keeper, link);
	}
	g.fd = ends[0];
	if (g.pid < 0) {
		close(g.fd);
		g = (struct guard){.fd = -1};
	}
	close(ends[1]); /* later than that: nobody is to be continued */
	return g;
}

void
guard_refuse(int fd)
{
	fcntl(fd, F_SETFL, O_NONBLOCK);
	close(fd);
}

void
guard_end(struct guard *g)
{
	/* one that has not run yet has it, too, and is to continue nobody */
	if (g->fd >= 0)
		guard_refuse(g->fd);
	if (g->pid > 0) {
		kill(g->pid, SIGKILL);
		while (waitpid(g->pid, NULL, 0) < 0 && errno == EINTR)
			continue;
	}
	*g = (struct guard){.fd = -1};
}
