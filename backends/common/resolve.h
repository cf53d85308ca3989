/*
 * resolve.h - a name's addresses, never waited for longer than we want.
 *
 * getaddrinfo(3) cannot be given a deadline, so a thread asks for a name, and is left alone
 * when it takes too long.  Numeric addresses need none.
 */
#ifndef DLOCK_RESOLVE_H
#define DLOCK_RESOLVE_H

#include "backends/backend.h"

#include <sys/socket.h>

enum { ADDRESSES_MAX = 8 };

struct addresses {
	size_t n;
	bool absent; /* there is no such name: that is known */
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

/*
 * The same in two steps, so that several names are resolved at once.  NULL: it needed no
 * second step, or (without any address) there is no thread to be had.
 */
struct lookup *resolve_begin(const char *name, int port, struct addresses *);
/* It is readable once resolve_end() need not wait. */
int resolve_fd(const struct lookup *);
enum rc resolve_end(
    struct lookup *, struct host *, instant until, struct addresses *, struct fault *);

#endif
