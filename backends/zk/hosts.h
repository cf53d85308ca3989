/*
 * hosts.h - the addresses of an ensemble's servers, as the library is to have them.
 *
 *  1. As addresses: the library would look names up in the thread that has to keep the
 *     session alive, and spin while that fails.  And an odd number of them: it goes on
 *     by two after each that fails; with an even number it never comes to half of them,
 *     nor to the end of the list where it would pause (3.8 to 3.9: handle_error and
 *     zoo_cycle_next_server each take a step).  So one is named twice.
 *  2. The library takes whatever it is sent for the beginning of a session, or waits
 *     for it for ever.  So we look ourselves whether there is a ZooKeeper, on connections of our
 *     own: at the answer to what a ZooKeeper's client says first; and where there is none, at
 *     that to one of ZooKeeper's four-letter words.
 */
#ifndef DLOCK_ZK_HOSTS_H
#define DLOCK_ZK_HOSTS_H

#include "ensemble.h"

struct hosts {
	size_t n; /* servers */
	/* "10.0.0.1:2181,::1:2181": without brackets, which the library does not know */
	char list[8192];
};

/*
 * Looks up an ensemble's names; numbers need no resolver.  RC_OK: there is at least one, in the
 * ensemble's order.  RC_AGAIN: no name is known, or not until `until`.  RC_STOP, RC_SYSTEM.
 */
enum rc hosts_find(struct hosts *, struct host *, const struct ensemble *,
    const char *where, instant until, struct fault *);

enum probed {
	PROBE_UNKNOWN, /* they say nothing, or are not there */
	PROBE_ZOOKEEPER,
	PROBE_OTHER, /* the last one says what no ZooKeeper does */
	PROBE_STOP,  /* as host->wait says */
};

/* Asks one after the other, until one is a ZooKeeper; half a second each at most. */
enum probed hosts_probe(const struct hosts *, struct host *);

#endif
