/*
 * address.h - where a Redis server is and who we are to it, from a URL.
 *
 *	redis://[[USER]:PASSWORD@]HOST[:PORT][/DB]
 *	redis+unix://[[USER]:PASSWORD@]/PATH[?db=DB]
 *
 * HOST is a name, an IPv4 address, or an IPv6 one in brackets; user and
 * password may have %XX.  A password may also be kept in a file, so that it
 * need not stand on a command line or in an environment.
 */
#ifndef DLOCK_REDIS_ADDRESS_H
#define DLOCK_REDIS_ADDRESS_H

#include "backends/backend.h"

struct address {
	char host[256]; /* "" for a unix socket */
	int port;
	char path[108]; /* of a unix socket, else "" */
	char user[128];
	char password[512];
	int db;
};

/* RC_OK, or RC_USAGE with what is wrong; never repeats the password.  url NULL: 127.0.0.1:6379. */
enum rc address_parse(struct address *, const char *url, struct fault *);

/*
 * Takes the password from a file: plain, ours or root's, readable by its owner
 * only, one line.  RC_OK, or RC_CONFIG with what is wrong.
 */
enum rc address_read_password(struct address *, const char *file, struct fault *);

/* "redis 10.0.0.5:6379", for people. */
void address_print(const struct address *, char *out, size_t size);

#endif
