/*
 * tree.h - finds and signals everything that a process has brought into the world.
 *
 * Front and keeper are subreapers: whatever the command leaves behind, also after setsid
 * and a double fork, stays a descendant of theirs.  One look at all of /proc (sweep.h) may miss
 * a process that is just being born or handed on, so that nobody counts as gone before two looks
 * in a row have found nobody.
 *
 * A tree may fork faster than it is killed: who is killed makes room for new ones.  So
 * tree_kill() halts all of them first, and kills when nobody new comes any more.
 *
 * Processes that /proc hides are found when their parents have died, by the kernel's list of our
 * own children.  That list has the numbers of /proc, so where both come together a hidden
 * process could not be signalled.  There nothing is run, nor where there is no /proc at
 * all: tree_objection().
 */
#ifndef DLOCK_TREE_H
#define DLOCK_TREE_H

#include "aim.h"

/*
 * Why a tree could not be stopped here, so that nothing is run; NULL: it could.  Remembers what
 * /proc says of this process, which must not be dumpable.
 */
const char *tree_objection(void);

/*
 * Signals the command, then every living descendant of `root` (not root; 0: of nobody)
 * that has not got it with the command.  Returns how many there were, as far as can be
 * seen.  An outsider that is to `wake` is halted first: a parent that ends would leave
 * children that nobody has seen.
 */
size_t tree_signal(pid_t root, const struct aim *);

/*
 * The same with SIGKILL, when all have been halted: until two looks in a row have found
 * nobody new.  aim->sig and aim->wake are not used.
 *
 * One that does not halt is waited for as long as HALT_PATIENCE, or two looks.  As long as new
 * ones come, up to HUNT_PATIENCE, killing makes room for more.  Beside 20,000 processes of
 * others a look takes 0.15 s.  So there is no further look that would end after aim->by: those
 * that are known, and halted, get SIGKILL while the lock is still ours.
 */
size_t tree_kill(pid_t root, const struct aim *);

#define HALT_PATIENCE (250 * NS_PER_MS)
#define HUNT_PATIENCE (2 * NS_PER_S)

/*
 * Looks which processes are below an outsider, unless it is NULL: to know them when their
 * parents have died.
 */
void tree_look(struct outsider *);

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

/* Signals the dlock whose keeper that is: its front, or of a hold, which has none, the keeper. */
void tree_signal_run(pid_t keeper, const struct aim *);

#endif
