/* libc.c - does what not every C library or kernel can do. */
#include "libc.h"

#include <dirent.h>
#include <fcntl.h>
#include <malloc.h>
#include <stdlib.h>
#include <sys/auxv.h>
#include <sys/resource.h>

/* ---- processes ---- */

int
libc_pidfd_open(pid_t pid)
{
	return syscall(SYS_pidfd_open, pid, 0);
}

int
libc_pidfd_send_signal(int pidfd, int sig)
{
	return syscall(SYS_pidfd_send_signal, pidfd, sig, NULL, 0);
}

int
libc_pidfd_getfd(int pidfd, int fd)
{
	return syscall(SYS_pidfd_getfd, pidfd, fd, 0);
}

void
libc_share_heap(void)
{
#ifdef M_ARENA_MAX
	mallopt(M_ARENA_MAX, 1);
#endif
}

/* ---- descriptors ---- */

/* Closes the descriptors that /proc lists.  False: there is no /proc. */
static bool
close_listed(unsigned first, unsigned last)
{
	_Alignas(struct dirent64) char entries[2048];
	int dir = open("/proc/self/fd", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	ssize_t size;

	if (dir < 0)
		return false;
	/* the position in this directory is a descriptor's number, so closing some skips none */
	while ((size = getdents64(dir, (void *)entries, sizeof entries)) > 0)
		for (ssize_t i = 0; i < size;) {
			const struct dirent64 *entry = (const void *)(entries + i);
			unsigned fd = atoi(entry->d_name);

			if (fd >= first && fd <= last && fd != (unsigned)dir &&
			    *entry->d_name != '.')
				close(fd);
			i += entry->d_reclen;
		}
	close(dir);
	return size == 0;
}

void
libc_close_range(unsigned first, unsigned last)
{
	struct rlimit files = {0};

	if (syscall(SYS_close_range, first, last, 0) == 0 || first > last ||
	    close_listed(first, last))
		return;
	getrlimit(RLIMIT_NOFILE, &files);
	for (unsigned fd = first; fd <= last && fd < files.rlim_cur; fd++)
		close(fd);
}

void
libc_close_all_but(int first, int one, int other)
{
	int low = one < other || other < 0 ? one : other,
	    high = one < other ? other : one;

	if (low > first)
		libc_close_range(first, low - 1);
	if (high > low + 1)
		libc_close_range(low + 1, high - 1);
	libc_close_range(high + 1, ~0U);
}

int
libc_open_nothing(void)
{
	int fd = open("/dev/null", O_RDWR | O_CLOEXEC);

	return fd >= 0 ? fd : open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
}

/* ---- users ---- */

uid_t
libc_user(void)
{
#ifdef SYS_geteuid32
	return syscall(SYS_geteuid32);
#else
	return syscall(SYS_geteuid);
#endif
}

/* fakeroot(1) cannot change what a static program, such as musl's, sees. */
#ifdef STATX_BASIC_STATS
static int
correct_owner(int dir, const char *path, struct stat *st, int flags)
{
	struct statx told;

	if (syscall(SYS_statx, dir, path, flags, STATX_BASIC_STATS, &told) != 0)
		return -1;
	st->st_uid = told.stx_uid;
	st->st_mode = told.stx_mode;
	return 0;
}
#else
static int
correct_owner(int dir, const char *path, struct stat *st, int flags)
{
	(void)dir, (void)path, (void)st, (void)flags;
	return 0;
}
#endif

int
libc_stat_at(int dir, const char *path, struct stat *st, int flags)
{
	if (fstatat(dir, path, st, flags) != 0)
		return -1;
	/* the first is nearly always true, and costs no call */
	if (st->st_uid == getauxval(AT_EUID) || geteuid() == libc_user())
		return 0;
	return correct_owner(dir, path, st, flags);
}

int
libc_stat_of(int fd, struct stat *st)
{
	return libc_stat_at(fd, "", st, AT_EMPTY_PATH);
}

/* ---- signals ---- */

void
libc_sigaddset(sigset_t *set, int sig)
{
	enum { BITS = 8 * sizeof(long) };

	((unsigned long *)set)[(sig - 1) / BITS] |= 1UL << (sig - 1) % BITS;
}

void
libc_sigfillset(sigset_t *set)
{
	sigfillset(set);
	libc_sigaddset(set, 34);
}

void
libc_sigprocmask(int how, const sigset_t *set, sigset_t *old)
{
	syscall(SYS_rt_sigprocmask, how, set, old, _NSIG / 8);
}

/* The names are no pointers, since each pointer would be relocated at every start. */
static const char names[][8] = {[SIGHUP] = "HUP",
    [SIGINT] = "INT",
    [SIGQUIT] = "QUIT",
    [SIGILL] = "ILL",
    [SIGTRAP] = "TRAP",
    [SIGABRT] = "ABRT",
    [SIGBUS] = "BUS",
    [SIGFPE] = "FPE",
    [SIGKILL] = "KILL",
    [SIGUSR1] = "USR1",
    [SIGSEGV] = "SEGV",
    [SIGUSR2] = "USR2",
    [SIGPIPE] = "PIPE",
    [SIGALRM] = "ALRM",
    [SIGTERM] = "TERM",
#ifdef SIGSTKFLT
    [SIGSTKFLT] = "STKFLT",
#endif
    [SIGCHLD] = "CHLD",
    [SIGCONT] = "CONT",
    [SIGSTOP] = "STOP",
    [SIGTSTP] = "TSTP",
    [SIGTTIN] = "TTIN",
    [SIGTTOU] = "TTOU",
    [SIGURG] = "URG",
    [SIGXCPU] = "XCPU",
    [SIGXFSZ] = "XFSZ",
    [SIGVTALRM] = "VTALRM",
    [SIGPROF] = "PROF",
    [SIGWINCH] = "WINCH",
    [SIGPOLL] = "POLL",
    [SIGPWR] = "PWR",
    [SIGSYS] = "SYS"};

const char *
libc_signal_name(int sig)
{
	if (sig <= 0 || sig >= (int)(sizeof names / sizeof *names))
		return NULL;
	return *names[sig] ? names[sig] : NULL;
}
