/*
 * resp.h - what a Redis server may say to us, before anybody parses it.
 *
 * hiredis builds the replies, but trusts lengths that a server announces (it
 * would allocate 16 GiB for "*2147483647"), so a reply is given to it only
 * when it is complete and this file has found it small and well-formed.
 */
#ifndef DLOCK_REDIS_RESP_H
#define DLOCK_REDIS_RESP_H

#include "backends/backend.h"

#include <sys/types.h>

enum {
	RESP_BYTES = 16384, /* the longest reply */
	RESP_MEMBERS = 16,  /* of one array */
	RESP_DEPTH = 3,     /* arrays within arrays */
};

/* What is let in. */
struct resp_bounds {
	size_t bytes;
	long members;
	int depth;
};

/* As above; and for pages of look.lua. */
extern const struct resp_bounds resp_usual, resp_pages;

/*
 * The length of the first reply in buf[0..n).  0: it is not complete yet.
 * -1: it is no RESP2, or beyond the bounds.
 */
ssize_t resp_length(const char *buf, size_t n, const struct resp_bounds *);

/*
 * What an error reply means while we ask for or hold a lock (or only look): an rc, and in
 * *hint what the user can do.  RC_AGAIN for everything that may pass.
 */
enum rc resp_error(const char *text, const char **hint);
enum rc resp_error_look(const char *text, const char **hint);

/*
 * Does it say that?  In capitals it is a code, such as "WRONGTYPE" (what stands under the key is
 * no lock) or "NOSCRIPT"; else words, of which there is no code.
 */
bool resp_says(const char *text, const char *what);

/* Does it say that the server runs no scripts, or none of ours? */
bool resp_is_no_scripts(const char *text);

#endif
