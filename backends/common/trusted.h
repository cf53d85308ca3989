/*
 * trusted.h - reads files that decide where, and as which user, we lock.
 *
 * Such files are configurations, passwords and keys.  Only root, or the user whom we run as, may
 * be able to write them.  Nobody else may be able to read a secret one, with one exception: root
 * may let a group read a file of root's (mode 0640), so that one file serves several services.
 */
#ifndef DLOCK_TRUSTED_H
#define DLOCK_TRUSTED_H

#include "backends/backend.h"

#include <sys/stat.h>

/* Opens a file for reading, and never waits; -1: errno says why not. */
int trusted_open(const char *path, struct stat *);

/*
 * Checks a file against these rules.  RC_CONFIG: the fault has the first rule that it breaks, as
 * a predicate: "belongs to ...".  `shown` is the file's name in the advice.
 */
enum rc trusted_check(
    const struct stat *, const char *shown, bool secret, struct fault *);

/*
 * Reads the whole file, up to `size` bytes.  RC_CONFIG, with a predicate: it cannot be read, is
 * longer, or was cut while we read it.
 */
enum rc trusted_read(
    int fd, const struct stat *, char *out, size_t size, size_t *n, struct fault *);

#endif
