/*
 * stub.h - the process that becomes the command, from its first line to exec.
 *
 * It is there before the lock is taken, waits at a gate for "go", and executes the command.
 * It shares the keeper's memory until then, as a child of vfork(2) does, but the keeper
 * goes on meanwhile: a copy of that memory would cost a short command a tenth of its time.
 *
 * So the rule is: the stub writes nothing but its own stack, and the page.  It calls nothing
 * of the C library, which would at least write errno; it asks the kernel itself.  The
 * Makefile compiles it without what a compiler adds (stack protector, sanitizers), and
 * tests/unit/stub.c runs it with all other memory read-only.
 */
#ifndef DLOCK_STUB_H
#define DLOCK_STUB_H

#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/*
 * Can it share the keeper's memory?  Else, and where a kernel refuses, it has a copy: so what
 * the grant tells must reach it in the page.
 */
#if defined __x86_64__ || defined __aarch64__
#define STUB_SHARES 1
#endif

/* How far it has come, in the page; else the errno with which it failed. */
enum { EXEC_NOT_CALLED, EXEC_CALLED = -1 };

/* All that it reads.  The keeper changes neither that nor what it points to. */
struct stub {
	pid_t keeper;
	int gate;      /* an instant is "go": to begin later is to fail with ETIME */
	int others[2]; /* descriptors that are not the command's; closed */
	bool leads;    /* a process group of its own */
	/* of the command */
	const sigset_t *mask; /* its blocked signals */
	bool chld_ignored;
	const char *path;
	char *const *argv, *const *envp;
	char *const *script; /* sh, path and argv's words, for a script without #! */
	_Atomic int *exec;   /* in the page: EXEC_* */
};

/* For clone(2); `stub` is a struct stub.  Returns if there is no command. */
int stub_begin(void *stub);

#endif
