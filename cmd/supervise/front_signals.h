/*
 * front_signals.h - what the front does about the signals that it gets, and how it is
 * suspended with the command.
 *
 * signals.h decides about each signal; here it is described, and done.
 */
#ifndef DLOCK_FRONT_SIGNALS_H
#define DLOCK_FRONT_SIGNALS_H

#include "front_state.h"

/* A signal, as siginfo_t and struct signalfd_siginfo both tell of it. */
struct received {
	int sig, code;
	pid_t sender;
	bool parent; /* none has come: our parent has ended, and TERM stands for that */
};

/* Before all others. */
void front_signals_begin(struct front *);

/* Begins the witness: the command has run so long that signals may come. */
void front_signals_watch(struct front *);

/* Reaps what has ended below us. */
void front_signals_reap(struct front *);

/* Is it to end what waits, or was granted and given to nobody yet? */
bool front_signals_ends(const struct front *, const struct received *);

/* Takes one that has come. */
void front_signals_take(struct front *, const struct received *);

/* The keeper says that this signal has suspended the command: we follow it. */
void front_signals_suspended(struct front *, int sig);

/* Is suspended with the command, if it still is; returns when we have been continued. */
void front_signals_suspend(struct front *);

/*
 * The lock is granted, and a suspension was put off.  It now means the command: signals that
 * suspend are heard again.
 */
void front_signals_granted(struct front *);

#endif
