/*
 * past.h - a run as a line of text, and what a job asks of the runs there have been.
 *
 *	BEGIN END STATUS TOKEN ID RECORD
 *
 * BEGIN and END are microseconds since the epoch, ID is written as keys are in
 * names of files, and "." where there is none; RECORD is the JSON of who it was.
 * Whoever may write such a text may write anything: what is no such line is no
 * run.  A line that was torn has none of its last parts, or a shorter record.
 */
#ifndef DLOCK_FILE_PAST_H
#define DLOCK_FILE_PAST_H

#include "backends/backend.h"
#include "backends/common/url.h"

/* no line of ours is longer */
enum { RUN_LINE = 4 * 20 + ENCODED_BYTES + RECORD_BYTES + 8 };

struct run {
	int64_t begin, end, token;
	int status;
	char id[ENCODED_BYTES]; /* encoded; "" for none */
	char record[RECORD_BYTES];
};

/* Reads a line without its newline.  False: this is none; *r is undefined then. */
bool run_parse(struct run *r, const char *line, size_t n);

/* The way back, with newline and NUL.  Returns the length. */
size_t run_format(const struct run *r, char line[RUN_LINE]);

/* What one job wants to know of all runs. */
struct past {
	bool once;        /* one with its ID has ended with 0: */
	struct run of_id; /* this one */
	bool recent;      /* one that ended with 0 began less than its cooldown ago: */
	int64_t ago;      /* so many microseconds */
};

/* Adds one run to what is known; *p begins as zeros. */
void past_add(struct past *p, const struct run *, const struct job *, int64_t now_us);

/* Words for a past that has such a run: which, when, and by whom. */
enum rc past_tell(const struct past *, const struct job *, struct fault *);

#endif
