/*
 * anchors.h - the descriptors whose being open keeps a lock, and how copies of them are sent.
 *
 * A lock of the kernel lasts for as long as any process has its descriptor open; the session of a
 * database server lasts for as long as any has its connection open.  So the front gets copies: the
 * lock does not end with the keeper, but when all that works under it has been stopped.
 */
#ifndef DLOCK_ANCHORS_H
#define DLOCK_ANCHORS_H

#include "cmd/params.h"

#include <sys/types.h>
#include <sys/uio.h>

struct anchors {
	/* for each key one, or none (grant.anchor); behind them what else MSG_GRANTED brings */
	int fds[KEYS_MAX + 1];
	size_t n;
	bool cut; /* there were more, for which the receiver had no room */
};

/*
 * Sends the parts as one message, with copies of the anchors unless these are NULL.  Never blocks.
 * The number of bytes, or -1 with errno: nothing was sent.
 */
ssize_t anchors_send(
    int socket, const struct iovec *parts, size_t n, const struct anchors *);

/*
 * Receives one message; the anchors that come with it are the caller's.  Never blocks.  As
 * recvmsg(2); without a message there are no anchors.
 */
ssize_t anchors_receive(
    int socket, const struct iovec *parts, size_t n, struct anchors *);

/* Closes them: there are none. */
void anchors_close(struct anchors *);

#endif
