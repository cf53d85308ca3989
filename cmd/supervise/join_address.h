/*
 * join_address.h - where a keeper is reached by others: an abstract unix socket.
 *
 * An address, "@dlock-ID/NET/BACKEND/LOCK...=SITE", names the socket, the network namespace
 * it is in, since it is found from no other, the keeper's backend, which locks the keeper
 * has (a hash of backend and key for each), and where these are kept.  DLOCK_KEEPER has
 * those of all keepers around a command, the nearest first, with blanks between them.  A
 * handle, by which a hold is released, is "@dlock-ID/NET".
 *
 * A run that states no URL (by -u or a variable), and no other backend, means the server
 * of the nearest outer dlock, also for another key.  A dlock that has ended is none; but where
 * nothing else names a server, and it had named one, its server may be meant, and is not
 * known to be right any more.  So SITE is
 *
 *	=URL&NAME=VALUE...	each percent-encoded, with files by their absolute names
 *	!URL&NAME=VALUE...	the same; a password of the URL is blotted out, so that
 *				it says which locks are meant, and no more
 */
#ifndef DLOCK_JOIN_ADDRESS_H
#define DLOCK_JOIN_ADDRESS_H

#include "cmd/params.h"

#include <stdio.h>
#include <sys/types.h>

/* The longest address without its site, and the longest handle, with their NULs. */
enum { JOIN_ADDRESS_BYTES = 384, JOIN_HANDLE_BYTES = 80 };

/* Of a socket's name, 128 random bits in hex. */
enum { JOIN_ID_CHARS = 32 };

/* An address that was read; points into what it was read from. */
struct join_address {
	char name[64]; /* in the abstract namespace, without its first byte */
	size_t n;      /* of that; 0: this is no address of a keeper */
	unsigned long long net;
	char backend[16];  /* ""; not said, as in a handle */
	const char *locks; /* behind that: "/HASH/HASH...", up to any other byte */
	const char *site;  /* its first byte is '=' or '!' */
	size_t nsite;      /* 0: it is not said */
};

/*
 * A socket that listens under the name of this id, and its address for the run's keys, without
 * a site, in out[JOIN_ADDRESS_BYTES].  -1: there is none; the address then says so to others.
 *
 * The name is never used again: a process left behind must not find another keeper at it.  And it
 * is not the owner's, since every user of this machine can read it.
 */
int join_address_listen(char *out, const char *id, const struct params *);

/* Does one listen under the name of this id, where the process finds sockets? */
bool join_address_is_open(const char *id, pid_t);

/*
 * The next keeper's socket of the list, an open /proc/net/unix, whoever's it may be; false: there
 * is none.
 */
bool join_address_next_socket(FILE *list, struct join_address *);

/* The next of the addresses at *text, which is moved on; false: there is none. */
bool join_address_next(const char **text, struct join_address *);

/* The next address of a keeper of the run's backend at *addresses, which may be NULL. */
bool join_address_next_of(
    const char **addresses, const struct params *, struct join_address *);

/*
 * One of the run's keys that the keeper at this address has, as it says of itself;
 * NULL: none.
 */
const char *join_address_key(const struct join_address *, const struct params *);

/*
 * A socket that is connected to a keeper of our own user; *pid as below.  -1: errno is
 * EAGAIN: too many wait to be accepted; ECONNREFUSED: nobody is there any more; ENONET:
 * nor would anybody be found from this network namespace; EPERM: it is another user's;
 * or socket(2)'s.
 */
int join_address_connect(const struct join_address *, int flags, pid_t *pid);

/* The network namespace of a socket that has just been made, as handles have it; 0: not known. */
unsigned long long join_address_net(int fd);

/*
 * Is there still a keeper?  KEEPER_HIDDEN: it cannot be asked from here: it is in another network
 * namespace, or another user's.  A variable is handed on by what outlives a run (batch systems,
 * terminals, daemons), so it proves nothing.
 */
enum keeper_life { KEEPER_LIVES, KEEPER_ENDED, KEEPER_HIDDEN };
enum keeper_life join_address_life(const struct join_address *);

/*
 * Is it a process of our own user at the other end of this socket?  *pid is 0 if we
 * cannot see it from our pid namespace.
 */
bool join_address_is_ours(int fd, pid_t *pid);

/* The handle of the keeper at this address, into out[JOIN_HANDLE_BYTES]. */
void join_address_write_handle(const char *address, char *out);

/* The way back; false: this is no handle. */
bool join_address_read_handle(const char *handle, struct join_address *);

/*
 * A copy of the addresses (NULL: none), without those of keepers that have ended, and the one of
 * this handle (NULL: there is none).  It would grow for ever in a script that holds in a loop.
 * NULL: no memory.
 */
char *join_address_living(const char *addresses, const char *handle);

#endif
