/*
 * witness.h - a process that tells whether a signal was sent to our whole process group.
 *
 * siginfo does not tell `kill PID` from `kill -GROUP`.  On a terminal the command is in the
 * front's group: it has got the second one already.  So one more process is in that group, as
 * long as the command runs.  It blocks all signals and answers one question of the front: have
 * you got this signal, too, from the same sender?
 *
 * Its price: nothing for a command of less than 20 ms, or without a terminal; else 0.2 to
 * 0.4 ms of processor time, 28 KiB of its own, and a twentieth of a millisecond for each signal.
 *
 * Its name is not dlock, and it has no words, so that `pkill -f dlock` means others.  Only the
 * group has signals for it.  Where it cannot be begun, or does not answer, nothing is known.
 */
#ifndef DLOCK_WITNESS_H
#define DLOCK_WITNESS_H

#include "signals.h"

#include "backends/common/instant.h"

#include <sys/types.h>

struct witness {
	pid_t pid; /* 0: there is none */
	int link;
};

/* In a process that blocks all signals. */
void witness_begin(struct witness *);

void witness_end(struct witness *);

/* A child has been reaped: was it this one? */
void witness_reaped(struct witness *, pid_t child);

/*
 * Is to be asked once about each signal that comes from others.  It has 300 ms to answer, or until
 * `until` if that is earlier, but 50 ms in any case.
 */
enum signal_reach witness_ask(struct witness *, int sig, pid_t sender, instant until);

#endif
