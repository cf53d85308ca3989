/*
 * endpoint.h - a host and a port, as URLs name them.
 */
#ifndef DLOCK_ENDPOINT_H
#define DLOCK_ENDPOINT_H

#include <stddef.h>

struct endpoint {
	char host[256]; /* a name, an IPv4 address, or an IPv6 one without its brackets */
	int port;       /* 1 to 65535 */
};

/*
 * Reads "host", "host:port" or "[v6]:port", n bytes of text; `port` is for
 * those that name none.  NULL, or what is wrong: "names no host".
 */
const char *endpoint_parse(struct endpoint *, const char *text, size_t n, int port);

/* All of `text` (n bytes) as a decimal number up to `most`; -1 if it is none. */
int endpoint_number(const char *text, size_t n, int most);

#endif
