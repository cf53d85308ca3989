/*
 * identity.h - which locks a store's are, in one canonical text.
 *
 * Two stores with equal identities keep the same locks: a key names the same lock in
 * both.  The text has what was resolved and not what was typed: backend, servers, database,
 * user, mode, and all else that says which lock a key is.  It has no secret.
 */
#ifndef DLOCK_IDENTITY_H
#define DLOCK_IDENTITY_H

#include <stdbool.h>
#include <stddef.h>

enum { IDENTITY_BYTES = 8192 };

struct identity {
	char text[IDENTITY_BYTES];
	size_t used;   /* beyond sizeof text: it did not fit, and equals nothing */
	bool one_lock; /* every key is the same lock */
};

void identity_begin(struct identity *, const char *backend);

/* A part.  value NULL: it is not stated, which differs from an empty one. */
void identity_add(struct identity *, const char *name, const char *value);
void identity_number(struct identity *, const char *name, unsigned long long value);

/* A list's members, whatever their order is; `separator` stands between them. */
void identity_list(struct identity *, const char *name, const char *list, char separator);

/* Has it all that was added? */
bool identity_is_whole(const struct identity *);

#endif
