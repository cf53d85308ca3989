/* tickets.c - see tickets.h. */
#include "tickets.h"

#include "header.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/eventfd.h>
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
look(int fd, int64_t from, int64_t to, struct span *found)
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

	return look(fd, 1, NUMBER_LIMIT, &found) > 0;
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
	int got = look(fd, 1, limit, &found);
	bool bisect = false;

	if (got <= 0)
		return got;
	low = found.to - 1;
	for (int64_t step = 1; low + 1 < high; step *= bisect ? 1 : 2) {
		bisect = bisect || from <= low;
		if (bisect)
			from = low + (high - low) / 2;
		got = look(fd, from, high, &found);
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

	if (look(fd, 1, ticket, &found) <= 0)
		return 0;
	most = ticket - found.from;
	if (most > COUNTED)
		return most < 1000000 ? (unsigned)most : 0;
	while (n < COUNTED && (at = tickets_last(fd, at, at)) > 0)
		n++;
	return n;
}

/* ---- waiting ---- */

/* What the waiting thread is given; it frees it, for it may outlive our interest. */
struct errand {
	int fd, done; /* done: an eventfd of its own */
	short type;
	int64_t byte;
};

static void *
wait_in_kernel(void *arg)
{
	struct errand *e = arg;
	uint64_t one = 1;

	lock_byte(e->fd, F_OFD_SETLKW, e->type, e->byte);
	if (write(e->done, &one, sizeof one) < 0)
		abort(); /* an eventfd of ours takes any number */
	close(e->done);
	free(e);
	return NULL;
}

static int
start_thread(struct errand *e)
{
	pthread_attr_t small;
	pthread_t thread;
	int error;

	pthread_attr_init(&small);
	pthread_attr_setstacksize(&small, 64 * 1024);
	pthread_attr_setdetachstate(&small, PTHREAD_CREATE_DETACHED);
	error = pthread_create(&thread, &small, wait_in_kernel, e);
	pthread_attr_destroy(&small);
	return error;
}

int
tickets_wait(int fd, short type, int64_t byte)
{
	struct errand *e = malloc(sizeof *e);
	int done = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK), error = ENOMEM;

	if (e && done >= 0) {
		*e = (struct errand){.fd = fd, .done = fcntl(done, F_DUPFD_CLOEXEC, 3), .type = type, .byte = byte};
		error = e->done < 0 ? errno : start_thread(e);
		if (error == 0)
			return done;
		if (e->done >= 0)
			close(e->done);
	} else if (e) {
		error = errno;
	}
	if (done >= 0)
		close(done);
	free(e);
	errno = error;
	return -1;
}
