/*
 * jsonline.h - JSON of any size and depth, written to a stream.
 *
 * For what people ask for.  What is written on the hot path, into a buffer, is
 * object.c's; what is read is read with jansson.  Names are ours; texts may be any
 * bytes: what comes out is UTF-8 without control characters.  Errors of writing are
 * the stream's.
 */
#ifndef DLOCK_JSONLINE_H
#define DLOCK_JSONLINE_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

struct jsonline {
	FILE *to;
	bool filled; /* the object or array that is open has something in it */
};

/* An object on a line of its own. */
void jsonline_begin(struct jsonline *, FILE *);
void jsonline_end(struct jsonline *);

/* Within it; `bracket` is { or [, and in an array name is NULL. */
void jsonline_open(struct jsonline *, const char *name, char bracket);
void jsonline_close(struct jsonline *, char bracket);

void jsonline_string(struct jsonline *, const char *name, const char *); /* NULL: null */
void jsonline_number(struct jsonline *, const char *name, uint64_t);
void jsonline_truth(struct jsonline *, const char *name, bool);
void jsonline_null(struct jsonline *, const char *name);
/* Nanoseconds, in seconds; negative or NEVER: null. */
void jsonline_seconds(struct jsonline *, const char *name, int64_t ns);
/* Microseconds since the epoch, as RFC 3339 has it; negative or after 9999: null. */
void jsonline_time(struct jsonline *, const char *name, int64_t us);

#endif
