/*
 * task.h - work that blocks and knows no deadline, done by a thread that may be left
 * behind.
 *
 * getaddrinfo(3), a kernel lock that is waited for, a library's handshake: none
 * can be given a time, so a detached thread does it, and whoever needs the
 * result waits in host->wait for `done`.  The task is the first member of the
 * work's own struct, which has two owners, the thread and the starter; the one
 * who lets go last frees it, so that neither has to wait for the other.
 */
#ifndef DLOCK_TASK_H
#define DLOCK_TASK_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

struct task {
	int done;                    /* an eventfd, readable when the work has ended */
	void (*work)(struct task *); /* in the thread */
	/* what the work's own struct holds, and the struct */
	void (*free)(struct task *);
	atomic_bool dropped; /* the starter has let go: work may look, and end early */
	atomic_int owners;
};

/*
 * Starts the thread, with a stack of `stack` bytes (0: the usual).  False with
 * errno: nothing was started, and `t` has been given to t->free.
 */
bool task_start(struct task *t, size_t stack);

/* The starter lets go, whether the work has ended or not.  Accepts NULL. */
void task_drop(struct task *t);

#endif
