/*
 * setting.h - what -O says: settings read by the rows of a backend, and values that several
 * backends understand alike.
 */
#ifndef DLOCK_SETTING_H
#define DLOCK_SETTING_H

#include "trusted.h"

/* The backend's row of this name; NULL, with the names there are in the fault: none. */
const struct setting_row *setting_named(
    const struct backend *, const char *name, struct fault *);

/*
 * Hands each setting of the site to its row's setter.  RC_OK, or what the first
 * bad one has to say, which for an unknown name is RC_USAGE.
 */
enum rc setting_read(struct store *, const struct site *, struct fault *);

/* -O connect-timeout: "500ms" or "2s", up to an hour.  RC_OK, or RC_USAGE in words. */
enum rc setting_timeout(const char *value, int64_t *ns, struct fault *);

/*
 * -O NAME=FILE where FILE holds a secret, so that it need not stand on a
 * command line or in an environment: a secret one (trusted_check), one line of less than
 * `size` bytes; it may end as on Windows.  RC_OK, or RC_CONFIG with what is wrong; then
 * `out` has nothing of it.
 */
enum rc setting_secret(
    const char *name, const char *file, char *out, size_t size, struct fault *);

/*
 * -O NAME=FILE where FILE is read by a library: is it a plain file that we may read, and
 * a secret one (trusted_check) if it must be?  RC_OK, or RC_CONFIG with what is wrong.
 */
enum rc setting_file(const char *name, const char *file, bool secret, struct fault *);

/*
 * ---- names of files that a library reads again with each connection ----
 *
 * They may be relative, and the process may leave its directory after open.
 */

/* For open: keeps the directory, and makes the names in these variables absolute (NULL-ended). */
void setting_keep_directory(const char *const *variables);

/* The name from the kept directory, to be freed; NULL: it can stay as it is, or there is no memory. */
char *setting_absolute(const char *name);

#endif
