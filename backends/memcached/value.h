/*
 * value.h - what stands in an item of dlock's: who has the lock, has frozen it, or took it
 * away.
 *
 *	dlock1 OWNER TOKEN SINCE UNTIL nKEY nRECORD nMARK KEY RECORD MARK
 *
 * on one line, numbers in decimal; KEY only where the item's name does not tell it.  It
 * begins with no word that memcached knows and has no line's end in it: should a server ever
 * read it as a command, that does nothing.
 */
#ifndef DLOCK_MEMCACHED_VALUE_H
#define DLOCK_MEMCACHED_VALUE_H

#include "backends/backend.h"

enum { VALUE_BYTES = 4096 }; /* room for any, with a NUL */

struct value {
	char owner[OWNER_CHARS + 1];
	uint64_t token;            /* of the grant; 0: see token.h; of a freeze: 0 */
	int64_t since, until;      /* microseconds of the server; EPOCH_NONE */
	char key[KEY_BYTES + 1];   /* "": the name tells it */
	char record[RECORD_BYTES]; /* hostile, but without control characters */
	char mark[RECORD_BYTES];   /* who asks for it back; "": nobody; as hostile */
};

/*
 * Returns the length (below VALUE_BYTES); 0: a text has control characters, and cannot be
 * written.
 */
size_t value_write(char out[VALUE_BYTES], const struct value *);

/* False: it is none of dlock's. */
bool value_read(struct value *, const char *text, size_t n);

#endif
