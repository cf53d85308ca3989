/*
 * kin.h - whether a process, named by another dlock, is one that we descend from.
 */
#ifndef DLOCK_KIN_H
#define DLOCK_KIN_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* What /proc has of a process in a small file, with blanks for NULs; false: nothing. */
bool kin_read(pid_t, const char *name, char *out, size_t size);

/*
 * Its parent, and when it was started, in the kernel's clock ticks.  False, and 0: /proc does
 * not tell.
 */
bool kin_family(pid_t, pid_t *parent, int64_t *born);

/* Is the process with this number, started then, our parent, or its parent, and so on? */
bool kin_is_ancestor(pid_t, int64_t born);

#endif
