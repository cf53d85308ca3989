/*
 * outsider.h - a process that is none of our descendants but is to be stopped as one, and with
 * it its own descendants.
 *
 * Those that a look has found stay known when their parent dies, unless they have become a
 * hold's; others whose parent has died are found if they are in the process group that the
 * process leads.
 */
#ifndef DLOCK_OUTSIDER_H
#define DLOCK_OUTSIDER_H

#include "process.h"

struct outsider {
	pid_t pid;
	int fd;       /* of that process: readable when it has ended, unless by_proc */
	bool by_proc; /* a directory of /proc, where there is no pidfd_open(2) */
	pid_t front;  /* of dlock, which is none of them, nor is what is below it */
	pid_t group;  /* that it leads, as /proc numbers it; 0: none */
	unsigned long long born; /* in clock ticks */
	bool whole;              /* nobody else was in that group when we last looked */
	unsigned quiet;          /* looks in a row that have found nobody */
	struct processes known;
};

/*
 * Opens it.  False with errno: ESRCH: there is none, or it has ended; EPERM: it is not
 * ours to stop; EINVAL: it is a thread; ENOSYS: this kernel cannot find it.
 */
bool outsider_open(struct outsider *, pid_t);

/* Has the process itself ended? */
bool outsider_has_ended(const struct outsider *);

/* Have the last two looks found nobody of it? */
bool outsider_is_empty(const struct outsider *);

/* While it lives: does it lead a process group, and since when? */
void outsider_note_group(struct outsider *, const struct process *root);

/* Was the parent of `p` one of them, which ended before we saw it? */
bool outsider_has_orphan(const struct outsider *, const struct process *p, pid_t adopter);

#endif
