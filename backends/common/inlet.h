/*
 * inlet.h - looks at what a client library reads, before the library does.
 *
 * A library that trusts its server crashes, or takes all memory, when the server is hostile.
 * Libraries read with recv() and write with send().  inlet.c defines both for the whole
 * program, also for libraries that are loaded later (the Makefile exports the symbols).  They
 * do what the system's do, unless this thread watches the descriptor.
 *
 * What a library reads through OpenSSL passes here encrypted.
 */
#ifndef DLOCK_INLET_H
#define DLOCK_INLET_H

#include <sys/types.h>

struct inlet {
	int fd; /* -1: each that this thread reads and no other inlet of it names */

	/* In place of recv(): the same arguments, result and errno; NULL: recv() itself. */
	ssize_t (*recv)(struct inlet *, int fd, void *to, size_t size, int flags);

	/* What send() is told besides, for so many bytes: flags; NULL: nothing. */
	int (*flags)(struct inlet *, size_t n);

	/* Told of bytes that send() has sent; NULL: need not know. */
	void (*sent)(struct inlet *, int fd, const void *from, size_t n);

	struct inlet *next; /* of this thread; inlet.c's own */
};

/*
 * What the calling thread reads goes through the inlet from now on, until inlet_leave() in
 * the same thread.  The inlet must stay where it is so long.  Watching one twice, or
 * leaving one that is not watched, does nothing.
 */
void inlet_watch(struct inlet *);
void inlet_leave(struct inlet *);

/* The descriptor on which the calling thread has sent last; -1: it has not yet. */
int inlet_sent_on(void);

/* The system's recv(). */
ssize_t inlet_recv(int fd, void *to, size_t size, int flags);

#endif
