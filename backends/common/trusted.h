/*
 * trusted.h - files that decide where and as whom we lock.
 *
 * Configurations, passwords, keys: nobody but root or the user whom we run as may have written
 * such a file.  A secret one may be read by nobody else either, with one exception: root may
 * let a group read a file of root's (mode 0640), so that one file serves several services.
 */
#ifndef DLOCK_TRUSTED_H
#define DLOCK_TRUSTED_H

#include "backends/backend.h"

#include <sys/stat.h>

/* Opens it for reading, without ever waiting; -1: errno says why not. */
int trusted_open(const char *path, struct stat *);

/*
 * RC_OK, or RC_CONFIG with the first rule that it breaks, as a predicate: "belongs to ...".
 * `shown`: its name in what is to be done.
 */
enum rc trusted_check(
    const struct stat *, const char *shown, bool secret, struct fault *);

/*
 * Reads all of it, up to `size` bytes, however many pieces it comes in.  RC_CONFIG, with a
 * predicate: it cannot be read, is longer, or ended before its end.
 */
enum rc trusted_read(
    int fd, const struct stat *, char *out, size_t size, size_t *n, struct fault *);

#endif
