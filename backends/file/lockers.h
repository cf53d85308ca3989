/*
 * lockers.h - who has locked all of a file or a part of it, as far as the kernel tells.
 *
 * /proc/locks names the process that took each lock.  Where that one has ended, and where
 * the lock is one of an open file (which names nobody), the processes are asked which of
 * their descriptors has it; only root may ask those of other users.  The kernel tells
 * nothing of what other machines and other pid namespaces have locked.
 */
#ifndef DLOCK_FILE_LOCKERS_H
#define DLOCK_FILE_LOCKERS_H

#include "backends/common/clock.h"

#include <stdbool.h>
#include <sys/stat.h>
#include <sys/types.h>

/* One lock; what is not known of its process is 0 or "". */
struct locker {
	bool waits, shared;
	pid_t pid;
	char user[24], command[16]; /* printable, and nothing that JSON would escape */
};

enum { LOCKERS_MOST = 64 };

/*
 * Writes up to LOCKERS_MOST, and returns how many there are of these; -1 with errno: the
 * kernel does not show its locks.  Names are looked for until `until` (0: there is no such
 * time), and for a second at most; after that, the one who took a lock stands for its holder.
 */
int lockers_read(
    const struct stat *, bool by_flock, instant until, struct locker found[LOCKERS_MOST]);

#endif
