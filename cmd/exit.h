/*
 * exit.h - every exit status of dlock's own, and which failure ends with which.
 *
 * Those that sysexits.h names keep its numbers; 124, 126 and 127 are what
 * timeout(1) and shells use; 79 is ours.
 */
#ifndef DLOCK_EXIT_H
#define DLOCK_EXIT_H

#include "backends/backend.h"

enum {
	/* 1 answers the question that the subcommand asks */
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

/* The status of an end before a command ran, and its name in the events. */
struct status {
	int number;
	const char *name;
};

/*
 * The status of a call that gave `rc`: the one table.  -E and --skipped-exit-code may name
 * other ones for RC_BUSY and RC_DONE.
 */
struct status exit_of_rc(enum rc);

/* The status of dlock release when its question to the keeper gave `rc`, not RC_OK. */
int exit_of_release(enum rc);

/* The status for `error`, an errno: a program is not there, or cannot be executed. */
int exit_of_exec(int error);

/* The status of a process that this signal has ended, as shells have it. */
int exit_of_signal(int sig);

#endif
