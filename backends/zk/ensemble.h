/*
 * ensemble.h - where an ensemble is, and who we are to it, from a URL; and the addresses of its
 * servers, as the library is to have them.
 *
 *	zk://[USER:PASSWORD@]HOST[:PORT][,HOST[:PORT]...][/CHROOT]
 *
 * User, password and chroot may have %XX.  With zks:// it is TLS that is spoken to all of them.
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
#ifndef DLOCK_ZK_ENSEMBLE_H
#define DLOCK_ZK_ENSEMBLE_H

#include "backends/backend.h"
#include "backends/common/endpoint.h"

struct sockaddr;
struct tls;

struct ensemble {
	bool secure; /* the URL wants TLS: then `tls`, which its owner opens and closes */
	struct tls *tls;
	char hosts[2048];  /* "h1:2181,[::1]:2181", as the library takes them */
	char chroot[1024]; /* "/a/b", or "" */
	char login[640];   /* "user:password", or "" */
};

/*
 * RC_OK, or RC_USAGE with what is wrong; never repeats the password.  url NULL:
 * 127.0.0.1:2181.
 */
enum rc ensemble_parse(struct ensemble *, const char *url, struct fault *);

/* Of the login; "" without one. */
const char *ensemble_password(const struct ensemble *);

/* Moves the first host to the end, n times. */
void ensemble_rotate(struct ensemble *, unsigned n);

/*
 * Is it an absolute path of components that ZooKeeper takes, outside of its own
 * /zookeeper?
 */
bool ensemble_is_path(const char *);

/* "zk h1:2181,h2:2181/chroot", for people. */
void ensemble_print(const struct ensemble *, char *out, size_t size);

/* ---- the addresses of its servers ---- */

struct hosts {
	size_t n; /* servers */
	/* "10.0.0.1:2181,::1:2181": without brackets, which the library does not know */
	char list[8192];
	/* with TLS: the ensemble's hosts, and which of them has each address */
	char names[2048];
	unsigned char name_of[64];
};

/*
 * Looks up an ensemble's names; numbers need no resolver.  RC_OK: there is at least one, in the
 * ensemble's order.  RC_AGAIN: no name is known, or not until `until`.  RC_STOP, RC_SYSTEM.
 */
enum rc hosts_find(struct hosts *, struct host *, const struct ensemble *,
    const char *where, instant until, struct fault *);

/* The host of the URL that has this address, the first of several; false: none has. */
bool hosts_name(
    const struct hosts *, const struct sockaddr *, unsigned size, struct endpoint *);

/*
 * Asks one after the other, until one is a ZooKeeper; half a second each at most.  RC_PROTOCOL,
 * without words: the last one says what no ZooKeeper does.  *speaks_tls: one of them does, and was not to.
 * RC_AGAIN: the last one says nothing.  RC_STOP.
 */
enum rc hosts_probe(const struct hosts *, struct host *, struct tls *, bool *speaks_tls);

struct addresses;

/* A server that is asked a question on a connection of its own. */
struct asked {
	struct host *host;
	const struct addresses *at;
	struct tls *tls;  /* NULL: in the clear */
	const char *name; /* what its certificate is to be for */
};

/*
 * What a server answers to that: the first of it, or `all` up to the end.  RC_OK: something.
 * RC_AGAIN: nothing.  RC_STOP.
 */
enum rc hosts_ask(const struct asked *, const char *question, size_t length, bool all,
    instant until, char *out, size_t size, size_t *n);

#endif
