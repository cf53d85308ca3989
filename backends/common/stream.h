/*
 * stream.h - sends and receives bytes over a socket to a server.
 *
 * The socket is non-blocking and close-on-exec, and never gives SIGPIPE.  Every wait is in
 * host->wait with an absolute deadline.  A row of functions, stream_ops, carries the bytes: over
 * a plain socket, or over TLS (tls.h).  Only the function that connects knows which of the two it
 * is.
 *
 * A function that returns an rc closes the stream if that is not RC_OK, since a late answer would
 * be taken for the answer to the next question.  RC_AGAIN: nobody is there, or hung up, or did
 * not answer in time.  RC_STOP: host->wait says so.  RC_SYSTEM: we got no socket.  RC_DENIED: we
 * may not use the unix socket.
 */
#ifndef DLOCK_STREAM_H
#define DLOCK_STREAM_H

#include "resolve.h"

#include <sys/types.h>
#include <sys/uio.h>

struct stream;

struct stream_ops {
	/*
	 * Do what writev(2) and read(2) do.  EAGAIN: it has to wait for the events in s->wants.
	 */
	ssize_t (*write)(struct stream *, const struct iovec *, int n);
	ssize_t (*read)(struct stream *, void *, size_t);
	/* Would read have to wait? */
	bool (*is_quiet)(struct stream *);
	/* Says why write or read have failed, or that read has found the end. */
	enum rc (*explain)(struct stream *, struct fault *);
	/*
	 * Says goodbye to the server, and frees s->own, if there is any.  The caller closes the
	 * descriptor after that.
	 */
	void (*close)(struct stream *);
};

struct stream {
	struct host *host;
	const char *where; /* the server, for people; not owned */
	const struct stream_ops *ops;
	void *own;   /* of the row's */
	int fd;      /* -1: closed */
	short wants; /* poll(2)'s events, after EAGAIN */
	/* added to the error if the server hangs up before it has said anything; not owned */
	const char *hint;
};

void stream_init(struct stream *, struct host *, const char *where);

/*
 * Connects to one of the addresses, at least one, in turn.  Each has its share of the time that
 * is left.
 */
enum rc stream_connect_to(
    struct stream *, const struct addresses *, instant until, struct fault *);

/*
 * Begins to connect to one address, and does not wait.  Until it is connected, a write gives
 * EAGAIN; the first write after that tells whether it has failed.
 */
enum rc stream_start(struct stream *, const struct sockaddr *, socklen_t, struct fault *);

/*
 * Is the stream open, with nothing to read?  Bytes that came without a question would be taken
 * for the answer to the next one.
 */
bool stream_is_quiet(struct stream *);

/* Sends all parts, in one packet where possible; the parts are used up. */
enum rc stream_send(
    struct stream *, struct iovec *parts, int n, instant until, struct fault *);

/* Waits for bytes, and receives *got of them, 1 to `size`. */
enum rc stream_receive(
    struct stream *, void *to, size_t size, size_t *got, instant until, struct fault *);

void stream_close(struct stream *);

/* ---- for rows of stream_ops ---- */

/* Says that the server has closed the connection, and s->hint.  Returns RC_AGAIN. */
enum rc stream_hung_up(struct stream *, struct fault *);

/* Says what ops->explain says, and closes the stream. */
enum rc stream_failed(struct stream *, struct fault *);

#endif
