/*
 * identity.h - says in one canonical text which locks a store has.
 *
 * Two stores with equal identities have the same locks: a key names the same lock in both.  The
 * text has what was resolved, and not what was typed: backend, servers, database, user, mode, and
 * all else that decides which lock a key is.  It has no secret.
 *
 * The path of a socket, or a name in /etc/hosts, can mean something else below another mount
 * namespace or root directory.  Between such processes, the device and inode of these files are
 * compared as well.  Elsewhere they are not: a server that is restarted makes its socket anew,
 * and has the same locks.
 */
#ifndef DLOCK_IDENTITY_H
#define DLOCK_IDENTITY_H

#include "backends/backend.h"

enum { IDENTITY_BYTES = 8192, IDENTITY_FILES = 512 };

struct identity {
	size_t used;   /* sizeof text: it did not fit, and equals nothing */
	bool one_lock; /* every key is the same lock */
	char text[IDENTITY_BYTES];
	/* device and inode of each file that a name led to; "": no name led to one */
	char files[IDENTITY_FILES];
	/*
	 * device and inode of the mount namespace and the root, where that matters; 0: not known
	 */
	uint64_t view[4];
};

/*
 * Asks a store of that backend which locks it has, by backend.identify.  False: that is not
 * known, and the text is "".
 */
bool identity_ask(struct identity *, const struct backend *, struct store *);

/* ---- for backend.identify ---- */

/* Adds a part.  value NULL: not stated, which differs from an empty value. */
void identity_add(struct identity *, const char *name, const char *value);
void identity_number(struct identity *, const char *name, unsigned long long value);

/* Adds the members of a list, in any order; `separator` stands between them. */
void identity_list(struct identity *, const char *name, const char *list, char separator);

/* Adds a file by which a server is reached: a socket, or its directory. */
void identity_file(struct identity *, const char *path);

/*
 * Adds /etc/hosts if one of these hosts is a name.  They may have ports, and commas between them.
 */
void identity_hosts(struct identity *, const char *hosts);

/* ---- for those that compare ---- */

/* Have these two stores the same locks?  Both identities must be known. */
bool identity_is_same(const struct identity *, const struct identity *);

#endif
