/*
 * trace.h - writes the line that `dlock run -v` prints of each call to a backend.
 *
 * The caller of a backend writes it, so that backends contain no logging at all.
 */
#ifndef DLOCK_TRACE_H
#define DLOCK_TRACE_H

#include "backends/backend.h"

/*
 * Gives host->tell a line about one call on a store's lock: its name, its result, how long it
 * took, and the lease that is left (grant NULL: the call earns none).  Key NULL: there is only
 * one key, and the line does not name it.
 */
void trace_call(const struct host *, const struct store *, const char *key,
    const char *call, instant began, enum rc, const struct grant *, const struct fault *);

#endif
