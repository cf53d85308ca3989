/*
 * joined.h - the lock of another program on a file that it names: -O path=FILE.
 */
#ifndef DLOCK_FILE_JOINED_H
#define DLOCK_FILE_JOINED_H

#include "backends/backend.h"

/* What -O says of it; NULL: nothing. */
struct joined_settings {
	const char *path, *lock;
};

static inline bool
joined_is_asked(const struct joined_settings *s)
{
	return s->path || s->lock;
}

/* As backend->open; a directory in the URL does not matter. */
enum rc joined_open(
    struct store **, struct host *, const struct joined_settings *, struct fault *);

#endif
