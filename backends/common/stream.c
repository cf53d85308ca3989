/* stream.c - connects, sends and receives, over plain sockets. */
#include "stream.h"

#include "task.h"
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/un.h>
#include <unistd.h>

/* ---- plain sockets ---- */

static ssize_t
plain_write(struct stream *s, const struct iovec *parts, int n)
{
	struct msghdr m = {.msg_iov = (struct iovec *)parts, .msg_iovlen = n};

	s->wants = POLLOUT;
	return sendmsg(s->fd, &m, MSG_NOSIGNAL);
}

static ssize_t
plain_read(struct stream *s, void *to, size_t size)
{
	s->wants = POLLIN;
	return recv(s->fd, to, size, 0);
}

static bool
plain_is_quiet(struct stream *s)
{
	char byte;

	return recv(s->fd, &byte, 1, MSG_PEEK) < 0 && errno == EAGAIN;
}

static const struct stream_ops plain = {
    plain_write, plain_read, plain_is_quiet, stream_hung_up, NULL};

/* ---- any ---- */

void
stream_init(struct stream *s, struct host *host, const char *where)
{
	*s = (struct stream){.host = host, .where = where, .ops = &plain, .fd = -1};
}

void
stream_close(struct stream *s)
{
	if (s->fd >= 0) {
		if (s->ops->close)
			s->ops->close(s);
		close(s->fd);
	}
	stream_init(s, s->host, s->where);
}

enum rc
stream_hung_up(struct stream *s, struct fault *f)
{
	return fault_set(
	    f, RC_AGAIN, "%s closed the connection%s", s->where, s->hint ? s->hint : "");
}

enum rc
stream_failed(struct stream *s, struct fault *f)
{
	enum rc rc = s->ops->explain(s, f);

	stream_close(s);
	return rc;
}

/* Waits for s->wants.  RC_AGAIN (not in time) and RC_STOP close the stream. */
static enum rc
stream_await(struct stream *s, instant until, struct fault *f)
{
	/* the time is checked first, since a server that never stops sending is always ready */
	enum woke woke = instant_now() < until
	    ? s->host->wait(s->host, s->fd, s->wants, until)
	    : WOKE_TIMEOUT;

	if (woke == WOKE_READY)
		return RC_OK;
	stream_close(s);
	return woke == WOKE_STOP ? RC_STOP
				 : fault_set(f, RC_AGAIN, "%s does not answer", s->where);
}

static enum rc
stream_unreachable(struct stream *s, int error, struct fault *f)
{
	stream_close(s);
	return fault_set(f, error == EACCES ? RC_DENIED : RC_AGAIN, "cannot reach %s: %s",
	    s->where, strerror(error));
}

enum rc
stream_start(struct stream *s, const struct sockaddr *a, socklen_t size, struct fault *f)
{
	int one = 1;

	stream_close(s);
	s->fd = socket(a->sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (s->fd < 0)
		return fault_set(
		    f, RC_SYSTEM, "cannot open a socket: %s", strerror(errno));
	if (a->sa_family != AF_UNIX)
		setsockopt(s->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
	s->wants = 0;
	if (connect(s->fd, a, size) == 0)
		return RC_OK;
	if (errno != EINPROGRESS)
		return stream_unreachable(s, errno, f);
	s->wants = POLLOUT;
	return RC_OK;
}

enum rc
stream_connect_to(
    struct stream *s, const struct addresses *all, instant until, struct fault *f)
{
	enum rc rc = RC_AGAIN;
	socklen_t length;
	int error;

	stream_close(s);
	for (size_t i = 0; rc == RC_AGAIN && i < all->n; i++) {
		instant now = instant_now();
		/*
		 * each address gets its share, so that a dead one does not use up the time of a
		 * living one
		 */
		int64_t share = until == NEVER ? NS_PER_S
					       : (until - now) / (int64_t)(all->n - i);

		rc = stream_start(
		    s, (const struct sockaddr *)&all->at[i].address, all->at[i].size, f);
		if (rc == RC_OK && s->wants != 0)
			rc = stream_await(s, now + share, f);
		error = 0;
		length = sizeof error;
		if (rc == RC_OK &&
		    getsockopt(s->fd, SOL_SOCKET, SO_ERROR, &error, &length) != 0)
			error = errno;
		if (error != 0)
			rc = stream_unreachable(s, error, f);
	}
	return rc;
}

bool
stream_is_quiet(struct stream *s)
{
	return s->fd >= 0 && s->ops->is_quiet(s);
}

/* Takes `sent` bytes off the front of the parts. */
static void
use_up(struct iovec **parts, int *n, size_t sent)
{
	while (*n > 0 && sent >= (*parts)->iov_len) {
		sent -= (*parts)->iov_len;
		++*parts;
		--*n;
	}
	if (*n > 0) {
		(*parts)->iov_base = (char *)(*parts)->iov_base + sent;
		(*parts)->iov_len -= sent;
	}
}

enum rc
stream_send(struct stream *s, struct iovec *parts, int n, instant until, struct fault *f)
{
	use_up(&parts, &n, 0);
	while (n > 0) {
		ssize_t sent = s->ops->write(s, parts, n);
		enum rc rc;

		if (sent > 0)
			use_up(&parts, &n, sent);
		else if (errno != EAGAIN && errno != EINTR)
			return stream_failed(s, f);
		else if ((rc = stream_await(s, until, f)) != RC_OK)
			return rc;
	}
	return RC_OK;
}

enum rc
stream_receive(
    struct stream *s, void *to, size_t size, size_t *got, instant until, struct fault *f)
{
	for (;;) {
		ssize_t n = s->ops->read(s, to, size);
		enum rc rc;

		if (n > 0) {
			s->hint = NULL;
			*got = n;
			return RC_OK;
		}
		if (n == 0 || (errno != EAGAIN && errno != EINTR))
			return stream_failed(s, f);
		rc = stream_await(s, until, f);
		if (rc != RC_OK)
			return rc;
	}
}
