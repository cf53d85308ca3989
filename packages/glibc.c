/*
 * glibc.c - what a program that was linked with a newer glibc lacks in glibc 2.31 (make tarball).
 *
 * Nothing here is seen outside the program: libraries that are loaded later call their own.
 */
#include "backends/common/libc.h"

#include <fcntl.h>
#include <sys/stat.h>

#pragma GCC visibility push(hidden)

/* ---- calls of the kernel that were inline functions, in terms of others ---- */

int
fstatat(int dir, const char *restrict path, struct stat *restrict st, int flags)
{
	return syscall(SYS_newfstatat, dir, path, st, flags);
}

int
stat(const char *restrict path, struct stat *restrict st)
{
	return fstatat(AT_FDCWD, path, st, 0);
}

int
lstat(const char *restrict path, struct stat *restrict st)
{
	return fstatat(AT_FDCWD, path, st, AT_SYMLINK_NOFOLLOW);
}

int
fstat(int fd, struct stat *st)
{
	return fstatat(fd, "", st, AT_EMPTY_PATH);
}

pid_t
_Fork(void)
{
	return fork();
}

/* ---- the start ---- */

typedef void init_function(int argc, char **argv, char **envp);
typedef int start_function(int (*main)(int, char **, char **), int argc, char **argv,
    init_function *init, void (*fini)(void), void (*rtld_fini)(void), void *stack_end);

extern init_function *const __init_array_start[], *const __init_array_end[];
start_function start_main, __libc_start_main __attribute__((visibility("default")));

static void
run_constructors(int argc, char **argv, char **envp)
{
	for (init_function *const *f = __init_array_start; f < __init_array_end; f++)
		(*f)(argc, argv, envp);
}

/*
 * Stands for __libc_start_main() in what the program begins with.  Up to 2.33 glibc leaves
 * the program's constructors to a function that the program brings, and libzookeeper has
 * some; later ones call such a function instead of theirs.
 */
int
start_main(int (*main)(int, char **, char **), int argc, char **argv, init_function *init,
    void (*fini)(void), void (*rtld_fini)(void), void *stack_end)
{
	return __libc_start_main(
	    main, argc, argv, init ? init : run_constructors, fini, rtld_fini, stack_end);
}
