/*
 * metrics.h - --metrics-file, and the labels of Prometheus's text format.
 *
 * The file is made for node_exporter's textfile collector: a reader always sees a whole file.
 * Runs that end at the same time add to it one after the other, by a lock on the file that is to
 * replace it.  A file that dlock has not written is never overwritten.
 */
#ifndef DLOCK_METRICS_H
#define DLOCK_METRICS_H

#include "params.h"

#include <stdio.h>

/* How a run went, for the counters and times of its keys. */
struct metrics_run {
	const char *verdict; /* its name in the events */
	int status;
	int64_t waited; /* nanoseconds, up to the grant or the end */
	int64_t held;   /* from the grant on; 0: it was not granted */
};

/*
 * Adds a run that ends now to the file of --metrics-file.  A failure is one line on stderr, and
 * changes nothing else.
 */
void metrics_add(const struct params *, const struct metrics_run *);

/*
 * Writes a key as the value of a label into out[METRICS_LABEL], escaped as the format wants it.
 * Bytes that are no text appear as text_clean() shows them.  Returns out.
 */
enum { METRICS_LABEL = 8 * KEY_BYTES };
char *metrics_label(char *out, const char *key);

/* Prints the two lines that come before the samples of a metric. */
void metrics_head(FILE *, const char *name, const char *help, const char *type);

#endif
