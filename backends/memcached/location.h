/*
 * location.h - where a memcached server is and who we are to it, from a URL.
 *
 *	memcached://[USER[:PASSWORD]@]HOST[:PORT]
 *
 * HOST is a name, an IPv4 address, or an IPv6 one in brackets; user and password may have
 * %XX.
 */
#ifndef DLOCK_MEMCACHED_LOCATION_H
#define DLOCK_MEMCACHED_LOCATION_H

#include "backends/backend.h"
#include "backends/common/url.h"

struct location {
	struct endpoint at;
	char user[128], password[128]; /* "": none */
};

/*
 * RC_OK, or RC_USAGE (RC_CONFIG: several servers) with what is wrong; never repeats the
 * password.  url NULL: 127.0.0.1:11211.
 */
enum rc location_parse(struct location *, const char *url, struct fault *);

/* After all settings: are there both a user and a password, or neither? */
enum rc location_check_login(const struct location *, struct fault *);

/* For people: "memcached 10.0.0.5:11211". */
void location_print(const struct location *, char *out, size_t size);

#endif
