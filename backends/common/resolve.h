/*
 * resolve.h - looks up the addresses of a name, with a deadline.
 *
 * getaddrinfo(3) takes no deadline, so a thread calls it, and is left behind when it takes too
 * long.  Numeric addresses need no thread.
 */
#ifndef DLOCK_RESOLVE_H
#define DLOCK_RESOLVE_H

#include "backends/backend.h"

#include <sys/socket.h>

enum { ADDRESSES_MAX = 8 };

struct addresses {
	size_t n;
	bool absent; /* the resolver says that there is no such name */
	struct {
		struct sockaddr_storage address;
		socklen_t size;
	} at[ADDRESSES_MAX];
};

/*
 * Looks up a name, until `until`.  RC_OK: there is at least one address.  RC_AGAIN: the name is
 * unknown, or there was no answer in time.  RC_STOP, RC_SYSTEM.
 */
enum rc resolve(struct host *, const char *name, int port, instant until,
    struct addresses *, struct fault *);

/*
 * Does the same in two steps, so that several names are looked up at once.  NULL: no second step
 * is needed, or, if there is no address, no thread could be started.
 */
struct lookup *resolve_begin(const char *name, int port, struct addresses *);
/* A descriptor that is readable when resolve_end() does not have to wait. */
int resolve_fd(const struct lookup *);
enum rc resolve_end(
    struct lookup *, struct host *, instant until, struct addresses *, struct fault *);

#endif
