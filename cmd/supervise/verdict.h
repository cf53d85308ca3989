/*
 * verdict.h - turns an ending into a sentence and a status; nothing else does.
 *
 * The status is the command's own if it held the lock all the while, else one of exit.h.
 * dlock dies of the signal of which the command died, or which interrupted the waiting.
 */
#ifndef DLOCK_VERDICT_H
#define DLOCK_VERDICT_H

#include "cmd/params.h"
#include "cmd/exit.h"
#include "step.h"

#include <sys/types.h>

struct verdict {
	int status;       /* to exit with */
	int signal;       /* or to die of; 0: exit */
	bool again;       /* nothing is said: the lock is to be asked for anew */
	char line[1800];  /* to say, clean; "" for nothing */
	bool muted;       /* but the user does not want to hear it */
	const char *name; /* for events: "busy", "lost"... */
	/* nanoseconds: up to the grant, or to the end without one; from the grant on, or 0 */
	int64_t waited, held;
	/* for the log: what the front knew; NULL, 0: nothing */
	const char *where;
	uint64_t token;
	pid_t pid;
};

/* The front's knowledge of it all. */
struct heard {
	const char *words; /* the backend's, of the call that decided the ending */
	const char *where; /* the server; "" if that is not known */
	const char
	    *missing; /* why the command could not be executed; NULL: errno says it */
	const char
	    *newer; /* clean: the run that has superseded this one; NULL: none has */
	/* of a run that is skipped: what the run ended with because of which it is */
	int done_status;
	/* the rest only of a lock that may be busy: */
	const char *key;
	const char *state; /* of a busy lock, clean: waiting_state() */
	int64_t waited;    /* how long we tried */
};

/* The exit status of a run with this ending; STATUS_NONE if nothing was run. */
int verdict_status(const struct ending *);

/* The same for who remembers it: has the command come to its own end, or that of --max-run? */
struct outcome verdict_outcome(const struct ending *);

/* Tells what `ending` means to the user. */
struct verdict verdict_of(
    const struct params *, const struct ending *, const struct heard *);

/* The same for the process that has asked for the release of a hold, and succeeds. */
struct verdict verdict_of_release(
    const struct params *, const struct ending *, const char *words, const char *where);

/* The same while runs that have joined hold, or their --min-hold is not over. */
struct verdict verdict_of_kept(
    const struct params *, unsigned joined, instant keep_until);

#endif
