/* tunnel.c - stands between libzookeeper's socket calls and a stream with TLS. */
#include "tunnel.h"

#include "backends/common/endpoint.h"
#include "backends/common/inlet.h"
#include "backends/common/stream.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

enum { KEPT = 64 << 10 /* of memory, from one message to the next */ };

struct tunnel {
	struct tls *tls;
	const struct hosts *hosts;
	struct stream stream; /* its descriptor is the library's; -1: no connection */
	char where[300];      /* the server, for people */
	struct {
		char *bytes;
		size_t n, room;
	} plain;      /* what the library has sent, until all of it is on its way */
	bool leaving; /* no more is added to that before */
	bool drained; /* a read has found that nothing more has come */
	bool polled;
	enum rc rc; /* of the first that went wrong; RC_OK: nothing has */
	struct fault fault;
};

static ssize_t
fail_with(int error)
{
	errno = error;
	return -1;
}

enum rc
tunnel_open(struct tunnel **ret, const struct tls *tls, const struct hosts *hosts,
    struct fault *f)
{
	struct tunnel *t = calloc(1, sizeof *t);
	enum rc rc;

	if (!t)
		return fault_set(f, RC_SYSTEM, "out of memory");
	rc = tls_again(&t->tls, tls, f);
	if (rc != RC_OK) {
		free(t);
		return rc;
	}
	t->hosts = hosts;
	stream_init(&t->stream, NULL, t->where);
	*ret = t;
	return RC_OK;
}

/* ---- a connection's beginning and end ---- */

/* Keeps what is said of it first; leaves errno alone. */
static void
note_failure(struct tunnel *t)
{
	int error = errno;

	if (t->rc == RC_OK)
		t->rc = t->stream.ops->explain(&t->stream, &t->fault);
	errno = error;
}

static bool
begin(struct tunnel *t, int fd)
{
	struct sockaddr_storage to;
	socklen_t size = sizeof to;
	struct endpoint at;
	struct fault unused;

	tunnel_end(t, &unused);
	if (getpeername(fd, (struct sockaddr *)&to, &size) != 0)
		return false;
	if (!hosts_name(t->hosts, (struct sockaddr *)&to, size, &at)) {
		errno = EHOSTUNREACH;
		return false;
	}
	endpoint_print(t->where, sizeof t->where, "zks ", &at);
	t->rc = tls_start(t->tls, &t->stream, at.host, &t->fault);
	if (t->rc != RC_OK) {
		errno = ENOMEM;
		return false;
	}
	t->stream.fd = fd;
	t->drained = true;
	return true;
}

enum rc
tunnel_end(struct tunnel *t, struct fault *f)
{
	enum rc rc = t->rc;

	*f = t->fault;
	if (t->stream.fd >= 0)
		t->stream.ops->close(&t->stream);
	stream_init(&t->stream, NULL, t->where);
	t->plain.n = 0;
	t->leaving = t->drained = false;
	t->rc = RC_OK;
	return rc;
}

void
tunnel_close(struct tunnel *t)
{
	if (!t)
		return;
	if (t->stream.fd >= 0) {
		t->stream.fd = -2; /* may be another's by now */
		t->stream.ops->close(&t->stream);
	}
	free(t->plain.bytes);
	tls_close(t->tls);
	free(t);
}

bool
tunnel_can_retry(const struct tunnel *t)
{
	return tls_can_retry(t->tls);
}

bool
tunnel_has_begun(const struct tunnel *t)
{
	return t->stream.fd >= 0;
}

bool
tunnel_is_flushed(const struct tunnel *t)
{
	return t->plain.n == 0;
}

/* ---- what is sent ---- */

/* Encrypts and sends what was kept; false with EAGAIN: there is more of it. */
static bool
push_out(struct tunnel *t)
{
	struct iovec part = {t->plain.bytes, t->plain.n};

	if (!t->leaving)
		return true;
	if (t->stream.ops->write(&t->stream, &part, 1) < 0) {
		if (errno != EAGAIN)
			note_failure(t);
		return false;
	}
	t->plain.n = 0;
	t->leaving = false;
	if (t->plain.room > KEPT) {
		free(t->plain.bytes);
		t->plain.bytes = NULL;
		t->plain.room = 0;
	}
	return true;
}

static bool
keep(struct tunnel *t, const void *from, size_t n)
{
	if (!t->plain.bytes || t->plain.n + n > t->plain.room) {
		size_t room = 2 * t->plain.room + n;
		char *bytes = realloc(t->plain.bytes, room);

		if (!bytes)
			return false;
		t->plain.bytes = bytes;
		t->plain.room = room;
	}
	memcpy(t->plain.bytes + t->plain.n, from, n);
	t->plain.n += n;
	return true;
}

ssize_t
tunnel_send(struct tunnel *t, int fd, const void *from, size_t size, int flags)
{
	if (fd < 0)
		return fail_with(EBADF);
	if (t->stream.fd != fd && !begin(t, fd))
		return -1;
	if (!push_out(t))
		return -1;
	if (size > SSIZE_MAX / 4 || !keep(t, from, size))
		return fail_with(ENOMEM);
	t->leaving = !(flags & MSG_MORE);
	/* what cannot go now is kept: it is as good as sent */
	return push_out(t) || errno == EAGAIN ? (ssize_t)size : -1;
}

/* ---- what is received ---- */

ssize_t
tunnel_recv(struct tunnel *t, int fd, void *to, size_t size)
{
	ssize_t n;

	if (fd < 0 || t->stream.fd != fd)
		return fail_with(ENOTCONN);
	if (!t->polled) {
		t->rc = fault_set(&t->fault, RC_CONFIG,
		    "dlock cannot use TLS with this libzookeeper: it does not wait by poll(), as versions 3.8 and 3.9 do");
		return fail_with(ENOTSUP);
	}
	if (!push_out(t) && errno != EAGAIN)
		return -1;
	n = t->stream.ops->read(&t->stream, to, size);
	t->drained = n < 0 && errno == EAGAIN;
	if (n > 0)
		t->stream.hint = NULL;
	/* it has said nothing before: then TLS has more to say of that than "closed" */
	if (n == 0 && t->stream.hint) {
		n = -1;
		errno = EPROTO;
	}
	if (n < 0 && !t->drained)
		note_failure(t);
	return n;
}

/* ---- waiting ---- */

static struct pollfd *
find_slot(struct pollfd *at, nfds_t n, int fd)
{
	for (nfds_t i = 0; fd >= 0 && i < n; i++)
		if (at[i].fd == fd)
			return &at[i];
	return NULL;
}

/* As poll(), of all that the kernel and the tunnel know; 0 also when it is worth asking again. */
static int
poll_once(struct tunnel *t, struct pollfd *at, nfds_t n, struct pollfd *own, int timeout)
{
	short asked = own->events, wants = t->leaving ? t->stream.wants : 0;
	bool ready = (asked & POLLIN) && (!t->drained || t->rc != RC_OK);
	int found;

	own->events |= wants;
	found = inlet_poll(at, n, ready ? 0 : timeout);
	own->events = asked;
	if (found < 0)
		return found;
	if (own->revents & wants)
		ready = (!push_out(t) && errno != EAGAIN && (asked & POLLIN)) || ready;
	found -= own->revents != 0;
	own->revents &= asked | POLLERR | POLLHUP | POLLNVAL;
	own->revents |= ready ? POLLIN : 0;
	return found + (own->revents != 0);
}

int
tunnel_poll(struct tunnel *t, struct pollfd *at, nfds_t n, int timeout)
{
	instant until = timeout < 0 ? NEVER : instant_now() + timeout * NS_PER_MS;
	struct pollfd *own = find_slot(at, n, t->stream.fd);

	t->polled = true;
	if (!own)
		return inlet_poll(at, n, timeout);
	for (;;) {
		int64_t left = until - instant_now();
		int found = poll_once(t, at, n, own,
		    until == NEVER  ? -1
			: left <= 0 ? 0
				    : (int)((left + NS_PER_MS - 1) / NS_PER_MS));

		if (found != 0 || instant_now() >= until)
			return found;
	}
}
