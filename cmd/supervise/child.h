/*
 * child.h - the command: from a waiting stub to an executed program.
 *
 * The stub (stub.h) is forked before anything is locked, so that a fork that fails is known
 * then.  It waits at a gate for "go".  The gate is close-on-exec at the stub's side: end of
 * file there means that the program is running, or never will.  Which of the two stands in
 * the page.
 *
 * The program gets the signal mask and dispositions, descriptors, directory
 * and limits that dlock was started with, and some more variables.
 */
#ifndef DLOCK_CHILD_H
#define DLOCK_CHILD_H

#include "run.h"
#include "told.h"

struct child {
	pid_t pid;
	pid_t group; /* its own process group, or 0: the front's, with the terminal */
	int gate;    /* -1 once the program runs or never will */
	/* what is still to be sent through the gate: a stub may be stopped */
	char *unsent;
	size_t nunsent;
	bool stopped; /* with the whole job, before the program ran */
};

/*
 * Forks the stub, for the run's command; once in a process.  -1 with errno.  What becomes
 * of it is noted in the page.
 */
int child_fork(struct child *, const struct run *);

/*
 * Lets it begin, with these variables: after `latest` it fails with ETIME.  Never blocks: what
 * finds no room is sent by child_send(), when the gate can be written.  Where that fails, the
 * stub is killed, and the gate says so.
 */
void child_go(struct child *, instant latest, const struct told *);
void child_send(struct child *);

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
