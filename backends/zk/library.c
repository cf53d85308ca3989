/* library.c - reads the library's log, and holds the library there. */
#include "library.h"

#include "backends/common/clock.h"
#include "backends/common/inlet.h"
#include "filter.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

/* One for each key of a run, and as many for sessions that are still ending. */
/* clang-format off */
#define EACH(X) \
	X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) \
	X(11) X(12) X(13) X(14) X(15) X(16) X(17) X(18) X(19) X(20) X(21) \
	X(22) X(23) X(24) X(25) X(26) X(27) X(28) X(29) X(30) X(31)
/* clang-format on */
enum { SESSIONS = 32 };

static struct library {
	pthread_mutex_t mutex;
	pthread_cond_t opens;
	instant
	    taken; /* by the session that has it now; the thread that begins sessions knows */
	bool held;      /* the library's thread waits */
	bool leaving;   /* the library is to end, and waits no more */
	bool written;   /* a line has come, */
	bool initiated; /* and one that says that it has initiated a connection */
	int error;
	int fd;             /* of its connection; -1: it has none that we know of */
	int wake_fd, alarm; /* of the session that wants to know; -1 */
} libraries[SESSIONS] = {
#define X(i) \
	{PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, .leaving = true, .fd = -1, \
	    .wake_fd = -1, .alarm = -1},
    EACH(X)
#undef X
};

static void
note_connection(struct library *l)
{
	l->initiated = true;
	l->fd = inlet_sent_on();
	filter_begin();
}

/* A session that has expired has no connection to wait for. */
static void
note_error(struct library *l, const char *number, bool expired)
{
	l->fd = -1; /* the library is about to close it */
	if (expired)
		return;
	l->error = atoi(number);
	l->held = !l->leaving;
	eventfd_write(l->wake_fd, 1);
	eventfd_write(l->alarm, 1);
	while (l->held)
		pthread_cond_wait(&l->opens, &l->mutex);
}

static void
read_line(struct library *l, const char *line)
{
	const char *number = strstr(line, "errno=");

	pthread_mutex_lock(&l->mutex);
	l->written = true;
	if (strstr(line, "nitiated connection to server"))
		note_connection(l);
	if (number)
		note_error(
		    l, number + strlen("errno="), strstr(line, "has expired") != NULL);
	pthread_mutex_unlock(&l->mutex);
}

#define X(i) \
	static void read_line_##i(const char *line) \
	{ \
		read_line(&libraries[i], line); \
	}
EACH(X)
#undef X

log_callback_fn
library_log(const struct library *l)
{
#define X(i) read_line_##i,
	static const log_callback_fn logs[SESSIONS] = {EACH(X)};
#undef X

	return logs[l - libraries];
}

/*
 * One whose session has ended, or soon will have, if there is one; of such the one that
 * was taken longest ago.
 */
static bool
is_freer(const struct library *l, const struct library *than)
{
	return l->leaving != than->leaving ? l->leaving : l->taken < than->taken;
}

struct library *
library_take(int wake_fd, int alarm)
{
	struct library *l = &libraries[0];

	for (size_t i = 1; i < SESSIONS; i++)
		if (is_freer(&libraries[i], l))
			l = &libraries[i];
	l->taken = instant_now();
	pthread_mutex_lock(&l->mutex);
	l->held = l->leaving = l->written = l->initiated = false;
	l->error = 0;
	l->fd = -1;
	l->wake_fd = wake_fd;
	l->alarm = alarm;
	pthread_mutex_unlock(&l->mutex);
	return l;
}

bool
library_fits(struct library *l, bool connected)
{
	bool fits;

	pthread_mutex_lock(&l->mutex);
	fits = connected ? l->initiated : l->written;
	pthread_mutex_unlock(&l->mutex);
	return fits;
}

bool
library_is_held(struct library *l)
{
	bool held;

	pthread_mutex_lock(&l->mutex);
	held = l->held;
	pthread_mutex_unlock(&l->mutex);
	return held;
}

int
library_error(struct library *l)
{
	int error;

	pthread_mutex_lock(&l->mutex);
	error = l->error;
	pthread_mutex_unlock(&l->mutex);
	return error;
}

void
library_let_try(struct library *l)
{
	pthread_mutex_lock(&l->mutex);
	l->held = false;
	pthread_cond_signal(&l->opens);
	pthread_mutex_unlock(&l->mutex);
}

/* While we have the mutex, the library does not close it. */
void
library_break(struct library *l)
{
	pthread_mutex_lock(&l->mutex);
	if (l->fd >= 0)
		shutdown(l->fd, SHUT_RDWR);
	pthread_mutex_unlock(&l->mutex);
}

void
library_leave(struct library *l)
{
	pthread_mutex_lock(&l->mutex);
	l->held = false;
	l->leaving = true;
	l->fd = l->wake_fd = l->alarm = -1;
	pthread_cond_signal(&l->opens);
	pthread_mutex_unlock(&l->mutex);
}
