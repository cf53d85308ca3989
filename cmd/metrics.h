/*
 * metrics.h - --metrics-file, and the labels of Prometheus's text format.
 *
 * The file is made for node_exporter's textfile collector: a reader always sees a whole one.
 * Runs that end at the same time add to it one after the other, by a lock on the file that
 * is to replace it.  A file that is not dlock's is never overwritten.
 */
#ifndef DLOCK_METRICS_H
#define DLOCK_METRICS_H

#include "params.h"

#include <stdio.h>

/* How a run went: what its keys' counters and times take in. */
struct metrics_run {
	const char *verdict; /* its name in the events */
	int status;
	int64_t waited; /* nanoseconds, up to the grant or the end */
	int64_t held;   /* from the grant on; 0: it was not granted */
};

/*
 * Adds a run that ends now to the run's file, which it names.  A failure is one line on stderr,
 * and no more.
 */
void metrics_add(const struct params *, const struct metrics_run *);

/*
 * A key as the value of a label, escaped as the format wants it, into out[METRICS_LABEL];
 * bytes that are no text are shown as text_clean() shows them.  Returns out.
 */
enum { METRICS_LABEL = 8 * KEY_BYTES };
char *metrics_label(char *out, const char *key);

/* Prints the two lines that come before those of a metric. */
void metrics_head(FILE *, const char *name, const char *help, const char *type);

#endif
