/*
 * setting.h - what -O says: settings read by a backend's rows, values that several backends
 * understand alike, files that must be trusted, and which locks all of it means.
 */
#ifndef DLOCK_SETTING_H
#define DLOCK_SETTING_H

#include "backends/backend.h"

#include <sys/stat.h>

/*
 * ---- trusted files: they decide where and as whom we lock ----
 *
 * Configurations, passwords, keys: nobody but root or the user whom we run as may have written
 * such a file.  A secret one may be read by nobody else either, with one exception: root may
 * let a group read a file of root's (mode 0640), so that one file serves several services.
 */

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

/* ---- settings ---- */

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

/*
 * ---- identity: which locks a store's are, in one canonical text ----
 *
 * Two stores with equal identities keep the same locks: a key names the same lock in both.
 * The text has what was resolved and not what was typed: backend, servers, database, user,
 * mode, and all else that says which lock a key is.  It has no secret.
 *
 * The name of a socket, or a host's in /etc/hosts, means something else below another mount
 * namespace or root directory.  There, and only there, what the names led to decides: a server
 * that is restarted makes its socket anew, and is the same one.
 */

enum { IDENTITY_BYTES = 8192, IDENTITY_FILES = 512 };

struct identity {
	size_t used;   /* sizeof text: it did not fit, and equals nothing */
	bool one_lock; /* every key is the same lock */
	char text[IDENTITY_BYTES];
	/* device and inode of each file that the names led to; "": they lead to none */
	char files[IDENTITY_FILES];
	/* device and inode of the mount namespace and the root, where that matters; 0: not known */
	uint64_t view[4];
};

void identity_begin(struct identity *, const char *backend);

/* A part.  value NULL: it is not stated, which differs from an empty one. */
void identity_add(struct identity *, const char *name, const char *value);
void identity_number(struct identity *, const char *name, unsigned long long value);

/* A list's members, whatever their order is; `separator` stands between them. */
void identity_list(struct identity *, const char *name, const char *list, char separator);

/* A file by which a server is reached: a socket, or the directory of one. */
void identity_file(struct identity *, const char *path);

/* Hosts, perhaps with ports and a comma between them: is one a name, which is looked up? */
void identity_hosts(struct identity *, const char *hosts);

/* Are these the same locks?  Both are whole. */
bool identity_is_same(const struct identity *, const struct identity *);

/* Has it all that was added? */
bool identity_is_whole(const struct identity *);

#endif
