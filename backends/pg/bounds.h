/*
 * bounds.h - bounds what libpq reads from a server.
 *
 * libpq keeps an answer until it is whole, however long, and makes room for a message as soon
 * as its length is told.  So what it reads passes here first (backends/common/inlet.h): a message
 * that says to be longer than BOUNDS_MOST, and an answer to one question that is, make the
 * connection end.  Within TLS the messages cannot be seen, and only the bytes are counted.
 */
#ifndef DLOCK_PG_BOUNDS_H
#define DLOCK_PG_BOUNDS_H

#include "backends/common/inlet.h"

#include <stdbool.h>
#include <stdint.h>

enum { BOUNDS_MOST = 4 << 20 }; /* more than any answer to dlock's questions takes */

struct bounds {
	struct inlet inlet; /* first */
	bool endless;       /* more has come than that: libpq is told of an end */
	bool foreign;       /* some server began with what no PostgreSQL says */
	bool encrypted;     /* messages cannot be told apart */
	bool letter;     /* next comes one byte: the answer to a request for encryption */
	bool first;      /* no message has come yet */
	uint64_t read;   /* bytes since the last question */
	uint64_t left;   /* of a message whose length has come */
	unsigned header; /* so many bytes of the next message's head have come, */
	unsigned char head[5];
};

/*
 * From now on what this thread reads of `fd` counts; -1: of nothing.  `begins`: the connection is
 * being made, and what libpq sends is followed, too, for it decides which language is spoken.
 */
void bounds_watch(struct bounds *, int fd, bool begins);

#endif
