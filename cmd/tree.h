/*
 * tree.h - everything that a process has brought into the world.
 *
 * Front and keeper are subreapers: whatever the command leaves behind, also
 * after setsid and a double fork, stays a descendant of theirs.  Found by the
 * parents in /proc; one process forking while we look may be missed, so who
 * wants everything dead asks again until waitpid says that no child is left.
 */
#ifndef DLOCK_TREE_H
#define DLOCK_TREE_H

#include <stdbool.h>
#include <sys/types.h>

/*
 * Sends `sig` to every descendant of `root` (not to root), and SIGCONT after
 * it if `wake`, so that what is stopped can obey.  Returns how many refused
 * (EPERM: the command has changed its user), 0 when all is well.
 */
int tree_signal(pid_t root, int sig, bool wake);

/* Is `pid` a descendant of `root`? */
bool tree_contains(pid_t root, pid_t pid);

/* The parent of `pid` and its state letter ('T' stopped, 'Z' dead...); 0 if there is no such process. */
pid_t tree_parent(pid_t pid, char *state);

#endif
