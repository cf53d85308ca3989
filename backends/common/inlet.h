/*
 * inlet.h - stands between a client library and its connection.
 *
 * A library that trusts its server crashes, or takes all memory, when the server is hostile;
 * one that has no TLS sends passwords in the clear.  Libraries read with recv(), write with
 * send() and wait with poll().  inlet.c defines these three for the whole program, also for
 * libraries that are loaded later (the Makefile exports the symbols).  They do what the
 * system's do, unless this thread watches the descriptor.
 *
 * What a library reads through OpenSSL passes here encrypted.
 */
#ifndef DLOCK_INLET_H
#define DLOCK_INLET_H

#include <poll.h>
#include <sys/types.h>

/* Each function has the arguments, the result and the errno of the one it stands for; NULL: that one. */
struct inlet {
	int fd; /* -1: each that this thread uses and no other inlet of it names */

	ssize_t (*recv)(struct inlet *, int fd, void *to, size_t size, int flags);
	ssize_t (*send)(struct inlet *, int fd, const void *from, size_t size, int flags);

	/* Whatever this thread waits for, with fd or without. */
	int (*poll)(struct inlet *, struct pollfd *, nfds_t n, int timeout);

	struct inlet *next; /* of this thread; inlet.c's own */
};

/*
 * What the calling thread reads, writes and waits for goes through the inlet from now on, until
 * inlet_leave() in the same thread.  The inlet must stay where it is so long.  Watching one
 * twice, or leaving one that is not watched, does nothing.
 */
void inlet_watch(struct inlet *);
void inlet_leave(struct inlet *);

/* The descriptor on which the calling thread has sent last; -1: it has not yet. */
int inlet_sent_on(void);

/* The system's recv(), send() and poll(). */
ssize_t inlet_recv(int fd, void *to, size_t size, int flags);
ssize_t inlet_send(int fd, const void *from, size_t size, int flags);
int inlet_poll(struct pollfd *, nfds_t n, int timeout);

#endif
