/* wire.c - see wire.h. */
#include "wire.h"

#include "resolve.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/un.h>
#include <unistd.h>

void
wire_init(struct wire *w, struct host *host, const char *where)
{
	w->host = host;
	w->where = where;
	w->fd = -1;
	w->reader = NULL;
	w->used = 0;
}

void
wire_close(struct wire *w)
{
	if (w->fd >= 0)
		close(w->fd);
	if (w->reader)
		redisReaderFree(w->reader);
	w->fd = -1;
	w->reader = NULL;
	w->used = 0;
}

static enum rc
broken(struct wire *w, enum rc rc, const char *what, struct fault *f)
{
	wire_close(w);
	return fault_set(f, rc, "%s %s", w->where, what);
}

/* Sleeps until the socket is ready; closes the connection when that takes too long. */
static enum rc
await(struct wire *w, short events, instant until, struct fault *f)
{
	switch (w->host->wait(w->host, w->fd, events, until)) {
	case WOKE_READY:
		return RC_OK;
	case WOKE_TIMEOUT:
		return broken(w, RC_AGAIN, "does not answer", f);
	case WOKE_STOP:
		break;
	}
	wire_close(w);
	return RC_STOP;
}

/* ---- connecting ---- */

static enum rc
connect_place(struct wire *w, const struct sockaddr *a, socklen_t size, instant until, struct fault *f)
{
	int error = 0, one = 1;
	socklen_t length = sizeof error;
	enum rc rc;

	w->fd = socket(a->sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (w->fd < 0)
		return fault_set(f, RC_SYSTEM, "cannot open a socket: %s", strerror(errno));
	if (a->sa_family != AF_UNIX)
		setsockopt(w->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
	if (connect(w->fd, a, size) == 0)
		return RC_OK;
	error = errno;
	if (error == EINPROGRESS) {
		rc = await(w, POLLOUT, until, f);
		if (rc != RC_OK)
			return rc;
		if (getsockopt(w->fd, SOL_SOCKET, SO_ERROR, &error, &length) != 0)
			error = errno;
		if (error == 0)
			return RC_OK;
	}
	wire_close(w);
	return fault_set(f, error == EACCES ? RC_DENIED : RC_AGAIN, "cannot reach %s: %s", w->where, strerror(error));
}

static enum rc
connect_unix(struct wire *w, const char *path, instant until, struct fault *f)
{
	struct sockaddr_un a = {.sun_family = AF_UNIX};

	memcpy(a.sun_path, path, strlen(path) + 1);
	return connect_place(w, (struct sockaddr *)&a, sizeof a, until, f);
}

/* Each address gets its share of the time that is left, so that a dead one hides no living one. */
static enum rc
connect_tcp(struct wire *w, const struct address *a, instant until, struct fault *f)
{
	struct addresses addresses;
	enum rc rc = resolve(w->host, a->tcp.host, a->tcp.port, until, &addresses, f);

	for (size_t i = 0; rc == RC_OK && i < addresses.n; i++) {
		instant now = instant_now();
		int64_t share = until == NEVER ? NS_PER_S : (until - now) / (int64_t)(addresses.n - i);

		rc = connect_place(w, (struct sockaddr *)&addresses.at[i].address, addresses.at[i].size, now + share, f);
		if (rc == RC_OK || i + 1 == addresses.n || rc != RC_AGAIN)
			return rc;
		rc = RC_OK; /* try the next */
	}
	return rc;
}

enum rc
wire_connect(struct wire *w, const struct address *a, instant until, struct fault *f)
{
	enum rc rc;

	wire_close(w);
	rc = *a->path ? connect_unix(w, a->path, until, f) : connect_tcp(w, a, until, f);
	if (rc != RC_OK)
		return rc;
	w->reader = redisReaderCreate();
	return w->reader ? RC_OK : broken(w, RC_SYSTEM, "cannot be read: out of memory", f);
}

/* ---- talking ---- */

bool
wire_is_quiet(const struct wire *w)
{
	char byte;

	return w->used == 0 && recv(w->fd, &byte, 1, MSG_PEEK) < 0 && errno == EAGAIN;
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
wire_send(struct wire *w, struct iovec *parts, int n, instant until, struct fault *f)
{
	use_up(&parts, &n, 0);
	while (n > 0) {
		struct msghdr m = {.msg_iov = parts, .msg_iovlen = n};
		ssize_t sent = sendmsg(w->fd, &m, MSG_NOSIGNAL);
		enum rc rc;

		if (sent > 0)
			use_up(&parts, &n, sent);
		else if (errno != EAGAIN && errno != EINTR)
			return broken(w, RC_AGAIN, "closed the connection", f);
		else if ((rc = await(w, POLLOUT, until, f)) != RC_OK)
			return rc;
	}
	return RC_OK;
}

/* Lets hiredis build the reply that takes the first `n` bytes of what has come. */
static enum rc
build(struct wire *w, size_t n, redisReply **ret, struct fault *f)
{
	void *reply = NULL;

	if (!w->reader)
		return broken(w, RC_AGAIN, "is not connected", f);
	if (redisReaderFeed(w->reader, w->in, n) != REDIS_OK ||
	    redisReaderGetReply(w->reader, &reply) != REDIS_OK || !reply)
		return w->reader->err == REDIS_ERR_OOM ? broken(w, RC_SYSTEM, "cannot be read: out of memory", f)
						       : broken(w, RC_PROTOCOL, "sent what is no Redis reply", f);
	w->used -= n;
	memmove(w->in, w->in + n, w->used);
	*ret = reply;
	return RC_OK;
}

enum rc
wire_receive(struct wire *w, redisReply **ret, instant until, struct fault *f)
{
	for (;;) {
		ssize_t length = resp_length(w->in, w->used), n;
		enum rc rc;

		if (length < 0)
			return broken(w, RC_PROTOCOL, "sent what is no Redis reply: is this a Redis server?", f);
		if (length > 0)
			return build(w, length, ret, f);
		n = recv(w->fd, w->in + w->used, RESP_BYTES - w->used, 0);
		if (n > 0) {
			w->used += n;
		} else if (n == 0 || (errno != EAGAIN && errno != EINTR)) {
			return broken(w, RC_AGAIN, "closed the connection", f);
		} else if ((rc = await(w, POLLIN, until, f)) != RC_OK) {
			return rc;
		}
	}
}
