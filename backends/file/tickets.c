/*
 * tickets.c - asks the kernel who has locked which bytes of a file, and waits for them
 * in a thread.
 */
#include "tickets.h"

#include "backends/common/task.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <unistd.h>

/* *l becomes the kernel's answer. */
static int
ask_kernel(int fd, int command, short type, struct span s, struct flock *l)
{
	int result;

	*l = (struct flock){.l_type = type,
	    .l_whence = SEEK_SET,
	    .l_start = s.from,
	    .l_len = s.to - s.from};
	do
		result = fcntl(fd, command, l);
	while (result < 0 && errno == EINTR);
	return result;
}

/* 0, or -1 with errno: EAGAIN if it is taken and we do not `wait`. */
static int
lock_span(int fd, bool by_flock, bool wait, short type, struct span s)
{
	int operation = type == F_WRLCK ? LOCK_EX
	    : type == F_RDLCK           ? LOCK_SH
					: LOCK_UN,
	    result;
	struct flock l;

	if (!by_flock)
		result = ask_kernel(fd, wait ? F_OFD_SETLKW : F_OFD_SETLK, type, s, &l);
	else
		do
			result = flock(fd, wait ? operation : operation | LOCK_NB);
		while (result < 0 && errno == EINTR);
	if (result < 0 && errno == EACCES)
		errno = EAGAIN;
	return result;
}

int
tickets_lock(int fd, short type, int64_t byte)
{
	return lock_span(fd, false, false, type, (struct span){byte, byte + 1});
}

void
tickets_unlock(int fd, struct span s)
{
	lock_span(fd, false, false, F_UNLCK, s);
}

int
tickets_lock_file(int fd, bool by_flock, short type)
{
	return lock_span(fd, by_flock, false, type, whole_file);
}

/* ---- who is there ---- */

int
tickets_look(int fd, short type, struct span s, struct span *found)
{
	struct flock l;

	if (s.from >= s.to)
		return 0;
	if (ask_kernel(fd, F_OFD_GETLK, type, s, &l) != 0)
		return -1;
	if (l.l_type == F_UNLCK)
		return 0;
	*found = (struct span){l.l_start > s.from ? l.l_start : s.from, s.to};
	if (found->from >= s.to)
		found->from = s.from; /* a file system that talks nonsense */
	if (l.l_len > 0 && l.l_len < s.to - found->from)
		found->to = found->from + l.l_len;
	return 1;
}

/*
 * `low` is alive, nothing is in [high, base + limit).  We step downward from the hint,
 * each step twice as wide, until something is found; then we bisect.
 */
int64_t
tickets_last(int fd, int64_t base, int64_t hint, int64_t limit)
{
	struct span found = {0, 0};
	int64_t low, high = base + limit, from = hint < limit ? base + hint : high - 1;
	int got = tickets_look(fd, F_RDLCK, (struct span){base + 1, high}, &found);
	bool bisect = false;

	if (got <= 0)
		return got;
	low = found.to - 1;
	for (int64_t step = 1; low + 1 < high; step *= bisect ? 1 : 2) {
		bisect = bisect || from <= low;
		if (bisect)
			from = low + (high - low) / 2;
		got = tickets_look(fd, F_RDLCK, (struct span){from, high}, &found);
		if (got < 0)
			return -1;
		if (got > 0)
			low = found.to - 1;
		else
			high = from;
		bisect = bisect || got > 0;
		from = high - step;
	}
	return low - base;
}

/*
 * Where the kernel's first answer is not the lowest, every second question is for the
 * lower half alone.
 */
bool
tickets_next(int fd, struct span s, struct span *found)
{
	bool any = false;

	for (int asked = 0; s.from < s.to; asked++) {
		bool half = asked >= 2 && asked % 2 == 0;
		int64_t middle = half ? s.from + (s.to - s.from + 1) / 2 : s.to;
		struct span next;

		if (tickets_look(fd, F_RDLCK, (struct span){s.from, middle}, &next) > 0) {
			any = true;
			*found = next;
			s.to = next.from;
		} else {
			s.from = middle;
		}
	}
	return any;
}

/* ---- waiting ---- */

enum { STACK = 64 * 1024 }; /* of a thread that only calls fcntl */

struct ticket_wait {
	struct task task;
	/*
	 * ours: a number of the caller's may mean another file by the time the thread
	 * looks at it
	 */
	int fd;
	bool by_flock;
	short type;
	struct span span;
	atomic_bool got;
};

/*
 * Who has let go sets `dropped` and then reads `got`; the thread sets `got` and
 * then reads `dropped`.  So one of them sees that nobody wants the lock.
 */

static void
wait_in_kernel(struct task *t)
{
	struct ticket_wait *w = (struct ticket_wait *)t;

	atomic_store(&w->got, lock_span(w->fd, w->by_flock, true, w->type, w->span) == 0);
	if (atomic_load(&w->task.dropped) && atomic_load(&w->got))
		lock_span(w->fd, w->by_flock, false, F_UNLCK, w->span);
}

static void
free_wait(struct task *t)
{
	struct ticket_wait *w = (struct ticket_wait *)t;

	if (w->fd >= 0)
		close(w->fd);
	free(w);
}

struct ticket_wait *
tickets_wait(int fd, bool by_flock, short type, struct span span)
{
	struct ticket_wait *w = malloc(sizeof *w);

	if (!w)
		return NULL;
	*w = (struct ticket_wait){.task = {.work = wait_in_kernel, .free = free_wait},
	    .by_flock = by_flock,
	    .type = type,
	    .span = span};
	w->fd = fcntl(fd, F_DUPFD_CLOEXEC, 3);
	if (w->fd >= 0)
		return task_start(&w->task, STACK) ? w : NULL;
	free(w);
	return NULL;
}

int
tickets_done(const struct ticket_wait *w)
{
	return w->task.done;
}

bool
tickets_waited(struct ticket_wait *w)
{
	bool got;

	atomic_store(&w->task.dropped, true);
	got = atomic_load(&w->got);
	task_drop(&w->task);
	return got;
}

int
tickets_watch(int fd)
{
	int watch = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
	char path[32];

	snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
	if (watch >= 0 && inotify_add_watch(watch, path, IN_CLOSE_WRITE | IN_ATTRIB) >= 0)
		return watch;
	if (watch >= 0)
		close(watch);
	return -1;
}

void
tickets_watched(int watch)
{
	char events[1024];

	while (read(watch, events, sizeof events) > 0)
		;
}

static void
close_watch(struct task *t)
{
	struct ticket_wait *w = (struct ticket_wait *)t;

	close(w->fd);
	w->fd = -1;
}

void
tickets_unwatch(int watch)
{
	struct ticket_wait *w = watch >= 0 ? malloc(sizeof *w) : NULL;

	if (!w && watch >= 0)
		close(watch);
	if (!w)
		return;
	*w = (struct ticket_wait){
	    .task = {.work = close_watch, .free = free_wait}, .fd = watch};
	if (task_start(&w->task, STACK))
		task_drop(&w->task);
}

void
tickets_wake(int fd)
{
	futimens(fd, NULL);
}
