/*
 * setting.h - reads -O settings by a backend's rows, and the values that several
 * understand alike.
 */
#ifndef DLOCK_SETTING_H
#define DLOCK_SETTING_H

#include "backends/backend.h"

/*
 * Hands each setting of the site to its row's setter.  RC_OK, or what the first
 * bad one has to say; for an unknown name RC_USAGE with the names there are.
 */
enum rc setting_read(struct store *, const struct site *, struct fault *);

/* -O connect-timeout: "500ms" or "2s", up to an hour.  RC_OK, or RC_USAGE in words. */
enum rc setting_patience(const char *value, int64_t *ns, struct fault *);

/*
 * -O NAME=FILE where FILE holds a secret, so that it need not stand on a
 * command line or in an environment: a secret one (trusted.h), one line of less than
 * `size` bytes.  RC_OK, or RC_CONFIG with what is wrong; then `out` has nothing of it.
 */
enum rc setting_secret(
    const char *name, const char *file, char *out, size_t size, struct fault *);

/*
 * -O NAME=FILE where FILE is read by a library: is it a plain file that we may read, and
 * a secret one (trusted.h) if it must be?  RC_OK, or RC_CONFIG with what is wrong.
 */
enum rc setting_file(const char *name, const char *file, bool secret, struct fault *);

#endif
