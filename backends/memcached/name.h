/*
 * name.h - the names of items that make up one lock.
 *
 *	PREFIX KEY           the lock: who has it (value.h)
 *	dlock#f:PREFIX KEY   its freeze
 *	dlock#b:PREFIX KEY   who took it away by force, and from whom
 *
 * Bytes of a key that memcached does not take in a name (blanks, control characters), and
 * % and #, are written %XX.  A key that is too long then is named by its SHA-256, as
 * PREFIX#HEX: it stands in the value.
 */
#ifndef DLOCK_MEMCACHED_NAME_H
#define DLOCK_MEMCACHED_NAME_H

#include "backends/backend.h"

enum {
	NAME_BYTES = 251, /* of memcached, with a NUL */
	PREFIX_MOST = 64,
};

struct names {
	char lock[NAME_BYTES], freeze[NAME_BYTES], broken[NAME_BYTES];
	bool hashed; /* the name does not tell the key */
};

void name_lock(struct names *, const char *prefix, const char *key);

/* The same from the lock's own name, as name_read() has found it. */
void name_of_lock(struct names *, const char *lock);

/* May names begin with this?  1 to PREFIX_MOST printable characters of ASCII, no % or #; or none. */
bool name_is_prefix(const char *prefix);

enum name_of { NAME_OTHER, NAME_LOCK, NAME_FREEZE };

/*
 * The way back, of a name as a server lists it: what it is, the name of its lock (a piece
 * of `name`), and its key (KEY_BYTES + 1); "" if that stands in the value only.
 */
enum name_of name_read(
    char *key, const char **lock, const char *prefix, const char *name);

#endif
