/*
 * process.h - what /proc tells of a process, and the kernel of a child.
 *
 * A process is itself by its pid and the time of its start.  /proc may number processes
 * otherwise than we do, as that of an outer pid namespace does, or hide some
 * (hidepid=2).  All pids here are those of our own namespace, unless a struct process has
 * them: there they are as /proc numbers them.
 */
#ifndef DLOCK_PROCESS_H
#define DLOCK_PROCESS_H

#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/*
 * The name of both processes of a hold in the background, for ps(1); by it and their own
 * sessions they are told from other dlocks.
 */
#define HOLD_NAME "dlock-hold"

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

/* ---- reading /proc ---- */

/* Keeps a descriptor, unless there is one already, for looks when there are none left. */
void process_reserve(void);

/* In a process that has closed all it had. */
void process_forget(void);

/* open(2) for reading, close-on-exec; takes the reserve if there is no other descriptor. */
int process_open_file(const char *path, int flags);

/* The text of a small file, with blanks for NULs; false: nothing. */
bool process_read_file(const char *path, char *text, size_t size);

/* The same of one of a process's files. */
bool process_read(pid_t, const char *name, char *out, size_t size);

/* Fills in all that is told of the process with p->pid; false: there is none. */
bool process_look_up(struct process *);

/* The same of the process whose `stat` that is. */
bool process_look_up_at(const char *path, struct process *);

/* Now, in the clock ticks in which /proc tells when a process was born. */
unsigned long long process_clock(void);

/* When it was born, in clock ticks; 0: not known. */
unsigned long long process_born(pid_t);

/*
 * The number that /proc has for this process, which it remembers with all that is told of it.
 * 0, with errno: /proc does not know it, or there is no descriptor to look with (EMFILE,
 * ENFILE).
 */
pid_t process_find_self(void);

/* The number alone, not remembered; 0: it is not there. */
pid_t process_self(void);

/* Under which number /proc shows the process that is `pid` to us; 0: none. */
pid_t process_number(pid_t pid);

/* ---- what it is ---- */

/*
 * The state letter of `pid` ('T' stopped, 'Z' dead...), as long as a thread of it lives that of such
 * a thread; 0 if /proc does not show it.
 */
char process_state(pid_t pid);

/* The signal that has killed it, of one that was not reaped yet; 0: none, or /proc does not tell. */
int process_died_of(pid_t pid);

/*
 * Has it ended?  One whose first thread has ended looks like a zombie, but others of its
 * threads run on.
 */
bool process_is_dead(const struct process *);

/* Is it still the same process that has this number? */
bool process_is_still(const struct process *);

/* Is `pid` a descendant of `root`?  KIN_HIDDEN: /proc does not tell. */
enum kin { KIN_NO, KIN_YES, KIN_HIDDEN } process_kin(pid_t root, pid_t pid);

/* Have we a terminal, and is our process group in its foreground?  For where there is no /dev/tty. */
enum terminal {
	TERMINAL_NONE,
	TERMINAL_BACKGROUND,
	TERMINAL_FOREGROUND
} process_terminal(void);

/* Does it bear the name that both processes of a hold give themselves?  See HOLD_NAME. */
bool process_is_named_hold(const struct process *);

/*
 * And is its program this one?  A hold hides its memory, and with it the program from all but who
 * may trace any process: for others the name of one that hides it is enough.
 */
bool process_is_hold(const struct process *);

/* Is it the front of a hold?  The keeper's parent is one. */
bool process_is_hold_front(const struct process *);

/* Has the kernel what it takes where /proc numbers processes otherwise than we do? */
bool process_has_pidfds(void);

/* Does this errno say that pidfd_open(2) is not there? */
bool process_lacks_pidfd(int error);

/* ---- our own children ---- */

/*
 * Makes this process the parent of all that loses its own below it (a subreaper, tree.h).  NULL,
 * or why that cannot be.
 */
const char *process_adopt(void);

/* Does what fork(2) does, without the handlers of pthread_atfork(3) where the C library can. */
pid_t process_fork(void);

/* Has this process children at all?  Cheap. */
bool process_has_children(void);

/* Is that of an end?  If not, the child has stopped, goes on, or is being traced by us. */
bool process_is_end(const siginfo_t *);

/* Is it a child of ours, and no zombie? */
bool process_lives(pid_t child);

/* ---- lists ---- */

struct processes {
	size_t n, room;
	struct process *at; /* by pid; owned */
};

/* False: no memory. */
bool process_add(struct processes *, const struct process *);

/* Puts in the order of the pids a list that was filled in another one. */
void process_sort(struct processes *);

/* NULL: there is none, or no list. */
const struct process *process_find(const struct processes *, pid_t);

/* Is it one of them, and the same process? */
bool process_is_among(const struct processes *, const struct process *);

#endif
