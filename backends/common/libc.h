/*
 * libc.h - does what not every C library or kernel can do.
 *
 * dlock is built with glibc, from 2.31 on, and with musl (make static).  The same code runs
 * with each of them, and on kernels from 4.18 on.  Calls that are newer may be missing, or a
 * sandbox refuses them, with any errno: pidfd_send_signal (5.1), pidfd_open (5.3),
 * pidfd_getfd (5.6), faccessat2 (5.8), close_range (5.9).
 */
#ifndef DLOCK_LIBC_H
#define DLOCK_LIBC_H

#include <signal.h>
#include <stdbool.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

/* Defined here, since the headers may be older than the kernel. */
#ifndef SYS_close_range
#define SYS_close_range 436
#endif
#ifndef SYS_pidfd_getfd
#define SYS_pidfd_getfd 438
#endif
#ifndef SO_NETNS_COOKIE
#define SO_NETNS_COOKIE 71
#endif
#ifndef W_EXITCODE
#define W_EXITCODE(status, sig) ((status) << 8 | (sig))
#endif

int libc_pidfd_open(pid_t pid);
int libc_pidfd_send_signal(int pidfd, int sig);
int libc_pidfd_getfd(int pidfd, int fd);

/* Closes these descriptors.  On older kernels /proc tells which ones are open. */
void libc_close_range(unsigned first, unsigned last);

/* Closes all descriptors from `first` on, except these two; `other` -1: except one. */
void libc_close_all_but(int first, int one, int other);

/*
 * Opens the lowest free descriptor on /dev/null, or where there is none on "/", which nobody can
 * read from or write to.  -1 with errno.
 */
int libc_open_nothing(void);

/*
 * Ask the kernel who we are, and whose a file is.  Below fakeroot(1) the C library says that all
 * is root's; but the kernel decides what we may do, and a run outside fakeroot must find the same
 * locks. libc_stat_at() with path "" and AT_EMPTY_PATH looks at an open file.
 */
uid_t libc_user(void);
int libc_stat_at(int dir, const char *path, struct stat *, int flags);
int libc_stat_of(int fd, struct stat *);

/*
 * Do what sigaddset(3), sigfillset(3) and sigprocmask(2) do, for signal 34 too: musl keeps it to
 * itself, and elsewhere that is the first real-time signal.  A command may have it blocked, or get
 * it.
 */
void libc_sigaddset(sigset_t *, int sig);
void libc_sigfillset(sigset_t *);
void libc_sigprocmask(int how, const sigset_t *set, sigset_t *old);

/* Makes all threads share one heap, as in musl. */
void libc_share_heap(void);

/* Names a signal: "TERM".  NULL: there is no such signal, or it has no name. */
const char *libc_signal_name(int sig);

#endif
