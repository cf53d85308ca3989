/*
 * verdict.h - the one place that turns an ending into a sentence and a status.
 *
 *	the command's own        it ran, and held the lock all the while
 *	75 (-E)                  busy, or --wait expired
 *	79                       the lock was lost while the command ran
 *	124                      --max-run exceeded
 *	126 / 127                command not executable / not found
 *	64 69 71 76 77 78        nothing was run: usage, unreachable, system,
 *	                         protocol, permission, configuration
 *	by signal N              the command died of it, or dlock was interrupted
 *	                         by it while waiting
 */
#ifndef DLOCK_VERDICT_H
#define DLOCK_VERDICT_H

#include "plan.h"

enum {
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

struct verdict {
	int status;	/* to exit with */
	int signal;	/* or to die of; 0: exit */
	char line[1600]; /* to say, clean; "" for nothing */
	const char *name; /* for events: "busy", "lost"... */
};

/*
 * What `ending` means to the user.  `words` are the backend's; `holder`
 * describes who has a busy lock, `waited` how long we tried.
 */
struct verdict verdict_of(const struct plan *, const struct ending *, const char *words, const char *holder,
    int64_t waited);

/* Status and word for a command that child_find() or exec refused with this error. */
int verdict_exec_status(int error);

#endif
