/*
 * wire.h - Redis replies on a stream.
 *
 * hiredis formats the commands and builds the replies; its own I/O can neither
 * keep a deadline nor is it safe from SIGPIPE, so the bytes go through net.h.
 * As there, whatever is returned but RC_OK has closed the connection.
 */
#ifndef DLOCK_REDIS_WIRE_H
#define DLOCK_REDIS_WIRE_H

#include "address.h"
#include "backends/common/net.h"
#include "resp.h"

#include <hiredis/hiredis.h>
#include <sys/socket.h>

struct wire {
	struct stream stream;
	redisReader *reader;
	const struct resp_bounds *bounds;
	size_t used;
	char *in; /* what has come and is not yet read as a reply; NULL: closed */
};

void wire_init(struct wire *, struct host *, const char *where);

/* What replies are let in from now on; resp_usual if nothing is said. */
void wire_bound(struct wire *, const struct resp_bounds *);

bool wire_is_open(const struct wire *);

/*
 * Is it open, and is nothing there that would be taken for an answer?  A descriptor that is
 * readable says less: TLS talks of itself.
 */
bool wire_is_quiet(struct wire *);

/* Begins to connect to this one of `at`'s; what is sent then may have to wait. */
enum rc wire_start(struct wire *, const struct address *, const struct endpoint *at,
    const struct sockaddr *, socklen_t, struct fault *);

/*
 * The next reply (freeReplyObject() it), without waiting: *ret is NULL while it has not come.
 * RC_PROTOCOL: what came is none, or too large.
 */
enum rc wire_take(struct wire *, redisReply **ret, struct fault *);

void wire_close(struct wire *);

#endif
