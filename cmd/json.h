/*
 * json.h - one JSON object on one line, written into a buffer or to a stream.
 *
 * Names and texts may be any bytes: some names are keys.  The result is UTF-8 without control
 * characters.
 *
 * A buffer is for events and records.  A value that does not fit is left out as a whole, and so
 * is a value that is not known (NULL), so that the result is valid JSON whatever happens.  A
 * stream is for the output of a subcommand: there a value that is not known is null, and errors
 * of writing are the stream's.  JSON is read with jansson.
 */
#ifndef DLOCK_JSON_H
#define DLOCK_JSON_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

struct json {
	char *out; /* the buffer */
	size_t size, used;
	FILE *to;    /* or the stream; else NULL */
	bool filled; /* the object or array that is open has something in it */
};

void json_begin(struct json *, char *out, size_t size); /* size at least 3 */
void json_begin_stream(struct json *, FILE *);
void json_end(struct json *);

void json_put_string(struct json *, const char *name, const char *);
/* Of a buffer: what does not fit of it is cut off, with "...". */
void json_put_cut(struct json *, const char *name, const char *);
void json_put_strings(
    struct json *, const char *name, const char *const *values, size_t n);
void json_put_number(struct json *, const char *name, int64_t);
void json_put_known(struct json *, const char *name, bool known, int64_t); /* or null */
void json_put_truth(struct json *, const char *name, bool);
/* Puts nanoseconds as seconds; negative or NEVER: not known. */
void json_put_seconds(struct json *, const char *name, int64_t ns);
/* Puts microseconds since the epoch as RFC 3339 has it; negative or after 9999: not known. */
void json_put_time(struct json *, const char *name, int64_t us);

/* Opens an object or array within a stream: `bracket` is { or [.  In an array name is NULL. */
void json_open(struct json *, const char *name, char bracket);
void json_close(struct json *, char bracket);

#endif
