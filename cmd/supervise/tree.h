/*
 * tree.h - everything that a process has brought into the world.
 *
 * Front and keeper are subreapers: whatever the command leaves behind, also
 * after setsid and a double fork, stays a descendant of theirs.  Found by the
 * parents in /proc; a process that is just being born or handed on while we look
 * may be missed, so who wants everything dead asks again and again.
 *
 * /proc may number processes otherwise than we do (that of an outer pid
 * namespace), hide some (hidepid=2), or not be there, and descriptors may have
 * run out.  The command and its group are therefore signalled by their number,
 * before any look; and when /proc shows nobody but the kernel says that children
 * are left, these are found by asking it for one pid after the other.
 * All pids here are those of our own namespace.
 */
#ifndef DLOCK_TREE_H
#define DLOCK_TREE_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/*
 * Opens what a sweep needs while there are descriptors; once in each process that may
 * have to sweep.
 */
void tree_prepare(void);

/* Processes below us that are not the command's; they and theirs are left alone. */
struct spared {
	size_t n;
	struct process *list; /* owned */
};

/* Has this process children at all?  Cheap. */
bool tree_has_children(void);

/*
 * Looks who is below this process, but not below its child `keeper`; they are
 * spared from now on.  Nothing changes when `keeper` has died, since who was below
 * it is then below us.
 */
void tree_spare(struct spared *, pid_t keeper);

/*
 * A process that is none of our descendants but is to be stopped as one, and with it
 * its own descendants.  Those of whom it is known once stay known when their parent
 * dies; others whose parent has died are found if they are in the process group that the
 * process leads.  The pidfd may be shared; each of dlock's processes has a list of its own.
 */
struct outside {
	pid_t pid;
	int fd; /* of that process */
	struct process *known;
	size_t n;
	pid_t group;             /* that it leads, as /proc numbers it; 0: none */
	unsigned long long born; /* in clock ticks */
};

/*
 * What the processes of a hold in the background call themselves, ours and those of
 * others: whoever adopts or has started them, they are in no such tree.  A name is not
 * enough, since a script may have it: each announces its pid and the time of its start.
 */
#define HOLD_NAME "dlock-hold"

/*
 * Does so, for this process and as long as it lives; once.  False, with errno: there is no
 * descriptor.
 */
bool tree_announce(void);

/*
 * Opens it.  False with errno: ESRCH: there is none, or it has ended; EPERM: it is not
 * ours to stop; EINVAL: it is a thread.
 */
bool outside_open(struct outside *, pid_t);

/* Has the process itself ended? */
bool outside_has_ended(const struct outside *);

/*
 * Signals all of them; 0: only looks who there is.  Returns how many live: 0 says that
 * they are gone, as far as /proc shows.
 */
size_t outside_signal(struct outside *, int sig, bool wake);

struct aim {
	int sig;
	bool wake; /* SIGCONT after it, so that what is stopped can obey */
	/* gets it first; our child or grandchild and not yet reaped, or 0 */
	pid_t command;
	bool leads;                  /* a process group, which gets it too */
	const struct spared *spared; /* NULL: nobody */
	struct outside *outside;     /* gets it too; NULL: nobody */
};

/*
 * Signals the command, then every living descendant of `root` (not root) that
 * has not got it with the command.  Returns how many there were: 0 says that all is
 * quiet.
 */
size_t tree_signal(pid_t root, const struct aim *);

/*
 * Is `pid` a descendant of `root`?  KIN_HIDDEN: /proc does not show enough of its
 * ancestors.
 */
enum kin { KIN_NO, KIN_YES, KIN_HIDDEN } tree_relation(pid_t root, pid_t pid);

/* The state letter of `pid` ('T' stopped, 'Z' dead...); 0 if /proc does not show it. */
char tree_state(pid_t pid);

#endif
