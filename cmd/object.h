/*
 * object.h - one flat JSON object, written into a buffer of fixed size.
 *
 * For events and holder records, which are written on the hot path; what is
 * read is read with jansson (record.c).  A value that no longer fits is left
 * out as a whole, so the result is valid JSON whatever happens.
 */
#ifndef DLOCK_OBJECT_H
#define DLOCK_OBJECT_H

#include <stddef.h>
#include <stdint.h>

struct object {
	char *out;
	size_t size, used;
};

void object_begin(struct object *, char *out, size_t size); /* size at least 3 */
void object_number(struct object *, const char *name, int64_t);
void object_true(struct object *, const char *name);
/* any bytes; NULL: left out */
void object_string(struct object *, const char *name, const char *value);
/* an array */
void object_strings(
    struct object *, const char *name, const char *const *values, size_t n);
void object_end(struct object *);

#endif
