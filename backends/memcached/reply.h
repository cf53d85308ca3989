/*
 * reply.h - the lines that memcached answers with, checked before anybody believes them.
 */
#ifndef DLOCK_MEMCACHED_REPLY_H
#define DLOCK_MEMCACHED_REPLY_H

#include "backends/backend.h"

enum reply_code {
	REPLY_HD,     /* done; or it is there, without its value */
	REPLY_VA,     /* a value of `size` bytes follows */
	REPLY_EN,     /* there is no such item */
	REPLY_NF,     /* nor one to be changed */
	REPLY_NS,     /* not stored: there is one already */
	REPLY_EX,     /* its CAS is another */
	REPLY_MN,     /* to mn */
	REPLY_OK,     /* STORED and the like */
	REPLY_STAT,   /* name and value are set */
	REPLY_KEY,    /* a line of metadump: name (encoded) is set */
	REPLY_END,    /* of STAT or key lines */
	REPLY_BUSY,   /* to metadump: somebody else lists */
	REPLY_ERROR,  /* name: ERROR, CLIENT_ERROR, SERVER_ERROR; value: the rest */
	REPLY_STRANGE /* no memcached says that */
};

struct reply {
	enum reply_code code;
	uint64_t cas; /* of flag c; 0: not told, or the server keeps none */
	int64_t ttl;  /* of flag t, seconds; -1: without an end; -2: not told */
	size_t size;  /* of VA */
	/* pieces of the line, each ended by a NUL: */
	const char *name, *value;
};

enum { TTL_NONE = -1, TTL_UNTOLD = -2 };

/* Reads a line without its end; cuts it into pieces. */
void reply_read(struct reply *, char *line);

/*
 * What an error line means, in words (hint may be NULL); never RC_OK.
 */
enum rc reply_error(const char *line, const char **hint);

#endif
