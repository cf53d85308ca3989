/*
 * object.h - one JSON object on one line, written into a buffer or to a stream.
 *
 * Names are ours; texts may be any bytes: what comes out is UTF-8 without control
 * characters.  A buffer is for events and records: a value that does not fit into it is
 * left out as a whole, and so is one that is not known (NULL), so that the result is valid
 * JSON whatever happens.  A stream is for the output of a subcommand: there it is null.  Errors of
 * writing are the stream's.  JSON is read with jansson.
 */
#ifndef DLOCK_OBJECT_H
#define DLOCK_OBJECT_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

struct object {
	char *out; /* the buffer */
	size_t size, used;
	FILE *to;    /* or the stream; else NULL */
	bool filled; /* the object or array that is open has something in it */
};

void object_begin(struct object *, char *out, size_t size); /* size at least 3 */
void object_begin_stream(struct object *, FILE *);
void object_end(struct object *);

void object_string(struct object *, const char *name, const char *);
void object_strings(
    struct object *, const char *name, const char *const *values, size_t n);
void object_number(struct object *, const char *name, int64_t);
void object_known(struct object *, const char *name, bool known, int64_t); /* or null */
void object_truth(struct object *, const char *name, bool);
/* Nanoseconds, in seconds; negative or NEVER: not known. */
void object_seconds(struct object *, const char *name, int64_t ns);
/* Microseconds since the epoch, as RFC 3339 has it; negative or after 9999: not known. */
void object_time(struct object *, const char *name, int64_t us);

/* Of a stream: within it; `bracket` is { or [, and in an array name is NULL. */
void object_open(struct object *, const char *name, char bracket);
void object_close(struct object *, char bracket);

#endif
