/*
 * tree.h - finds and signals everything that a process has brought into the world.
 *
 * Front and keeper are subreapers: whatever the command leaves behind, also after setsid
 * and a double fork, stays a descendant of theirs.  One look at all of /proc finds them by
 * their parents.  It may miss a process that is just being born or handed on, so that
 * nobody counts as gone before two looks in a row have found nobody.
 *
 * A tree may fork faster than it is killed: who is killed makes room for new ones.  So
 * tree_kill() stops all of them first, and kills when nobody new comes any more.
 *
 * Who has once been seen stays known, and is signalled with the rest, also when it is no
 * descendant any more (`nsenter -t PID -p`).
 *
 * A process is itself by its pid and the time of its start.  /proc may number processes
 * otherwise than we do, as that of an outer pid namespace does, or hide some
 * (hidepid=2): those are found when their parents have died, by the kernel's list of our
 * own children.  That list has the numbers of /proc, so where both come together a hidden
 * process could not be signalled.  There nothing is run, nor where there is no /proc at
 * all: tree_finds_all(), tree_find_self().
 * All pids here are those of our own namespace.
 */
#ifndef DLOCK_TREE_H
#define DLOCK_TREE_H

#include "backends/common/instant.h"

#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/*
 * The name of both processes of a hold in the background, for ps(1); by it and their own
 * sessions they are told from other dlocks.
 */
#define HOLD_NAME "dlock-hold"

/*
 * Looks for this process in /proc.  False, with errno: /proc does not know it, or there is
 * no descriptor to look with (EMFILE, ENFILE).
 */
bool tree_find_self(void);

/* Takes what a sweep needs while there are descriptors; once in each process. */
void tree_reserve(void);

/* In a process that has closed all it had. */
void tree_forget(void);

/* Has the kernel what it takes where /proc numbers processes otherwise than we do? */
bool tree_has_pidfds(void);

/* Have we a terminal, and is our process group in its foreground?  For where there is no /dev/tty. */
enum terminal {
	TERMINAL_NONE,
	TERMINAL_BACKGROUND,
	TERMINAL_FOREGROUND
} tree_terminal(void);

/*
 * Would every descendant be found, sooner or later?  After tree_find_self().  The caller
 * must not be dumpable: it sees whether /proc shows a child that is as well hidden as we can
 * hide one.
 */
bool tree_finds_all(void);

/* What /proc tells of a process. */
struct process {
	pid_t pid, parent, group, session; /* as /proc numbers them */
	char state;
	int threads;
	/* in clock ticks; with the pid, what makes a process itself */
	unsigned long long born;
	/* in a list: is it meant?  CLIMBED: just being settled */
	enum mark { MARK_OPEN, MARK_CLIMBED, MARK_FOREIGN, MARK_OURS } mark;
	bool met; /* it has been counted, and signalled */
};

/* Fills in all that is told of the process with p->pid; false: there is none. */
bool process_look_up(struct process *);

/* When it was born, in clock ticks; 0: not known. */
unsigned long long process_born(pid_t);

/* What stands in one of its small files, with blanks for NULs; false: nothing. */
bool process_read(pid_t, const char *name, char *out, size_t size);

struct processes {
	size_t n, room;
	struct process *at; /* by pid; owned */
};

/* Is that of an end?  Else the child has stopped, goes on, or is being traced by us. */
bool tree_is_end(const siginfo_t *);

/* Has this process children at all?  Cheap. */
bool tree_has_children(void);

/*
 * Does one live that an earlier look has found below this process?  Without a child, it has
 * lost its parents in another pid namespace.
 */
bool tree_has_known(void);

/*
 * Looks which processes are below this one, but not below its child `keeper`: *spared.
 * Nothing changes when `keeper` has died, since what was below it is then below us; or
 * when /proc cannot be read now: then false.
 */
bool tree_spare(struct processes *spared, pid_t keeper);

/*
 * A process that is none of our descendants but is to be stopped as one, and with it
 * its own descendants.  Those that a look has found stay known when their parent dies,
 * unless they have become a hold's; others whose parent has died are found if they are in
 * the process group that the process leads.
 */
struct outside {
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
bool outside_open(struct outside *, pid_t);

/* Has the process itself ended? */
bool outside_has_ended(const struct outside *);

/*
 * Looks which processes are below it, unless it is NULL: to know them when their parents
 * have died.
 */
void outside_look(struct outside *);

struct aim {
	int sig;       /* 0: only to see which are there */
	bool wake;     /* SIGCONT after it, so that what is stopped can obey */
	pid_t command; /* gets it first; not yet reaped, or 0 */
	bool leads;    /* a process group, which gets it too */
	pid_t but;     /* a process group that has it already, or 0 */
	const struct processes *spared; /* they and theirs are left alone; NULL: nobody */
	struct outside *outside;        /* gets it too; NULL: nobody */
	/* tree_kill(): by when who is known is to have got it; 0, or past: it does not matter */
	instant by;
};

/*
 * Signals the command, then every living descendant of `root` (not root; 0: of nobody)
 * that has not got it with the command.  Returns how many there were, as far as can be
 * seen.  What is outside and is to `wake` is stopped first: a parent that ends would leave
 * children that nobody has seen.
 */
size_t tree_signal(pid_t root, const struct aim *);

/*
 * The same with SIGKILL, when all have been stopped: until two looks in a row have found
 * nobody new.  aim->sig and aim->wake are not used.
 *
 * One that does not stop is waited for as long as STOP_PATIENCE, or two looks.  As long as new
 * ones come, up to HUNT_PATIENCE, killing makes room for more.  Beside 20,000 processes of
 * others a look takes 0.15 s.  So there is no further look that would end after aim->by: those
 * that are known, and stopped, get SIGKILL while the lock is still ours.
 */
size_t tree_kill(pid_t root, const struct aim *);

#define STOP_PATIENCE (250 * NS_PER_MS)
#define HUNT_PATIENCE (2 * NS_PER_S)

/* Have the last two looks found nobody of it? */
bool outside_is_empty(const struct outside *);

/* Signals the dlock whose keeper that is: its front, or of a hold, which has none, the keeper. */
void tree_signal_run(pid_t keeper, const struct aim *);

/* Is `pid` a descendant of `root`?  KIN_HIDDEN: /proc does not tell. */
enum kin { KIN_NO, KIN_YES, KIN_HIDDEN } tree_relation(pid_t root, pid_t pid);

/* The state letter of `pid` ('T' stopped, 'Z' dead...); 0 if /proc does not show it. */
char tree_state(pid_t pid);

#endif
