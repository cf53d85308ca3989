/*
 * address.h - where a Redis server is and who we are to it, from a URL.
 *
 *	redis://[[USER]:PASSWORD@]HOST[:PORT][/DB]
 *	redis+unix://[[USER]:PASSWORD@]/PATH[?db=DB]
 *
 * With rediss instead of redis in front, TLS is spoken to every server.
 *
 * HOST is a name, an IPv4 address, or an IPv6 one in brackets; user and
 * password may have %XX.
 */
#ifndef DLOCK_REDIS_ADDRESS_H
#define DLOCK_REDIS_ADDRESS_H

#include "backends/backend.h"
#include "backends/endpoint.h"
#include "backends/tls.h"

struct address {
	struct endpoint tcp; /* host "" for a unix socket */
	char path[108];      /* of a unix socket, else "" */
	char user[128];
	char password[512];
	int db;
	bool secure; /* TLS is to be spoken */
	struct tls
	    *tls; /* by this, from when the store is open; NULL: plainly; not owned */
};

/*
 * RC_OK, or RC_USAGE with what is wrong; never repeats the password.  url NULL:
 * 127.0.0.1:6379.
 */
enum rc address_parse(struct address *, const char *url, struct fault *);

/* "redis 10.0.0.5:6379", for people. */
void address_print(const struct address *, char *out, size_t size);

#endif
