/*
 * header.h - what a lock file says about its lock, in HEADER_BYTES:
 *
 *	dlock1 NEXT TOKEN GRANTED
 *	RECORD
 *
 * NEXT is the number of the next ticket, TOKEN the last one that was given,
 * GRANTED when that was, in microseconds since the epoch (0: never); RECORD is
 * the JSON of who got it.  It helps, but decides nothing: the kernel's locks
 * do.  Whoever may write the file may write anything, a full disk may cut it
 * short, a crash may leave zeros; so what cannot be read is as if it were not
 * there.
 *
 * Holders that may be several, shared and limited ones, each have a block of the
 * same form behind it, in one of HEADER_SHARED places by their ticket or slot.
 * Its NEXT says which of those that fall on this place it is.
 */
#ifndef DLOCK_FILE_HEADER_H
#define DLOCK_FILE_HEADER_H

#include "backends/backend.h"

enum {
	HEADER_BYTES = 1280,
	HEADER_SHARED = 64,
};

/*
 * Tickets, tokens and times are below this: 18 digits.  Clocks reach half of that in the
 * year 17,800.
 */
#define NUMBER_LIMIT INT64_C(1000000000000000000)

struct header {
	int64_t next; /* at least 1 */
	int64_t token, granted;
	char record[RECORD_BYTES];
};

/*
 * The number at *s, which ends with a blank or at `end`; moves *s behind that.
 * -1 where there is none, or one not below NUMBER_LIMIT.
 */
int64_t header_number(const char **s, const char *end);

/*
 * Reads `n` bytes from the start of a file.  A number that is missing, no
 * number or not below NUMBER_LIMIT counts as 0, NEXT as 1.  False: this is
 * somebody else's file, not an empty or damaged one of ours; *h is as for an
 * empty one.
 */
bool header_parse(struct header *h, const char *text, size_t n);

/* The way back; fills all of the block. */
void header_format(const struct header *h, char block[HEADER_BYTES]);

/* How long ago `granted` was, in nanoseconds; -1 where it says nothing sensible. */
int64_t header_age(const struct header *h, int64_t now_us);

/*
 * The token after the header's: greater than that one and, below the limit, not less
 * than `now_us`.
 */
int64_t header_next_token(const struct header *h, int64_t now_us);

#endif
