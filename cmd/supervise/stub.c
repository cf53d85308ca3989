/*
 * stub.c - waits for "go" and executes the command.
 *
 *	stub_fork() the process begins, on a stack of its own, in the keeper's memory
 *	stub_run()  parts with what is not the command's, and asks to die with the keeper;
 *	            copies the caller's variables while the keeper asks for the lock;
 *	            waits at the gate for "go"
 *	obey_go()   reads the variables that tell of the grant, looks at the clock, puts the
 *	            signals back, and executes
 *
 * It shares the keeper's memory, as a child of vfork(2) does, but the keeper goes on meanwhile.
 * A copy of that memory (fork) costs a run 26 page faults and 0.12 of flock's time more, and
 * nothing outside this file would be simpler.
 *
 * So the rule is: the stub writes nothing but its own stack, and `exec` in the page.  It calls
 * nothing of the C library that writes, as errno is written; it asks the kernel itself.  The
 * Makefile compiles it without what a compiler adds (stack protector, sanitizers), and
 * tests/unit/stub.c runs it with all other memory read-only.
 */
#include "stub.h"

#include "backends/common/append.h"
#include "cmd/environment.h"
#include "cmd/exit.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* ---- the kernel ---- */

#if defined __x86_64__ || defined __aarch64__
#define SHARES_MEMORY CLONE_VM
#else
#define SHARES_MEMORY 0
#endif

enum { MASK_BYTES = 8 /* the kernel's signal mask, there */ };

/* rt_sigaction(2), there, where no handler is set */
struct disposition {
	void (*handler)(int);
	unsigned long flags;
	void *restorer;
	unsigned long mask;
};

/* call_kernel(): at least 0, or an errno below it. */
#if defined __x86_64__
static long
call_kernel(long number, long a, long b, long c, long d)
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
call_kernel(long number, long a, long b, long c, long d)
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
call_kernel(long number, long a, long b, long c, long d)
{
	long answer = syscall(number, a, b, c, d);

	return answer < 0 ? -errno : answer;
}
#endif

#if SHARES_MEMORY
static instant
now(void)
{
	struct timespec t;

	call_kernel(SYS_clock_gettime, CLOCK_BOOTTIME, (long)&t, 0, 0);
	/* NOLINTNEXTLINE(clang-analyzer-core.*): the kernel has written it */
	return t.tv_sec * NS_PER_S + t.tv_nsec;
}

/* Signals that came while we waited are delivered now, as they would have been. */
static void
restore_signals(const struct origin *o)
{
	const struct disposition ignored = {.handler = SIG_IGN};

	if (o->chld_ignored)
		call_kernel(SYS_rt_sigaction, SIGCHLD, (long)&ignored, 0, MASK_BYTES);
	call_kernel(SYS_rt_sigprocmask, SIG_SETMASK, (long)&o->mask, 0, MASK_BYTES);
}
#else
static instant
now(void)
{
	return instant_now();
}

static void
restore_signals(const struct origin *o)
{
	if (o->chld_ignored)
		signal(SIGCHLD, SIG_IGN);
	sigprocmask(SIG_SETMASK, &o->mask, NULL);
}
#endif

/* ---- the gate ---- */

/* False: the gate has been shut before all of it has come. */
static bool
read_all(int gate, char *at, size_t size)
{
	long n;

	for (; size > 0; at += n, size -= n) {
		n = call_kernel(SYS_read, gate, (long)at, size, 0);
		if (n <= 0)
			return false;
	}
	return true;
}

/* ---- the environment ---- */

/*
 * Variables in which systemd(1) names the process that it starts, so that others take no notice.
 * Where they name dlock, the command is meant.
 */
enum { PIDS = 3 };
static const char *const pid_names[PIDS] = {
    "LISTEN_PID=", "WATCHDOG_PID=", "SYSTEMD_EXEC_PID="};

struct pids {
	char text[PIDS][40];
};

static bool
is_ours(const char *text)
{
	for (enum variable i = 0; i < VARIABLES; i++) {
		size_t n = strlen(environment_names[i]);

		if (strncmp(text, environment_names[i], n) == 0 && text[n] == '=')
			return true;
	}
	return false;
}

static char *
rewrite_pid(char *text, pid_t front, struct pids *pids)
{
	char dlock[24];

	for (size_t i = 0; i < PIDS; i++) {
		char *at = pids->text[i], *end = at + sizeof pids->text[i];

		if (strncmp(text, pid_names[i], strlen(pid_names[i])) != 0)
			continue;
		append_number(dlock, dlock + sizeof dlock, front);
		if (strcmp(text + strlen(pid_names[i]), dlock) != 0)
			break;
		append_number(append_text(at, end, pid_names[i]), end,
		    call_kernel(SYS_getpid, 0, 0, 0, 0));
		return at;
	}
	return text;
}

static size_t
count(char *const *words)
{
	size_t n = 0;

	while (words[n])
		n++;
	return n;
}

/* The caller's variables but for ours; returns their end, which is not written. */
static char **
copy_environment(char **out, const struct stub *s, struct pids *pids)
{
	for (char **v = s->caller; *v; v++)
		if (!is_ours(*v))
			*out++ = rewrite_pid(*v, s->front, pids);
	return out;
}

static void
add_variables(char **out, char *told, size_t n)
{
	for (char *one = told; one < told + n; one += strlen(one) + 1)
		*out++ = one;
	*out = NULL;
}

/* ---- the command ---- */

static int
execute(const char *path, char *const *argv, char *const *envp)
{
	return -call_kernel(SYS_execve, (long)path, (long)argv, (long)envp, 0);
}

/*
 * Is it a text, for the shell?  No: a program of another machine, or one that is cut off;
 * other shells know it by the same signs, ELF's or a NUL in the first line.
 */
static bool
is_text(const char *path)
{
	char first[80] = {0};
	long fd = call_kernel(SYS_openat, AT_FDCWD, (long)path, O_RDONLY | O_CLOEXEC, 0),
	     n = fd < 0 ? 0 : call_kernel(SYS_read, fd, (long)first, sizeof first, 0);

	if (fd >= 0)
		call_kernel(SYS_close, fd, 0, 0, 0);
	if (strncmp(first, "\177ELF", 4) == 0)
		return false;
	for (long i = 0; i < n && first[i] != '\n'; i++)
		if (!first[i])
			return false;
	return true; /* also what we may not read: the shell says so */
}

/* A script without #! gets its shell: sh, the path, and argv's words.  Returns an errno. */
static int
execute_either(const struct stub *s, char *const *envp)
{
	size_t n = count(s->argv);
	char *script[n + 2];
	int error = execute(s->path, s->argv, envp);

	if (error != ENOEXEC || !is_text(s->path))
		return error;
	script[0] = "/bin/sh";
	script[1] = (char *)s->path;
	memcpy(script + 2, s->argv + 1, n * sizeof *script);
	return execute(*script, script, envp);
}

/* Executes, if all of the variables come in time, with them behind those of the environment. */
static void
obey_go(const struct stub *s, const struct go *go, char **envp, char **end)
{
	/* NOLINTNEXTLINE(clang-analyzer-core.*): the kernel has written it */
	char told[go->n + 1];

	if (!read_all(s->gate, told, go->n))
		return;
	add_variables(end, told, go->n);
	/* the keeper may have been frozen while it said "go", and we after it */
	if (now() >= go->latest) {
		atomic_store(s->exec, ETIME);
		return;
	}
	/* from here on what happens to us happens to the command */
	atomic_store(s->exec, EXEC_CALLED);
	restore_signals(s->origin);
	atomic_store(s->exec, execute_either(s, envp));
}

int
stub_run(void *stub)
{
	const struct stub *s = stub;
	char *envp[count(s->caller) + VARIABLES + 1], **end;
	struct pids pids;
	struct go go;

	/* first: what is suspended here would keep the keeper's end of the link open for ever */
	call_kernel(SYS_prctl, PR_SET_PDEATHSIG, SIGKILL, 0, 0);
	for (size_t i = 0; i < sizeof s->others / sizeof *s->others; i++)
		call_kernel(SYS_close, s->others[i], 0, 0, 0);
	if (s->leads)
		call_kernel(SYS_setpgid, 0, 0, 0, 0);
	if (call_kernel(SYS_getppid, 0, 0, 0, 0) != s->keeper)
		return STATUS_NOT_FOUND;
	end = copy_environment(envp, s, &pids);
	if (read_all(s->gate, (char *)&go, sizeof go))
		obey_go(s, &go, envp, end);
	return STATUS_NOT_FOUND;
}

/* ---- in the keeper ---- */

/*
 * The caller's variables stand at the other end of the stack: setenv(3) in the keeper changes
 * the list, not what it has pointed to.  Emulators may know no process that shares memory but
 * a thread: such a stub has a copy.
 */
pid_t
stub_fork(struct stub *s, size_t told_room)
{
	size_t n = count(environ) + 1,
	       size = STUB_STACK + told_room +
	    (2 * n + VARIABLES + count(s->argv)) * sizeof(char *);
	char *stack = mmap(NULL, size, PROT_READ | PROT_WRITE,
	    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	pid_t pid;

	if (stack == MAP_FAILED)
		return -1;
	s->caller = memcpy(stack, environ, n * sizeof *environ);
	stack += size - size % 16;
	pid = clone(stub_run, stack, SHARES_MEMORY | SIGCHLD, s);
	return pid < 0 && SHARES_MEMORY != 0 ? clone(stub_run, stack, SIGCHLD, s) : pid;
}
