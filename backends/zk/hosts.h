/*
 * hosts.h - the addresses of an ensemble's servers, as the library is to have them.
 *
 * As addresses: the library would look names up in the thread that has to keep the
 * session alive, and spin while that fails.  And an odd number of them: it goes on
 * by two after each that fails; with an even number it never comes to half of them,
 * nor to the end of the list where it would pause (3.8 to 3.9: handle_error and
 * zoo_cycle_next_server each take a step).  So one is named twice.
 */
#ifndef DLOCK_ZK_HOSTS_H
#define DLOCK_ZK_HOSTS_H

#include "ensemble.h"
#include "probe.h"

enum { HOSTS_MAX = 64 };

struct hosts {
	size_t n;
	struct socket_address at[HOSTS_MAX];
	char list[8192]; /* "10.0.0.1:2181,::1:2181": without brackets, which the library does not know */
};

/*
 * Looks up an ensemble's names, in a thread that is left behind when it takes too
 * long; numbers need none.  RC_OK: there is at least one, in the ensemble's order.
 * RC_AGAIN: no name is known, or not until `until`.  RC_STOP, RC_SYSTEM.
 */
enum rc hosts_find(struct hosts *, struct host *, const struct ensemble *, const char *where, instant until,
    struct fault *);

#endif
