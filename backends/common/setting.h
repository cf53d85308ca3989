/*
 * setting.h - reads -O: by the rows of a backend, and by parsers for values that several backends
 * have.
 */
#ifndef DLOCK_SETTING_H
#define DLOCK_SETTING_H

#include "trusted.h"

/* The backend's row of this name.  NULL: there is none, and the fault lists the names. */
const struct setting_row *setting_named(
    const struct backend *, const char *name, struct fault *);

/*
 * Hands each setting of the site to its row's setter.  Returns RC_OK, or the rc and fault of the
 * first bad setting; an unknown name is RC_USAGE.
 */
enum rc setting_read(struct store *, const struct site *, struct fault *);

/* Reads -O connect-timeout: "500ms" or "2s", up to an hour.  RC_OK or RC_USAGE. */
enum rc setting_timeout(const char *value, int64_t *ns, struct fault *);

/*
 * Reads a secret from the file of -O NAME=FILE, so that it need not stand on a command line or in
 * an environment.  The file must be secret (trusted_check), and have one line of less than `size`
 * bytes, which may end as on Windows.  RC_OK, or RC_CONFIG with what is wrong; then `out` has
 * nothing of it.
 */
enum rc setting_secret(
    const char *name, const char *file, char *out, size_t size, struct fault *);

/*
 * Checks the file of -O NAME=FILE, which a library will read: it must be a plain file that we may
 * read, and with `secret` a secret one (trusted_check).  RC_OK, or RC_CONFIG with what is wrong.
 */
enum rc setting_file(const char *name, const char *file, bool secret, struct fault *);

/*
 * ---- names of files that a library reads again with each connection ----
 *
 * Their names may be relative, and the process may leave its directory after open.
 */

/*
 * Called by open: keeps the directory, and makes the names in these variables (NULL-ended)
 * absolute.
 */
void setting_keep_directory(const char *const *variables);

/*
 * Makes a name absolute, from the kept directory; the caller frees it.  NULL: it is absolute, or
 * no memory.
 */
char *setting_absolute(const char *name);

#endif
