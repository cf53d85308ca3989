/* tickets.c - asks the kernel who is in the queue, and waits for a byte in a thread. */
#include "tickets.h"

#include "backends/task.h"
#include "header.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

enum { COUNTED = 32 }; /* places further back than this are reckoned */

/* Bytes [from, to). */
struct span {
	int64_t from, to;
};

static int
ask_kernel(int fd, int command, struct flock *l)
{
	int result;

	do
		result = fcntl(fd, command, l);
	while (result < 0 && errno == EINTR);
	return result;
}

static int
lock_byte(int fd, int command, short type, int64_t byte)
{
	return ask_kernel(fd, command, &(struct flock){.l_type = type, .l_whence = SEEK_SET, .l_start = byte, .l_len = 1});
}

int
tickets_lock(int fd, short type, int64_t byte)
{
	int result = lock_byte(fd, F_OFD_SETLK, type, byte);

	if (result < 0 && errno == EACCES)
		errno = EAGAIN;
	return result;
}

void
tickets_unlock(int fd, int64_t byte)
{
	lock_byte(fd, F_OFD_SETLK, F_UNLCK, byte);
}

/* ---- who is there ---- */

/* 1: some write lock in [from, to), cut to that range, is *found; 0: there is none; -1 with errno. */
static int
find_locked(int fd, int64_t from, int64_t to, struct span *found)
{
	struct flock l = {.l_type = F_RDLCK, .l_whence = SEEK_SET, .l_start = from, .l_len = to - from};

	if (from >= to)
		return 0;
	if (ask_kernel(fd, F_OFD_GETLK, &l) != 0)
		return -1;
	if (l.l_type == F_UNLCK)
		return 0;
	*found = (struct span){l.l_start > from ? l.l_start : from, to};
	if (found->from >= to)
		found->from = from; /* a file system that talks nonsense */
	if (l.l_len > 0 && l.l_len < to - found->from)
		found->to = found->from + l.l_len;
	return 1;
}

bool
tickets_any(int fd)
{
	struct span found;

	return find_locked(fd, 1, NUMBER_LIMIT, &found) > 0;
}

/*
 * `low` is alive, nothing is in [high, limit).  We step downward from the hint,
 * each step twice as wide, until something is found; then we bisect.
 */
int64_t
tickets_last(int fd, int64_t hint, int64_t limit)
{
	struct span found;
	int64_t low, high = limit, from = hint < limit ? hint : limit - 1;
	int got = find_locked(fd, 1, limit, &found);
	bool bisect = false;

	if (got <= 0)
		return got;
	low = found.to - 1;
	for (int64_t step = 1; low + 1 < high; step *= bisect ? 1 : 2) {
		bisect = bisect || from <= low;
		if (bisect)
			from = low + (high - low) / 2;
		got = find_locked(fd, from, high, &found);
		if (got < 0)
			return -1;
		if (got > 0)
			low = found.to - 1;
		else
			high = from;
		bisect = bisect || got > 0;
		from = high - step;
	}
	return low;
}

unsigned
tickets_before(int fd, int64_t ticket)
{
	struct span found;
	int64_t at = ticket, most;
	unsigned n = 0;

	if (find_locked(fd, 1, ticket, &found) <= 0)
		return 0;
	most = ticket - found.from;
	if (most > COUNTED)
		return most < 1000000 ? (unsigned)most : 0;
	while (n < COUNTED && (at = tickets_last(fd, at, at)) > 0)
		n++;
	return n;
}

/* ---- waiting ---- */

enum { STACK = 64 * 1024 }; /* of a thread that only calls fcntl */

struct ticket_wait {
	struct task task;
	int fd; /* ours: a number of the caller's may mean another file by the time the thread looks at it */
	short type;
	int64_t byte;
	atomic_bool got;
};

static void
wait_in_kernel(struct task *t)
{
	struct ticket_wait *w = (struct ticket_wait *)t;

	w->got = lock_byte(w->fd, F_OFD_SETLKW, w->type, w->byte) == 0;
}

static void
free_wait(struct task *t)
{
	struct ticket_wait *w = (struct ticket_wait *)t;

	close(w->fd);
	free(w);
}

struct ticket_wait *
tickets_wait(int fd, short type, int64_t byte)
{
	struct ticket_wait *w = malloc(sizeof *w);

	if (!w)
		return NULL;
	*w = (struct ticket_wait){.task = {.work = wait_in_kernel, .free = free_wait}, .type = type, .byte = byte};
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
	bool got = w->got;

	task_drop(&w->task);
	return got;
}
