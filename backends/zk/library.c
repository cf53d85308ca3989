/* library.c - reads the library's log, holds the library there, and filters what it reads. */
#include "library.h"

#include "backends/common/instant.h"
#include "backends/common/inlet.h"
#include "tunnel.h"

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
	struct tunnel *tunnel; /* NULL: no TLS */
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

/* Has sent that much of a message, or the rest of it. */
static void
filter_follow(struct filter *f, const unsigned char *s, size_t n)
{
	struct message *m = &f->out;

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

static ssize_t
send_through(struct tunnel *t, int fd, const void *from, size_t n, int flags)
{
	return t ? tunnel_send(t, fd, from, n, flags) : inlet_send(fd, from, n, flags);
}

/*
 * The library sends the length of a message apart from it.  Both travel together, or the server
 * wakes up for each of them.
 */
static ssize_t
filter_send(struct inlet *i, int fd, const void *from, size_t n, int flags)
{
	struct filter *f = (struct filter *)i;
	bool more = f->out.n == 0 && n == LENGTH;
	ssize_t sent = send_through(
	    f->tunnel, fd, from, n, flags | (more ? MSG_MORE : 0));

	if (sent > 0)
		filter_follow(f, from, (size_t)sent);
	return sent;
}

static int
filter_poll(struct inlet *i, struct pollfd *at, nfds_t n, int timeout)
{
	return tunnel_poll(((struct filter *)i)->tunnel, at, n, timeout);
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
		size_t most;
		ssize_t n;

		if (!message_grow(m))
			return fail(ENOMEM);
		most = smaller(message_lacks(m), m->room - m->n);
		n = f->tunnel ? tunnel_recv(f->tunnel, fd, m->bytes + m->n, most)
			      : inlet_recv(fd, m->bytes + m->n, most, flags);
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

static struct filter *
filter_of_thread(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, make_key);
	return pthread_getspecific(key);
}

/* That of the calling thread, which has one from now on; NULL without memory. */
static struct filter *
filter_open(struct tunnel *tunnel)
{
	struct filter *f = filter_of_thread();

	if (f)
		return f;
	f = calloc(1, sizeof *f);
	if (!f || pthread_setspecific(key, f) != 0) {
		free(f);
		return NULL;
	}
	f->tunnel = tunnel;
	f->inlet = (struct inlet){.fd = -1,
	    .recv = filter_recv,
	    .send = filter_send,
	    .poll = tunnel ? filter_poll : NULL};
	inlet_watch(&f->inlet);
	return f;
}

/* What is sent and received next begins a message of another connection. */
static void
filter_reset(struct filter *f)
{
	message_drop(&f->in);
	message_drop(&f->out);
	f->given = f->line.n = f->logins = 0;
	f->whole = f->welcome = false;
}

/* The calling thread has begun a connection, and asked for a session; false: past its tunnel. */
static bool
filter_begin(void)
{
	struct filter *f = filter_open(NULL);

	if (f)
		filter_reset(f);
	return !f || !f->tunnel || tunnel_has_begun(f->tunnel);
}

/* Its connection has failed.  As tunnel_end(). */
static enum rc
filter_end(struct fault *f)
{
	struct filter *of = filter_of_thread();

	if (of)
		filter_reset(of);
	return of && of->tunnel ? tunnel_end(of->tunnel, f) : RC_OK;
}

/* What becomes of a session's last words, which the thread that closes it sends itself. */
struct farewell {
	struct inlet inlet;
	struct tunnel *tunnel;
	bool leave;
};

/*
 * When the last request is on its way, there is nothing to be read any more, and so nothing to
 * wait for.
 */
static ssize_t
farewell_send(struct inlet *i, int fd, const void *from, size_t n, int flags)
{
	struct farewell *w = (struct farewell *)i;
	struct request q;
	ssize_t sent = send_through(
	    w->tunnel, fd, from, n, flags | (n == LENGTH ? MSG_MORE : 0));

	if (w->leave && sent > 0 && message_request(&q, from, (size_t)sent) &&
	    q.op == ZOO_CLOSE_OP && (!w->tunnel || tunnel_is_flushed(w->tunnel)))
		shutdown(fd, SHUT_RD);
	return sent;
}

static int
farewell_poll(struct inlet *i, struct pollfd *at, nfds_t n, int timeout)
{
	return tunnel_poll(((struct farewell *)i)->tunnel, at, n, timeout);
}

/* It ends the library's threads before it sends anything: from then on the tunnel is ours. */
void
library_close(zhandle_t *zh, struct tunnel *tunnel, bool leave)
{
	struct farewell w = {
	    {.fd = -1, .send = farewell_send, .poll = tunnel ? farewell_poll : NULL},
	    tunnel, leave};

	if (leave || tunnel)
		inlet_watch(&w.inlet);
	zookeeper_close(zh);
	inlet_leave(&w.inlet);
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
	bool leaving; /* the library is to end, and waits no more */
	struct tunnel *tunnel;
	enum rc refusal; /* what TLS says of the last connection that failed */
	struct fault fault;
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
wake(struct library *l)
{
	eventfd_write(l->wake_fd, 1);
	eventfd_write(l->alarm, 1);
}

/* A session that has expired has no connection to wait for. */
static void
note_error(struct library *l, const char *number, bool expired)
{
	l->fd = -1; /* the library is about to close it */
	l->refusal = filter_end(&l->fault);
	if (expired)
		return;
	l->view.error = atoi(number);
	l->view.held = !l->leaving;
	wake(l);
	while (l->view.held)
		pthread_cond_wait(&l->opens, &l->mutex);
}

/* Nothing more is to be sent: the library is held until the session is given up. */
static void
note_bypass(struct library *l)
{
	l->view.bypasses = true;
	if (l->fd >= 0)
		shutdown(l->fd, SHUT_RDWR);
	wake(l);
	while (!l->leaving)
		pthread_cond_wait(&l->opens, &l->mutex);
}

static void
read_line(struct library *l, const char *line)
{
	const char *number = strstr(line, "errno=");

	pthread_mutex_lock(&l->mutex);
	l->view.written = true;
	if (l->tunnel && strstr(line, "started IO thread")) {
		l->view.tunneled = filter_open(l->tunnel) != NULL;
		wake(l);
	}
	if (strstr(line, "nitiated connection to server")) {
		l->view.initiated = true;
		l->fd = inlet_sent_on();
		if (!filter_begin())
			note_bypass(l);
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
library_take(int wake_fd, int alarm, struct tunnel *tunnel)
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
	l->tunnel = tunnel;
	l->refusal = RC_OK;
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

enum rc
library_refusal(struct library *l, struct fault *f)
{
	enum rc rc;

	pthread_mutex_lock(&l->mutex);
	rc = l->refusal;
	if (rc != RC_OK)
		*f = l->fault;
	pthread_mutex_unlock(&l->mutex);
	return rc;
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
	l->tunnel = NULL;
	l->fd = l->wake_fd = l->alarm = -1;
	pthread_cond_signal(&l->opens);
	pthread_mutex_unlock(&l->mutex);
}
