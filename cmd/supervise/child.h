/*
 * child.h - the command: from a waiting stub to an executed program.
 *
 * The stub (stub.h) is forked before the keeper has a library, a thread or a socket to
 * a server, so nothing of that kind can leak into the command, and a fork that
 * fails is known before anything is locked.  It waits at a gate for "go".  The
 * gate is close-on-exec at the stub's side: end of file there means that the
 * program is running, or never will.  Which of the two stands in the page.
 *
 * The program gets the signal mask and dispositions, descriptors, directory
 * and limits that dlock was started with, and some more variables.
 */
#ifndef DLOCK_CHILD_H
#define DLOCK_CHILD_H

#include "join_outer.h"
#include "run.h"

/* ---- what the command, or the process that has asked for a hold, is told ---- */

/* So much room they, and the words of a command, need in the page (shared->told). */
size_t child_room(const struct run *);

/*
 * Writes there what is known before the grant, in the front, and so for the keeper as well:
 * to make all of it then would cost every run some fifty microseconds between the grant
 * and the command.
 */
void child_prepare(const struct run *);

/* Adds what the grant has given, in the keeper: one part for each key. */
void child_tell(const struct run *, const struct join_part *, const char *address);

/* The value of a variable; NULL: this one is not told. */
const char *child_value(enum variable);

/* ---- its process ---- */

struct child {
	pid_t pid;
	pid_t group;  /* its own process group, or 0: the front's, with the terminal */
	int gate;     /* -1 once the program runs or never will */
	bool stopped; /* with the whole job, before the program ran */
};

/*
 * Forks the stub, for the run's command; once in a process.  -1 with errno.  What becomes
 * of it is noted in the page.
 */
int child_fork(struct child *, const struct run *);

/*
 * Lets it begin: after `latest` it fails with ETIME.  Where that cannot be said the stub
 * is killed, and the gate says so.
 */
void child_go(struct child *, instant latest);

/* Ends a stub that was never let go, and reaps it. */
void child_dismiss(struct child *);

/*
 * Has an open gate been shut?  Then *exec is EXEC_CALLED: the program runs; or an errno, or
 * EXEC_NOT_CALLED: it never will.
 */
bool child_gate(struct child *, int *exec);

/*
 * Where the program is that `name` means; it stays ours.  NULL, with errno: there is nothing
 * that can be executed.
 */
const char *child_find(const char *name);

/*
 * Why execve(2) finds no such file where there is one: its interpreter is not there.  False:
 * it has another reason.
 */
bool child_lacks_interpreter(const char *path, char *out, size_t size);

#endif
