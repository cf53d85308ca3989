/*
 * sweep.h - one look at all of /proc, which signals those that are ours on its way.
 *
 * It finds them by their parents, and may miss a process that is just being born or handed on.
 * A process that has once been seen stays known, and is signalled with the rest, also when it is
 * no descendant any more (`nsenter -t PID -p`).
 */
#ifndef DLOCK_SWEEP_H
#define DLOCK_SWEEP_H

#include "aim.h"

struct sweep {
	struct aim aim;
	bool spares_outsider; /* the process itself gets no signal */
	/*
	 * A new one that was born then or later (clock ticks) has an outsider's answer to the
	 * signal to do, and does not get it; 0: all get it.
	 */
	unsigned long long answers;
	pid_t root, command, had, outsider; /* as /proc numbers them; 0: none */
	struct processes but;    /* of dlock, by pid: they and theirs are not meant */
	struct process own[2];   /* room for these */
	pid_t adopter;           /* of orphans outside */
	struct processes *known; /* from earlier looks; NULL: it does not matter */
	struct processes all;    /* that have been read; at[] is the look's */
	bool sorted;             /* by pid */
	bool blind;              /* we do not know who we are: nobody is touched */
	bool cut;                /* not all have been seen */
	bool fresh;              /* some are new */
	bool moves;              /* some have not halted */
	size_t alive, hidden;
};

/* The caller has filled in aim, spares_outsider and answers; `root` as for tree_signal(). */
void sweep(struct sweep *, pid_t root);

/* The look alone: the caller has filled in root and `but`, too, and frees all.at. */
void sweep_all(struct sweep *);

/*
 * Copies those that are ours, and where the look was cut off keeps those that it lacks; nothing
 * changes where there is no memory.
 */
void sweep_keep(struct processes *kept, const struct sweep *);

/* Earlier looks have found these: below us, or of an outsider, unless it is NULL. */
struct processes *sweep_known(struct outsider *);

/* How long the last look has taken. */
int64_t sweep_took(void);

#endif
