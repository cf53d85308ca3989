/* wire.c - Redis replies on a stream. */
#include "wire.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { TLS_ALERT = 0x15 }; /* what TLS begins with that we did not ask for */

void
wire_init(struct wire *w, struct host *host, const char *where)
{
	stream_init(&w->stream, host, where);
	w->reader = NULL;
	w->bounds = &resp_usual;
	w->used = 0;
	w->in = NULL;
}

static void
forget_replies(struct wire *w)
{
	if (w->reader)
		redisReaderFree(w->reader);
	free(w->in);
	w->reader = NULL;
	w->used = 0;
	w->in = NULL;
}

void
wire_close(struct wire *w)
{
	stream_close(&w->stream);
	forget_replies(w);
}

void
wire_bound(struct wire *w, const struct resp_bounds *bounds)
{
	if (w->bounds != bounds)
		wire_close(w);
	w->bounds = bounds;
}

static enum rc
wire_broken(struct wire *w, enum rc rc, const char *what, struct fault *f)
{
	wire_close(w);
	return fault_set(f, rc, "%s %s", w->stream.where, what);
}

enum rc
wire_start(struct wire *w, const struct address *a, const struct endpoint *at,
    const struct sockaddr *to, socklen_t size, struct fault *f)
{
	enum rc rc;

	wire_close(w);
	rc = stream_start(&w->stream, to, size, f);
	if (rc == RC_OK && a->tls)
		rc = tls_start(a->tls, &w->stream, at->host, f);
	if (rc != RC_OK)
		return rc;
	w->reader = redisReaderCreate();
	w->in = malloc(w->bounds->bytes);
	return w->reader && w->in
	    ? RC_OK
	    : wire_broken(w, RC_SYSTEM, "cannot be read: out of memory", f);
}

bool
wire_is_open(const struct wire *w)
{
	return w->stream.fd >= 0;
}

bool
wire_is_quiet(struct wire *w)
{
	return w->used == 0 && stream_is_quiet(&w->stream);
}

/* Lets hiredis build the reply that takes the first `n` bytes of what has come. */
static enum rc
build_reply(struct wire *w, size_t n, redisReply **ret, struct fault *f)
{
	void *reply = NULL;

	if (redisReaderFeed(w->reader, w->in, n) != REDIS_OK ||
	    redisReaderGetReply(w->reader, &reply) != REDIS_OK || !reply)
		return w->reader->err == REDIS_ERR_OOM
		    ? wire_broken(w, RC_SYSTEM, "cannot be read: out of memory", f)
		    : wire_broken(w, RC_PROTOCOL, "sent what is no Redis reply", f);
	w->used -= n;
	memmove(w->in, w->in + n, w->used);
	*ret = reply;
	return RC_OK;
}

/* The first reply of what has come; *ret NULL: it is not complete. */
static enum rc
wire_parse(struct wire *w, redisReply **ret, struct fault *f)
{
	ssize_t length = resp_length(w->in, w->used, w->bounds);

	*ret = NULL;
	if (length < 0)
		return wire_broken(w, RC_PROTOCOL,
		    *w->in == TLS_ALERT
			? "sent what is no Redis reply, but of TLS: is that its TLS port (rediss://)?"
			: "sent what is no Redis reply: is this a Redis server?",
		    f);
	return length > 0 ? build_reply(w, length, ret, f) : RC_OK;
}

enum rc
wire_take(struct wire *w, redisReply **ret, struct fault *f)
{
	for (;;) {
		enum rc rc = wire_parse(w, ret, f);
		ssize_t n;

		if (rc != RC_OK || *ret)
			return rc;
		n = w->stream.ops->read(
		    &w->stream, w->in + w->used, w->bounds->bytes - w->used);
		if (n < 0 && errno == EAGAIN)
			return RC_OK;
		if (n == 0 || (n < 0 && errno != EINTR)) {
			rc = stream_failed(&w->stream, f);
			forget_replies(w);
			return rc;
		}
		w->used += n > 0 ? n : 0;
	}
}
