/*
 * probe.h - is there a ZooKeeper at an address?
 *
 * The library takes whatever it is sent for the beginning of a session, or waits
 * for it for ever.  So we look ourselves, on connections of our own: at the answer
 * to what a ZooKeeper's client says first; and where there is none, at that to one
 * of ZooKeeper's four-letter words.
 */
#ifndef DLOCK_ZK_PROBE_H
#define DLOCK_ZK_PROBE_H

#include "backends/backend.h"

#include <sys/socket.h>

struct socket_address {
	struct sockaddr_storage storage;
	socklen_t size;
};

/* From an IPv4 or IPv6 address as text.  False: it is none. */
bool probe_address(struct socket_address *, const char *number, int port);

enum probed {
	PROBE_UNKNOWN, /* it says nothing, or is not there */
	PROBE_ZOOKEEPER,
	PROBE_OTHER, /* it says what no ZooKeeper does */
	PROBE_STOP,  /* as host->wait says */
};

/* Takes half a second at most. */
enum probed probe(struct host *, const struct socket_address *);

#endif
