/*
 * tree.h - everything that a process has brought into the world.
 *
 * Front and keeper are subreapers: whatever the command leaves behind, also
 * after setsid and a double fork, stays a descendant of theirs.  Found by the
 * parents in /proc; a process that is just being born or handed on while we look
 * may be missed, so who wants everything dead asks again and again.
 */
#ifndef DLOCK_TREE_H
#define DLOCK_TREE_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

enum { SPARED_MAX = 32 };

/* Children that a process had before it became ours to look after; they and theirs are left alone. */
struct spared {
	size_t n;
	pid_t pid[SPARED_MAX];
};

/* The children of this process, for later sparing; cheap when there are none. */
void tree_spare_children(struct spared *);

/*
 * Sends `sig` to every living descendant of `root` (not to root, and not to
 * the spared, which may be NULL), and SIGCONT after it if `wake`, so that what
 * is stopped can obey.  Returns how many there were: 0 says that all is quiet.
 */
size_t tree_signal(pid_t root, int sig, bool wake, const struct spared *);

/* Is `pid` a descendant of `root`? */
bool tree_contains(pid_t root, pid_t pid);

/* The parent of `pid` and its state letter ('T' stopped, 'Z' dead...); 0 if there is no such process. */
pid_t tree_parent(pid_t pid, char *state);

#endif
