/*
 * resolve.h - names to addresses, never longer than we want.
 *
 * getaddrinfo(3) cannot be given a deadline, so a name is asked for by a thread
 * that is left alone when it takes too long.  Numeric addresses need none.
 */
#ifndef DLOCK_RESOLVE_H
#define DLOCK_RESOLVE_H

#include "backends/backend.h"

#include <sys/socket.h>

enum { ADDRESSES_MAX = 8 };

struct addresses {
	size_t n;
	struct {
		struct sockaddr_storage address;
		socklen_t size;
	} at[ADDRESSES_MAX];
};

/*
 * RC_OK with at least one address; RC_AGAIN: unknown, or no answer until then; RC_STOP;
 * RC_SYSTEM.
 */
enum rc resolve(struct host *, const char *name, int port, instant until,
    struct addresses *, struct fault *);

#endif
