/*
 * runs.h - what has been run under a key, for --once and --cooldown.
 *
 * A text beside the lock file, in a file of its own, with one line for each run:
 *
 *	BEGIN END STATUS TOKEN ID RECORD
 *
 * BEGIN and END are microseconds since the epoch, ID is written as keys are in
 * names of files, and "." where there is none; RECORD is the JSON of who it was.
 * The last line is the last run.  It is written with META of the lock file
 * locked, in one write at the end, while we still hold the lock; so a run whose
 * dlock was killed before that has not been.  Like the lock file it is not
 * forced to the disk: after a crash of the machine the last runs may be missing.
 *
 * Each time it has grown by RUNS_STEP, it is written anew without what nobody
 * asks for any more, to a file that then takes its name.
 *
 * Whoever may write the file may write anything: what is no such line is no run.
 */
#ifndef DLOCK_FILE_RUNS_H
#define DLOCK_FILE_RUNS_H

#include "directory.h"

#include "backends/encode.h"

enum {
	RUNS_LINE = 4 * 20 + ENCODED_BYTES + RECORD_BYTES + 8, /* no line of ours is longer */
	RUNS_STEP = 256 * 1024,
	RUNS_MOST = 1 << 30, /* bytes that are read at all */
};

struct run {
	int64_t begin, end, token;
	int status;
	char id[ENCODED_BYTES]; /* encoded; "" for none */
	char record[RECORD_BYTES];
};

/* Reads a line without its newline.  False: this is none; *r is undefined then. */
bool run_parse(struct run *r, const char *line, size_t n);

/* The way back, with newline and NUL.  Returns the length. */
size_t run_format(const struct run *r, char line[RUNS_LINE]);

/* What one job wants to know of all runs. */
struct past {
	bool once;	  /* one with its ID has ended with 0: */
	struct run of_id; /* this one */
	bool recent;	  /* one that ended with 0 began less than its cooldown ago: */
	int64_t ago;	  /* so many microseconds */
};

/* Adds one run to what is known; *p begins as zeros. */
void past_add(struct past *p, const struct run *, const struct job *, int64_t now_us);

/*
 * Has the job been done, as far as the file `name` in the directory says, which
 * is made if it is not there?  RC_OK: no.  RC_DONE: yes, and when, by whom.
 * RC_PROTOCOL: the file is none that dlock writes.
 */
enum rc runs_check(const struct directory *, const char *name, const struct job *, int64_t now_us, struct fault *);

/* Writes one run, whose `end` is now.  With META locked. */
enum rc runs_remember(const struct directory *, const char *name, const struct run *, struct fault *);

#endif
