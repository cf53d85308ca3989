/*
 * stub.h - the process that becomes the command, from its first line to exec.
 *
 * The keeper begins it before it has a library, a thread or a socket to a server, so nothing of
 * that kind can leak into the command.  The stub waits at a gate for "go".  With it come the
 * variables that tell of the grant; from then on it is the command, or never will be.  It
 * dies with the keeper.
 */
#ifndef DLOCK_STUB_H
#define DLOCK_STUB_H

#include "backends/common/instant.h"
#include "cmd/params.h"

#include <limits.h>
#include <stdatomic.h>
#include <stddef.h>
#include <sys/types.h>

/* How far it has come, in the page; else the errno with which it failed. */
enum { EXEC_NOT_CALLED, EXEC_CALLED = -1 };

/* The message through the gate: "go", and behind it n bytes: NAME=VALUE, each with its NUL. */
struct go {
	instant
	    latest; /* to begin later is to fail with ETIME; looked at after the last byte */
	size_t n;
};

/* So many bytes pass the gate at once, with "go". */
#define GO_AT_ONCE (PIPE_BUF - sizeof(struct go))

/* Its functions need so much on their stack, but for arrays that grow with the words. */
enum { STUB_STACK = 16384 };

struct stub {
	pid_t front, keeper;
	int gate;
	int others[2];               /* descriptors that are not the command's; closed */
	bool leads;                  /* a process group of its own */
	const struct origin *origin; /* what the command's signals are */
	const char *path;            /* has a slash */
	char *const *argv;
	char **
	    caller; /* set by stub_fork(): the caller's variables, which the keeper's libraries change in its own list */
	_Atomic int *exec; /* in the page: EXEC_* */
};

/*
 * Begins one; once in a process.  *stub and what it points to are not changed until the
 * command runs.  told_room: the most bytes that can come with "go".  -1 with errno.
 */
pid_t stub_fork(struct stub *, size_t told_room);

/* Does all of it, of a struct stub.  Returns the status of its process if there is no command. */
int stub_run(void *stub);

#endif
