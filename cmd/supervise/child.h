/*
 * child.h - the command: from a waiting stub to an executed program.
 *
 * The stub (stub.h) is forked before the keeper has a library, a thread or a socket to
 * a server, so nothing of that kind can leak into the command, and a fork that
 * fails is known before anything is locked.  It waits at a gate for "go".  The
 * gate is close-on-exec at the stub's side: end of file there means that the
 * program is running, or never will.  Which of the two stands in memory that
 * both share, where it can be said when nothing else works any more.
 *
 * The program gets the signal mask and dispositions, descriptors, directory
 * and limits that dlock was started with; some variables are added.  It is
 * killed by the kernel when the keeper dies.
 */
#ifndef DLOCK_CHILD_H
#define DLOCK_CHILD_H

#include "run.h"

/*
 * With several keys: DLOCK_TOKENS, a JSON object key -> token, into out, for which
 * child_tokens_room() bytes are enough.
 */
size_t child_tokens_room(const struct plan *);
void child_write_tokens(const struct plan *, const struct go *, char *out, size_t size);

struct child {
	pid_t pid;
	pid_t group; /* its own process group, or 0: the front's, with the terminal */
	int gate;    /* -1 once the program runs or never will */
	const struct run *run;
};

/* So much room the variables of the run's command need, in the page (shared->told). */
size_t child_room(const struct run *);

/*
 * Forks the stub, for the run's command; once in a process.  -1 with errno.  What becomes
 * of it is noted in the page.
 */
int child_fork(struct child *, const struct run *);

/*
 * Lets it begin.  Where that cannot be said the gate is shut: the stub ends, and the
 * gate says so.
 */
void child_go(struct child *, const struct go *);

/* Ends a stub that was never let go, and reaps it. */
void child_dismiss(struct child *);

/*
 * Has an open gate been shut?  Then *exec is EXEC_CALLED: the program runs; or an errno, or
 * EXEC_NOT_CALLED: it never will.
 */
bool child_gate(struct child *, int *exec);

/*
 * Where the program is that `name` means: into path[size].  False, with errno:
 * there is nothing, or something that cannot be executed (exit_of_exec()).
 */
bool child_find(const char *name, char *path, size_t size);

#endif
