/*
 * stream.h - bytes to and from a server over a socket.
 *
 * The socket is non-blocking, close-on-exec and never gives SIGPIPE; every wait
 * is in host->wait with an absolute deadline.  What carries the bytes is a row
 * of functions, stream_ops: plain sockets; or TLS on them (tls.h), and nothing above
 * that changes but who connects.
 *
 * Functions that return an rc close the stream whenever that is not RC_OK: an
 * answer that comes late would be taken for that to the next question.
 * RC_AGAIN: nobody there, hung up, or not in time.  RC_STOP: host->wait says so.
 * RC_SYSTEM: no socket to be had.  RC_DENIED: a unix socket that we may not use.
 */
#ifndef DLOCK_STREAM_H
#define DLOCK_STREAM_H

#include "resolve.h"

#include <sys/types.h>
#include <sys/uio.h>

struct stream;

struct stream_ops {
	/*
	 * As writev(2) and read(2), with EAGAIN when it has to wait; then s->wants says
	 * for what.
	 */
	ssize_t (*write)(struct stream *, const struct iovec *, int n);
	ssize_t (*read)(struct stream *, void *, size_t);
	/* Would read have to wait? */
	bool (*is_quiet)(struct stream *);
	/* Why write or read have failed, or that read has found the end. */
	enum rc (*explain)(struct stream *, struct fault *);
	/*
	 * Takes leave, and frees what is the row's own, if it has any; the descriptor is closed
	 * behind it.
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
	/* what to say should it hang up before it has said anything: ": ..."; not owned */
	const char *hint;
};

void stream_init(struct stream *, struct host *, const char *where);

/* To the addresses, at least one, in turn, each with its share of the time that is left. */
enum rc stream_connect_to(
    struct stream *, const struct addresses *, instant until, struct fault *);

/*
 * Begins to connect to one address, and does not wait: what is written meanwhile gives
 * EAGAIN, and what became of it is seen then.
 */
enum rc stream_start(struct stream *, const struct sockaddr *, socklen_t, struct fault *);

/*
 * Is it open, and nothing to be read?  What has come unasked would be taken for an
 * answer.
 */
bool stream_is_quiet(struct stream *);

/* Sends all parts, in one packet where possible; the parts are used up. */
enum rc stream_send(
    struct stream *, struct iovec *parts, int n, instant until, struct fault *);

/* Waits for some bytes: *got of them, 1 to `size`. */
enum rc stream_receive(
    struct stream *, void *to, size_t size, size_t *got, instant until, struct fault *);

void stream_close(struct stream *);

/* ---- for rows of stream_ops ---- */

/* RC_AGAIN: it closed the connection; and s->hint. */
enum rc stream_hung_up(struct stream *, struct fault *);

/* Says what ops->explain says, and closes it. */
enum rc stream_failed(struct stream *, struct fault *);

#endif
