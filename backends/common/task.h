/*
 * task.h - does work that blocks, and takes no deadline, in a thread that may be left behind.
 *
 * getaddrinfo(3), the wait for a kernel lock, a library's handshake: none takes a deadline.  So a
 * detached thread does it, and the backend waits in host->wait for `done`.  The task is the first
 * member of the work's own struct.  That struct has two owners, the thread and the starter.  The
 * one that lets go last frees it, so that neither has to wait for the other.
 */
#ifndef DLOCK_TASK_H
#define DLOCK_TASK_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

struct task {
	int done;                    /* an eventfd, readable when the work has ended */
	void (*work)(struct task *); /* in the thread */
	/* frees the work's own struct, and what it holds */
	void (*free)(struct task *);
	atomic_bool dropped; /* the starter has let go: work may look, and end early */
	atomic_int owners;
};

/*
 * Starts the thread, with a stack of `stack` bytes (0: the usual).  False with errno: nothing was
 * started, and t->free has freed `t`.
 */
bool task_start(struct task *t, size_t stack);

/* The starter lets go, whether the work has ended or not.  Accepts NULL. */
void task_drop(struct task *t);

#endif
