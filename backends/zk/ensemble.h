/*
 * ensemble.h - where an ensemble is, and who we are to it, from a URL.
 *
 *	zk://[USER:PASSWORD@]HOST[:PORT][,HOST[:PORT]...][/CHROOT]
 *
 * User, password and chroot may have %XX.
 */
#ifndef DLOCK_ZK_ENSEMBLE_H
#define DLOCK_ZK_ENSEMBLE_H

#include "backends/backend.h"

struct ensemble {
	char hosts[2048];  /* "h1:2181,[::1]:2181", as the library takes them */
	char chroot[1024]; /* "/a/b", or "" */
	char login[640];   /* "user:password", or "" */
};

/*
 * RC_OK, or RC_USAGE with what is wrong; never repeats the password.  url NULL:
 * 127.0.0.1:2181.
 */
enum rc ensemble_parse(struct ensemble *, const char *url, struct fault *);

/* Moves the first host to the end, n times. */
void ensemble_rotate(struct ensemble *, unsigned n);

/*
 * Is it an absolute path of components that ZooKeeper takes, outside of its own
 * /zookeeper?
 */
bool ensemble_is_path(const char *);

/* "zk h1:2181,h2:2181/chroot", for people. */
void ensemble_print(const struct ensemble *, char *out, size_t size);

#endif
