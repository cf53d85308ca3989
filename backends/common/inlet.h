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

/*
 * Each function is called in place of the one of its name, with the same arguments, result and
 * errno.  NULL: the system's function is called.
 */
struct inlet {
	int fd; /* -1: every descriptor that no other inlet of this thread names */

	ssize_t (*recv)(struct inlet *, int fd, void *to, size_t size, int flags);
	ssize_t (*send)(struct inlet *, int fd, const void *from, size_t size, int flags);

	/* Called for everything that this thread waits for, with fd or without. */
	int (*poll)(struct inlet *, struct pollfd *, nfds_t n, int timeout);

	struct inlet *next; /* the list of this thread; only inlet.c uses it */
};

/*
 * From now on, what the calling thread reads, writes and waits for goes through the inlet, until
 * inlet_leave() in the same thread.  The inlet must not move meanwhile.  Watching one twice, or
 * leaving one that is not watched, does nothing.
 */
void inlet_watch(struct inlet *);
void inlet_leave(struct inlet *);

/* The descriptor on which the calling thread has sent last; -1: it has sent nothing. */
int inlet_sent_on(void);

/* The system's recv(), send() and poll(). */
ssize_t inlet_recv(int fd, void *to, size_t size, int flags);
ssize_t inlet_send(int fd, const void *from, size_t size, int flags);
int inlet_poll(struct pollfd *, nfds_t n, int timeout);

#endif
