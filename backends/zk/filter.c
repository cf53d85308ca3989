/* filter.c - gathers requests and answers of one connection. */
#include "filter.h"

#include "backends/common/inlet.h"
#include "message.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { LENGTH = 4, KEPT = 64 << 10 /* of memory, from one message to the next */ };

/* A message as far as it is there, with its length before it. */
struct message {
	unsigned char *bytes;
	size_t n, room;
};

/* Requests whose answers are to come, in their order. */
struct line {
	struct request *at;
	size_t first, n, room;
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

/* ---- messages ---- */

static bool
message_has_length(const struct message *m)
{
	return m->n >= LENGTH;
}

/* With the four bytes before it. */
static size_t
message_size(const struct message *m)
{
	const unsigned char *b = m->bytes;

	return LENGTH +
	    ((size_t)b[0] << 24 | (size_t)b[1] << 16 | (size_t)b[2] << 8 | b[3]);
}

/* How much of it is missing, as far as that is known. */
static size_t
message_lacks(const struct message *m)
{
	return message_has_length(m) ? message_size(m) - m->n : LENGTH - m->n;
}

/* Room for more, but not for what a length only promises. */
static bool
message_grow(struct message *m)
{
	unsigned char *bytes;

	if (m->n < m->room)
		return true;
	bytes = realloc(m->bytes, m->room ? 2 * m->room : 256);
	if (!bytes)
		return false;
	m->room = m->room ? 2 * m->room : 256;
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

/* ---- requests ---- */

static void
line_add(struct line *l, const struct request *q)
{
	if (l->first > 0 && l->n == l->room) {
		l->n -= l->first;
		memmove(l->at, l->at + l->first, l->n * sizeof *l->at);
		l->first = 0;
	}
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

static const struct request *
line_first(const struct line *l)
{
	return l->first < l->n ? &l->at[l->first] : NULL;
}

static void
note_request(struct filter *f)
{
	struct request q;

	if (!message_request(&q, f->out.bytes + LENGTH, f->out.n - LENGTH))
		return;
	if (message_is_in_line(&q))
		line_add(&f->line, &q);
	f->logins += message_is_login(&q);
}

static void
filter_sent(struct inlet *i, int fd, const void *from, size_t n)
{
	struct filter *f = (struct filter *)i;
	const unsigned char *s = from;

	(void)fd;
	while (n > 0 && message_grow(&f->out)) {
		size_t piece = message_lacks(&f->out), room = f->out.room - f->out.n;

		piece = piece < n ? piece : n;
		piece = piece < room ? piece : room;
		memcpy(f->out.bytes + f->out.n, s, piece);
		f->out.n += piece;
		s += piece;
		n -= piece;
		if (!message_has_length(&f->out) || message_lacks(&f->out) > 0)
			continue;
		note_request(f);
		message_drop(&f->out);
	}
}

/* ---- answers ---- */

/* As a system call fails. */
static ssize_t
fail(int error)
{
	errno = error;
	return -1;
}

static bool
is_too_long(const struct message *m)
{
	return message_has_length(m) && message_size(m) - LENGTH > MESSAGE_MOST;
}

static bool
makes_sense(struct filter *f)
{
	enum answered answered;

	if (!f->welcome) {
		f->welcome = true;
		return message_is_welcome(f->in.n - LENGTH);
	}
	answered = message_answers(
	    f->in.bytes + LENGTH, f->in.n - LENGTH, line_first(&f->line));
	f->line.first += answered == ANSWER_DUE;
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
		size_t piece = message_lacks(m), room;
		ssize_t n;

		if (!message_grow(m))
			return fail(ENOMEM);
		room = m->room - m->n;
		n = inlet_recv(fd, m->bytes + m->n, piece < room ? piece : room, flags);
		if (n <= 0)
			return n;
		m->n += (size_t)n;
		if (is_too_long(m))
			return fail(EMSGSIZE);
		if (message_has_length(m) && message_lacks(m) == 0)
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
	size = size < f->in.n - f->given ? size : f->in.n - f->given;
	memcpy(to, f->in.bytes + f->given, size);
	f->given += size;
	if (f->given == f->in.n) {
		f->given = 0;
		f->whole = false;
		message_drop(&f->in);
	}
	return (ssize_t)size;
}

/* ---- one for each thread ---- */

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
filter_make(void)
{
	struct filter *f = calloc(1, sizeof *f);

	if (!f)
		return NULL;
	f->inlet = (struct inlet){.fd = -1, .recv = filter_recv, .sent = filter_sent};
	if (pthread_setspecific(key, f) != 0) {
		free(f);
		return NULL;
	}
	inlet_watch(&f->inlet);
	return f;
}

void
filter_begin(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	struct filter *f;

	pthread_once(&once, make_key);
	f = pthread_getspecific(key);
	if (!f)
		f = filter_make();
	if (!f)
		return;
	message_drop(&f->in);
	message_drop(&f->out);
	f->given = f->line.first = f->line.n = f->logins = 0;
	f->whole = f->welcome = false;
}

const char *
filter_error(int error)
{
	return error == EMSGSIZE ? "the server sends an answer of more than 8 MiB"
	    : error == EBADMSG ? "the server sends what is no answer to what it was asked"
			       : NULL;
}
