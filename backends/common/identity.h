/*
 * identity.h - which locks those of a store are, in one canonical text.
 *
 * Two stores with equal identities keep the same locks: a key names the same lock in both.
 * The text has what was resolved and not what was typed: backend, servers, database, user,
 * mode, and all else that says which lock a key is.  It has no secret.
 *
 * The name of a socket, or a host's in /etc/hosts, means something else below another mount
 * namespace or root directory.  There, and only there, what the names led to decides: a server
 * that is restarted makes its socket anew, and is the same one.
 */
#ifndef DLOCK_IDENTITY_H
#define DLOCK_IDENTITY_H

#include "backends/backend.h"

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
