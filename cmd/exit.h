/*
 * exit.h - every exit status of dlock's own, and which failure ends with which.
 *
 * 64 to 78 have the meaning and the number that sysexits.h gives them.  124, 126 and 127 are
 * those of timeout(1) and of shells.  79 is ours.
 */
#ifndef DLOCK_EXIT_H
#define DLOCK_EXIT_H

#include "backends/backend.h"

enum {
	/* 1 is a subcommand's answer to its question */
	STATUS_NOTHING = 1, /* release, break, thaw, forget: there was nothing to do */
	STATUS_FREE = 1,    /* status: the lock is free */
	STATUS_LATE = 1,    /* status --done-within: no run is as young as that */
	STATUS_FOUND = 1,   /* ls --held-over: some lock has been held for longer */
	STATUS_UNFIT = 1,   /* doctor: something fails that a run does not need */
	STATUS_USAGE = 64,
	STATUS_UNAVAILABLE = 69,
	STATUS_SYSTEM = 71,
	STATUS_BUSY = 75,
	STATUS_PROTOCOL = 76,
	STATUS_DENIED = 77,
	STATUS_CONFIG = 78,
	STATUS_LOST = 79,
	STATUS_MAX_RUN = 124,
	STATUS_NOT_EXECUTABLE = 126,
	STATUS_NOT_FOUND = 127,
};

/* The status of a run that ends before its command, and its name in the events. */
struct status {
	int number;
	const char *name;
};

/*
 * Looks up the status for `rc`.  This is the only such table; -E and --skipped-exit-code may
 * replace the status for RC_BUSY and RC_DONE.
 */
struct status exit_of_rc(enum rc);

/* The status of dlock release, if its question to the keeper has failed with `rc`. */
int exit_of_release(enum rc);

/*
 * The status for a program that is not there, or cannot be executed, as the errno `error` says.
 */
int exit_of_exec(int error);

/* The status of a process that this signal has ended, as shells have it. */
int exit_of_signal(int sig);

#endif
