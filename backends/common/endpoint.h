/*
 * endpoint.h - a host and a port, as URLs and servers write them.
 */
#ifndef DLOCK_ENDPOINT_H
#define DLOCK_ENDPOINT_H

#include "backends/backend.h"

struct endpoint {
	char host[256]; /* a name, an IPv4 address, or an IPv6 one without its brackets */
	int port;       /* 1 to 65535 */
};

/*
 * Reads "host", "host:port" or "[v6]:port", n bytes of text; `port` is for
 * those that name none.  NULL, or what is wrong: "names no host".
 */
const char *endpoint_parse(struct endpoint *, const char *text, size_t n, int port);

/*
 * Reads host and port from two texts, as servers name each other.  There an IPv6 address has no
 * brackets.
 */
const char *endpoint_plain(
    struct endpoint *, const char *host, size_t nhost, const char *port, size_t nport);

/*
 * Writes `before`, then "host:port" or "[v6]:port".  Returns the length, or `size` where the text
 * was cut, or only just fits.
 */
int endpoint_print(char *out, size_t size, const char *before, const struct endpoint *);

bool endpoint_is(const struct endpoint *, const struct endpoint *);

/* Reads all n bytes of `text` as a decimal number up to `most`; -1: it is none. */
int endpoint_number(const char *text, size_t n, int most);

#endif
