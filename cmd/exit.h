/*
 * exit.h - every exit status of dlock's own.
 *
 * Those that sysexits.h names keep its numbers; 124, 126 and 127 are what
 * timeout(1) and shells use; 79 is ours.
 */
#ifndef DLOCK_EXIT_H
#define DLOCK_EXIT_H

#include "backends/backend.h"

enum {
	STATUS_NOTHING = 1, /* there was nothing to release, break or thaw */
	STATUS_UNFIT = 1,   /* of doctor: something fails that a run does not need */
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
 * Of an acquisition that gave `rc`; for RC_BUSY and RC_DONE unless -E or
 * --skipped-exit-code names another one.
 */
struct status exit_of_rc(enum rc);

/*
 * Of a program that cannot be executed, for `error`, an errno: it is not there, or
 * cannot be executed.
 */
int exit_of_exec(int error);

#endif
