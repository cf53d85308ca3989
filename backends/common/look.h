/*
 * look.h - where a backend hands on what it has found.
 */
#ifndef DLOCK_COMMON_LOOK_H
#define DLOCK_COMMON_LOOK_H

#include "backends/backend.h"

/*
 * Hands an entry to look->see, as it says; but no text of it, which others have written, repeats
 * the secret by which we have logged in (NULL, or "": none): who looks at a lock may show that to
 * anybody.
 */
bool look_tell(
    const struct look *, const struct entry *, int64_t now, const char *secret);

#endif
