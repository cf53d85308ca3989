/* library.c - reads the library's log, holds the library there, and filters what it reads. */
#include "library.h"

#include "backends/common/instant.h"
#include "backends/common/inlet.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

/* ---- messages: four bytes of length, and so many more ---- */

enum { LENGTH = 4, KEPT = 64 << 10 /* of memory, from one message to the next */ };

/* One as far as it is there. */
struct message {
	unsigned char *bytes;
	size_t n, room;
};

/* How much of it is missing, as far as that is known; 0: it is whole. */
static size_t
message_lacks(const struct message *m)
{
	const unsigned char *b = m->bytes;

	if (m->n < LENGTH)
		return LENGTH - m->n;
	return LENGTH +
	    ((size_t)b[0] << 24 | (size_t)b[1] << 16 | (size_t)b[2] << 8 | b[3]) - m->n;
}

/* Room for more, but not for what a length only promises. */
static bool
message_grow(struct message *m)
{
	size_t room = m->room ? 2 * m->room : 256;
	unsigned char *bytes;

	if (m->n < m->room)
		return true;
	bytes = realloc(m->bytes, room);
	if (!bytes)
		return false;
	m->room = room;
	m->bytes = bytes;
	return true;
}

static void
message_drop(struct message *m)
{
	m->n = 0;
	if (m->room <= KEPT)
		return;
	free(m->bytes);
	*m = (struct message){NULL, 0, 0};
}

/* ---- the filter of one thread, which has one connection at a time ---- */

/* Requests whose answers are to come, in their order. */
struct line {
	struct request *at;
	size_t n, room;
};

struct filter {
	struct inlet inlet;
	struct message in, out;
	size_t given; /* of what has come, to the library */
	bool whole;   /* it is all there, and makes sense */
	bool welcome; /* there is a session */
	struct line line;
	size_t logins; /* that are to be answered */
};

static pthread_key_t key;

static void
line_add(struct line *l, const struct request *q)
{
	if (l->n == l->room) {
		size_t room = l->room ? 2 * l->room : 16;
		struct request *at = realloc(l->at, room * sizeof *at);

		if (!at)
			return; /* its answer will break the connection */
		l->at = at;
		l->room = room;
	}
	l->at[l->n++] = *q;
}

static size_t
smaller(size_t a, size_t b)
{
	return a < b ? a : b;
}

/*
 * The library sends the length of a message apart from it.  Both travel together, or the server
 * wakes up for each of them.
 */
static int
filter_flags(struct inlet *i, size_t n)
{
	const struct filter *f = (const struct filter *)i;

	return f->out.n == 0 && n == LENGTH ? MSG_MORE : 0;
}

static void
filter_sent(struct inlet *i, int fd, const void *from, size_t n)
{
	struct filter *f = (struct filter *)i;
	struct message *m = &f->out;
	const unsigned char *s = from;

	(void)fd;
	while (n > 0 && message_grow(m)) {
		size_t piece = smaller(smaller(message_lacks(m), m->room - m->n), n);
		struct request q;

		memcpy(m->bytes + m->n, s, piece);
		m->n += piece;
		s += piece;
		n -= piece;
		if (message_lacks(m) > 0)
			continue;
		if (message_request(&q, m->bytes + LENGTH, m->n - LENGTH)) {
			if (q.in_line)
				line_add(&f->line, &q);
			f->logins += q.login;
		}
		message_drop(m);
	}
}

/* As a system call fails. */
static ssize_t
fail(int error)
{
	errno = error;
	return -1;
}

static bool
makes_sense(struct filter *f)
{
	struct line *l = &f->line;
	enum answered answered;

	if (!f->welcome) {
		f->welcome = true;
		return message_is_welcome(f->in.n - LENGTH);
	}
	answered = message_answers(
	    f->in.bytes + LENGTH, f->in.n - LENGTH, l->n > 0 ? l->at : NULL);
	if (answered == ANSWER_DUE)
		memmove(l->at, l->at + 1, --l->n * sizeof *l->at);
	if (answered == ANSWER_LOGIN)
		return f->logins-- > 0; /* or the connection ends */
	return answered != ANSWER_WRONG;
}

/* > 0: a message is there, whole.  Otherwise as recv(). */
static ssize_t
gather(struct filter *f, int fd, int flags)
{
	struct message *m = &f->in;

	for (;;) {
		ssize_t n;

		if (!message_grow(m))
			return fail(ENOMEM);
		n = inlet_recv(fd, m->bytes + m->n,
		    smaller(message_lacks(m), m->room - m->n), flags);
		if (n <= 0)
			return n;
		m->n += (size_t)n;
		if (m->n >= LENGTH && message_lacks(m) + m->n > LENGTH + MESSAGE_MOST)
			return fail(EMSGSIZE);
		if (message_lacks(m) == 0)
			return makes_sense(f) ? n : fail(EBADMSG);
	}
}

static ssize_t
filter_recv(struct inlet *i, int fd, void *to, size_t size, int flags)
{
	struct filter *f = (struct filter *)i;

	if (!f->whole) {
		ssize_t n = gather(f, fd, flags);

		if (n <= 0)
			return n;
		f->whole = true;
	}
	size = smaller(size, f->in.n - f->given);
	memcpy(to, f->in.bytes + f->given, size);
	f->given += size;
	if (f->given == f->in.n) {
		f->given = 0;
		f->whole = false;
		message_drop(&f->in);
	}
	return (ssize_t)size;
}

static void
filter_free(void *ctx)
{
	struct filter *f = ctx;

	inlet_leave(&f->inlet);
	free(f->in.bytes);
	free(f->out.bytes);
	free(f->line.at);
	free(f);
}

static void
make_key(void)
{
	pthread_key_create(&key, filter_free);
}

/* The calling thread has begun a connection, and asked for a session. */
static void
filter_begin(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	struct filter *f;

	pthread_once(&once, make_key);
	f = pthread_getspecific(key);
	if (!f) {
		f = calloc(1, sizeof *f);
		if (!f || pthread_setspecific(key, f) != 0) {
			free(f);
			return;
		}
		f->inlet = (struct inlet){.fd = -1,
		    .recv = filter_recv,
		    .flags = filter_flags,
		    .sent = filter_sent};
		inlet_watch(&f->inlet);
	}
	message_drop(&f->in);
	message_drop(&f->out);
	f->given = f->line.n = f->logins = 0;
	f->whole = f->welcome = false;
}

/*
 * The calling thread sends the last request itself.  When that is on its way, there is nothing to
 * be read any more, and so nothing to wait for.
 */
static void
last_sent(struct inlet *i, int fd, const void *from, size_t n)
{
	struct request q;

	(void)i;
	if (message_request(&q, from, n) && q.op == ZOO_CLOSE_OP)
		shutdown(fd, SHUT_RD);
}

static int
last_flags(struct inlet *i, size_t n)
{
	(void)i;
	return n == LENGTH ? MSG_MORE : 0;
}

void
library_close(zhandle_t *zh, bool leave)
{
	struct inlet last = {.fd = -1, .flags = last_flags, .sent = last_sent};

	if (leave)
		inlet_watch(&last);
	zookeeper_close(zh);
	inlet_leave(&last);
}

const char *
library_error(int error)
{
	return error == EMSGSIZE ? "the server sends an answer of more than 8 MiB"
	    : error == EBADMSG
	    ? "the server sends an answer that does not fit the question"
	    : NULL;
}

/* ---- the log ---- */

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
	/* by the session that has it now; the thread that begins sessions knows */
	instant taken;
	struct library_view view;
	bool leaving;       /* the library is to end, and waits no more */
	int fd;             /* of its connection; -1: it has none that we know of */
	int wake_fd, alarm; /* of the session that wants to know; -1 */
} libraries[SESSIONS] = {
#define X(i) \
	{PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, .leaving = true, .fd = -1, \
	    .wake_fd = -1, .alarm = -1},
    EACH(X)
#undef X
};

/* A session that has expired has no connection to wait for. */
static void
note_error(struct library *l, const char *number, bool expired)
{
	l->fd = -1; /* the library is about to close it */
	if (expired)
		return;
	l->view.error = atoi(number);
	l->view.held = !l->leaving;
	eventfd_write(l->wake_fd, 1);
	eventfd_write(l->alarm, 1);
	while (l->view.held)
		pthread_cond_wait(&l->opens, &l->mutex);
}

static void
read_line(struct library *l, const char *line)
{
	const char *number = strstr(line, "errno=");

	pthread_mutex_lock(&l->mutex);
	l->view.written = true;
	if (strstr(line, "nitiated connection to server")) {
		l->view.initiated = true;
		l->fd = inlet_sent_on();
		filter_begin();
	}
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
struct library *
library_take(int wake_fd, int alarm)
{
	struct library *l = &libraries[0];

	for (size_t i = 1; i < SESSIONS; i++)
		if (libraries[i].leaving != l->leaving ? libraries[i].leaving
						       : libraries[i].taken < l->taken)
			l = &libraries[i];
	l->taken = instant_now();
	pthread_mutex_lock(&l->mutex);
	l->view = (struct library_view){.error = 0};
	l->leaving = false;
	l->fd = -1;
	l->wake_fd = wake_fd;
	l->alarm = alarm;
	pthread_mutex_unlock(&l->mutex);
	return l;
}

struct library_view
library_look(struct library *l)
{
	struct library_view v;

	pthread_mutex_lock(&l->mutex);
	v = l->view;
	pthread_mutex_unlock(&l->mutex);
	return v;
}

void
library_let_try(struct library *l)
{
	pthread_mutex_lock(&l->mutex);
	l->view.held = false;
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
	l->view.held = false;
	l->leaving = true;
	l->fd = l->wake_fd = l->alarm = -1;
	pthread_cond_signal(&l->opens);
	pthread_mutex_unlock(&l->mutex);
}
