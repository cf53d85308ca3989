/*
 * header.h - what a block of a lock file says, in HEADER_BYTES:
 *
 *	dlock1 NEXT TOKEN GRANTED FREEZE RANGE NUMBER OWNER
 *	RECORD
 *
 * In the first block, the header, NEXT is the number of the next ticket, TOKEN the
 * last one that was given, GRANTED when that was, in microseconds since the epoch
 * (0: never); RANGE and NUMBER say which byte is locked by whoever got it (place.h),
 * OWNER is its owner, and RECORD the JSON of who it is.  FREEZE is 1 if the lock may
 * be frozen: its block says whether it is.  What the other blocks say of whom is
 * written in block.h.
 *
 * All that helps, but decides nothing: the kernel's locks do.  (Only a freeze is
 * nowhere else.)  Whoever may write the file may write anything, a full disk may
 * cut it short, a crash may leave zeros; so what cannot be read is as if it were
 * not there.  Versions of dlock before there were freezes end the line after GRANTED.
 */
#ifndef DLOCK_FILE_HEADER_H
#define DLOCK_FILE_HEADER_H

#include "backends/backend.h"

enum { HEADER_BYTES = 1280 };

/*
 * Tickets, tokens and times are below this: 18 digits.  Clocks reach half of that in the
 * year 17,800.
 */
#define NUMBER_LIMIT INT64_C(1000000000000000000)

/* The end of a freeze that has none. */
#define FREEZE_FOREVER (NUMBER_LIMIT - 1)

struct header {
	int64_t next; /* at least 1 */
	int64_t token, granted;
	int64_t freeze;
	int64_t byte;                /* 0: nobody's, or not known */
	char owner[OWNER_CHARS + 1]; /* "": not known */
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
