/* stub.c - waits for "go" and executes the command, without a line of the C library's. */
#include "stub.h"

#include "backends/common/clock.h"
#include "cmd/exit.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { MASK_BYTES = 8 /* the kernel's signal mask, there */ };

/* rt_sigaction(2), there, where no handler is set */
struct disposition {
	void (*handler)(int);
	unsigned long flags;
	void *restorer;
	unsigned long mask;
};

/* ---- the kernel, without the C library where the memory is the keeper's ---- */

/* ask_kernel(): at least 0, or an errno below it. */
#if defined __x86_64__
static long
ask_kernel(long number, long a, long b, long c, long d)
{
	register long fourth __asm__("r10") = d;
	long answer;

	__asm__ volatile("syscall"
			 : "=a"(answer)
			 : "0"(number), "D"(a), "S"(b), "d"(c), "r"(fourth)
			 : "rcx", "r11", "memory");
	return answer;
}
#elif defined __aarch64__
static long
ask_kernel(long number, long a, long b, long c, long d)
{
	register long which __asm__("x8") = number, x0 __asm__("x0") = a,
			    x1 __asm__("x1") = b, x2 __asm__("x2") = c,
			    x3 __asm__("x3") = d;

	__asm__ volatile("svc 0"
			 : "+r"(x0)
			 : "r"(which), "r"(x1), "r"(x2), "r"(x3)
			 : "memory");
	return x0;
}
#else
static long
ask_kernel(long number, long a, long b, long c, long d)
{
	long answer = syscall(number, a, b, c, d);

	return answer < 0 ? -errno : answer;
}
#endif

/*
 * Signals that came while we waited are delivered when the mask goes back, as they would
 * have been.
 */
#ifdef STUB_SHARES
static instant
now(void)
{
	struct timespec t;

	ask_kernel(SYS_clock_gettime, CLOCK_BOOTTIME, (long)&t, 0, 0);
	return t.tv_sec * NS_PER_S + t.tv_nsec;
}

static void
restore(const struct stub *s)
{
	const struct disposition ignored = {.handler = SIG_IGN};

	if (s->chld_ignored)
		ask_kernel(SYS_rt_sigaction, SIGCHLD, (long)&ignored, 0, MASK_BYTES);
	ask_kernel(SYS_rt_sigprocmask, SIG_SETMASK, (long)s->mask, 0, MASK_BYTES);
}
#else
static instant
now(void)
{
	return instant_now();
}

static void
restore(const struct stub *s)
{
	if (s->chld_ignored)
		signal(SIGCHLD, SIG_IGN);
	sigprocmask(SIG_SETMASK, s->mask, NULL);
}
#endif

/* ---- from the gate to the command ---- */

static long
execute(const char *path, char *const *argv, char *const *envp)
{
	return -ask_kernel(SYS_execve, (long)path, (long)argv, (long)envp, 0);
}

/*
 * Is it a text, for the shell?  No: a program of another machine, or one that is cut off;
 * other shells know it by the same signs, ELF's or a NUL in the first line.
 */
static bool
is_text(const char *path)
{
	char first[80] = {0};
	long fd = ask_kernel(SYS_openat, AT_FDCWD, (long)path, O_RDONLY | O_CLOEXEC, 0),
	     n = fd < 0 ? 0 : ask_kernel(SYS_read, fd, (long)first, sizeof first, 0);

	if (fd >= 0)
		ask_kernel(SYS_close, fd, 0, 0, 0);
	if (first[0] == '\177' && first[1] == 'E' && first[2] == 'L' && first[3] == 'F')
		return false;
	for (long i = 0; i < n && first[i] != '\n'; i++)
		if (!first[i])
			return false;
	return true; /* also what we may not read: the shell says so */
}

int
stub_begin(void *stub)
{
	const struct stub *s = stub;
	instant latest;
	long error;

	for (size_t i = 0; i < sizeof s->others / sizeof *s->others; i++)
		ask_kernel(SYS_close, s->others[i], 0, 0, 0);
	if (s->leads)
		ask_kernel(SYS_setpgid, 0, 0, 0, 0);
	ask_kernel(SYS_prctl, PR_SET_PDEATHSIG, SIGKILL, 0, 0);
	if (ask_kernel(SYS_getppid, 0, 0, 0, 0) != s->keeper ||
	    ask_kernel(SYS_read, s->gate, (long)&latest, sizeof latest, 0) !=
		sizeof latest)
		return STATUS_NOT_FOUND;
	/* the keeper may have been frozen while it said "go" */
	if (now() >= latest) {
		atomic_store(s->exec, ETIME);
		return STATUS_NOT_FOUND;
	}
	/* from here on what happens to us happens to the command */
	atomic_store(s->exec, EXEC_CALLED);
	restore(s);
	/* path has a slash: no search, but a script without #! gets its shell */
	error = execute(s->path, s->argv, s->envp);
	if (error == ENOEXEC && is_text(s->path))
		error = execute(*s->script, s->script, s->envp);
	atomic_store(s->exec, (int)error);
	return STATUS_NOT_FOUND;
}
