/*
 * wire.h - one connection to a Redis server.
 *
 * The socket is ours: non-blocking, close-on-exec, no SIGPIPE, every wait in
 * host->wait with an absolute deadline, the name resolved by a thread that may
 * come too late (hiredis' own I/O can do none of this).  hiredis formats the
 * commands and builds the replies.
 *
 * A connection on which an answer is overdue, or wrong, MUST be closed: a late
 * answer would be taken for that to the next question.  These functions close
 * it whenever they return anything but RC_OK.
 */
#ifndef DLOCK_REDIS_WIRE_H
#define DLOCK_REDIS_WIRE_H

#include "address.h"
#include "resp.h"

#include <hiredis/hiredis.h>
#include <sys/uio.h>

struct wire {
	struct host *host;
	const char *where;
	int fd; /* -1: closed */
	redisReader *reader;
	size_t used;
	char in[RESP_BYTES + 1]; /* what has come and is not yet read as a reply */
};

void wire_init(struct wire *, struct host *, const char *where);

/* RC_AGAIN: nobody there, or not in time.  RC_STOP.  RC_SYSTEM: no socket to be had. */
enum rc wire_connect(struct wire *, const struct address *, instant until, struct fault *);

/*
 * Is the connection as it should be before a question: open, and nothing to be
 * read?  What has come unasked would be taken for the answer.
 */
bool wire_is_quiet(const struct wire *);

/* Sends all parts, in one packet where possible; the parts are used up. */
enum rc wire_send(struct wire *, struct iovec *parts, int n, instant until, struct fault *);

/* The next reply (freeReplyObject() it).  RC_PROTOCOL: what came is none, or too large. */
enum rc wire_receive(struct wire *, redisReply **ret, instant until, struct fault *);

void wire_close(struct wire *);

#endif
