/*
 * runs.h - the runs of a key's jobs, for --once, --cooldown, `status`, `ls --jobs` and `forget`.
 *
 * Beside the lock file lies a directory of the key's own, whose name ends with a slash here,
 * with one small file for each run that somebody may still ask for:
 *
 *	last	    the last run, whatever it ended with
 *	good	    of the runs before it that ended with 0, the one that began last
 *	ERA/ID	    the run of that ID before it that ended with 0; or one with --no-retry that
 *		    ended otherwise
 *	shown	    the last run that is no job's (--remember)
 *	new	    a file that is being written; it gets one of the other names
 *
 * Each is one line of text, and what is no such line is no run:
 *
 *	BEGIN END STATUS TOKEN ID RECORD
 *
 * BEGIN and END are microseconds since the epoch; ID is encoded as keys are in names of
 * files, and "." if there is none; RECORD is the JSON of who it was.
 *
 * ONE STEP.  A run is remembered by renaming `new` to `last`.  Before that, the run in
 * `last` is copied to the files in which it is looked for later.  So a dlock that is
 * killed at any line has remembered its run or has not, and no other run is lost.
 * Only a failure that counts (--no-retry) is in the file of its ID before it is in `last`, for
 * there an older dlock would not copy it: one that is killed in between has ended that ID.  To
 * such a dlock a file of an ID says nothing unless its status is 0.
 * META of the lock file is locked meanwhile, and the lock is still ours.  Like the lock
 * file, no file is forced to the disk: a crash of the machine may take the last runs.
 *
 * 400 DAYS.  ERA counts periods of 400 days since the epoch, and is that of the time of
 * the copy.  An ID is looked for in every era that is there, so that a wrong clock
 * hides no run.  A dlock that remembers a run deletes a few files of each era but this
 * one and the last: more than it adds, and few enough to cost nothing, however many
 * IDs there are.  For the same reason nobody lists a whole era but a look at all jobs,
 * which waits for nobody, and who forgets them all.
 */
#ifndef DLOCK_FILE_RUNS_H
#define DLOCK_FILE_RUNS_H

#include "directory.h"

#include "backends/common/encode.h"

/* no line of ours is longer */
enum { RUN_LINE = 4 * 20 + ENCODED_BYTES + RECORD_BYTES + 8 };

struct run {
	int64_t begin, end, token;
	int status;
	char id[ENCODED_BYTES]; /* encoded; "" for none */
	char record[RECORD_BYTES];
};

/* Reads a line without its newline.  False: it is no run; *r is undefined then. */
bool run_parse(struct run *r, const char *line, size_t n);

/* The way back, with newline and NUL.  Returns the length. */
size_t run_format(const struct run *r, char line[RUN_LINE]);

/*
 * RC_DONE and a sentence: this run has done the job.  RC_OK: it has not.  `final`: it stands where
 * what ended otherwise than with 0 counts for a job with no_retry.
 */
enum rc run_refuse(struct host *, const struct run *, const struct job *, bool final,
    int64_t now_us, struct fault *);

/*
 * Has the job been done, as far as the runs in the directory `name` say?  It is made if
 * it is not there.  RC_OK: no.  RC_DONE: yes, with a sentence.  With META locked.
 */
enum rc runs_check(const struct directory *, const char *name, struct host *,
    const struct job *, int64_t now_us, struct fault *);

enum run_use {
	RUN_COUNTS, /* a job's, if it ended with 0 */
	RUN_FINAL,  /* a job's with no_retry, and it has ended */
	RUN_SHOWN,  /* no job's */
};

/* Remembers one run, whose `end` is now.  With META locked. */
enum rc runs_remember(const struct directory *, const char *name, const struct run *,
    enum run_use, struct fault *);

/*
 * Tells the last run (ENTRY_LAST) and the last one that ended with 0 where that is another
 * (ENTRY_GOOD), and the one that is no job's (ENTRY_SHOWN); with `ids` also each run that has
 * done an ID (ENTRY_DONE).  Ends when `see` gives false.  RC_LOST, like RC_OK: there is no more than that.
 */
enum rc runs_look(const struct directory *, const char *name, bool ids,
    bool (*see)(void *ctx, enum entry_kind, const struct run *), void *ctx,
    struct fault *);

/*
 * Deletes the run of that ID (NULL: all of them).  With META locked, so that no run is
 * being remembered.  Killed before the end, it has forgotten some of them.  RC_LOST: there
 * was none.
 */
enum rc runs_forget(
    const struct directory *, const char *name, const char *once, struct fault *);

#endif
