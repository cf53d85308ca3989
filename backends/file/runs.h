/*
 * runs.h - what has been run under a key, for --once and --cooldown.
 *
 * A text beside the lock file, in a file of its own, with one line for each run
 * (past.h).  The last line is the last run.  It is written with META of the lock
 * file locked, in one write at the end, while we still hold the lock; so a run
 * whose dlock was killed before that has not been.  Like the lock file it is not
 * forced to the disk: after a crash of the machine the last runs may be missing.
 *
 * Each time it has grown by RUNS_STEP, it is written anew without what nobody
 * asks for any more, to a file that then takes its name.
 */
#ifndef DLOCK_FILE_RUNS_H
#define DLOCK_FILE_RUNS_H

#include "directory.h"
#include "past.h"

enum {
	RUNS_STEP = 256 * 1024,
	RUNS_MOST = 1 << 30, /* bytes that are read at all */
};

/*
 * Has the job been done, as far as the file `name` in the directory says, which
 * is made if it is not there?  RC_OK: no.  RC_DONE: yes, and when, by whom.
 * RC_PROTOCOL: the file is none that dlock writes.
 */
enum rc runs_check(const struct directory *, const char *name, const struct job *,
    int64_t now_us, struct fault *);

/* Writes one run, whose `end` is now.  With META locked. */
enum rc runs_remember(
    const struct directory *, const char *name, const struct run *, struct fault *);

/*
 * The last run that the file says there was, for which it is only looked at.  False:
 * there is none, or it cannot be read.
 */
bool runs_last(const struct directory *, const char *name, struct run *);

#endif
