/*
 * block.h - what a lock file says, in blocks of BLOCK_BYTES, and where in it.
 *
 *	0	    the header: of the line, and of who holds the lock alone
 *	1	    his mark
 *	2	    the freeze: GRANTED is when it was made, FREEZE its end, RECORD by
 *		    whom; it is one if the header says so
 *	4 + 2 P	    somebody in place P: a holder with others beside him, or who waits
 *		    (then TOKEN is 0, and GRANTED says since when)
 *	5 + 2 P	    his mark
 *
 * Each block is two lines of text:
 *
 *	dlock1 NEXT TOKEN GRANTED FREEZE RANGE NUMBER OWNER
 *	RECORD
 *
 * RANGE and NUMBER are the byte that he has locked (place.h), OWNER is his owner, RECORD
 * the JSON of who he is, GRANTED when he got the lock, in microseconds since the epoch
 * (0: never).  In the header NEXT is the number of the next ticket, TOKEN the last one
 * that was given, and FREEZE is 1 if the lock may be frozen.
 *
 * A mark asks the holder whose TOKEN it has to give the lock up, RECORD says who
 * asks.  No token is given twice, so that a mark that is left means nobody else.
 *
 * There are 4 places, then 16, and so on up to 65536.  Somebody with number N has one
 * that nobody has who is alive: place N mod 4 of the first ones, or N mod 16 of the
 * next, ...; so the file is about as long as there have been processes at a time.
 *
 * Blocks 0 to 2 lie in one page of memory: each is written all or not at all,
 * whenever the writer is killed.
 *
 * All that helps, but decides nothing: the kernel's locks do.  (Only a freeze is
 * nowhere else.)  Whoever may write the file may write anything, a full disk may
 * cut it short, a crash may leave zeros; so what cannot be read is as if it were
 * not there.
 */
#ifndef DLOCK_FILE_BLOCK_H
#define DLOCK_FILE_BLOCK_H

#include "tickets.h"

#include "backends/backend.h"

#include <sys/types.h>

enum { BLOCK_BYTES = 1280, BLOCK_HEADER = 0, BLOCK_FREEZE = 2 * BLOCK_BYTES };

/* The end of a freeze that has none. */
#define FREEZE_FOREVER (NUMBER_LIMIT - 1)

struct block {
	int64_t next; /* at least 1 */
	int64_t token, granted;
	int64_t freeze;
	int64_t byte;                /* 0: nobody's, or not known */
	char owner[OWNER_CHARS + 1]; /* "": not known */
	char record[RECORD_BYTES];
};

/* ---- as text ---- */

/*
 * The number at *s, which ends with a blank or at `end`; moves *s behind that.
 * -1 where there is none, or one not below NUMBER_LIMIT.
 */
int64_t block_number(const char **s, const char *end);

/*
 * Reads `n` bytes.  A number that is missing, no number or not below NUMBER_LIMIT counts
 * as 0, NEXT as 1.  False: this is somebody else's file, not an empty or damaged one of
 * ours; *b is as for an empty one.
 */
bool block_parse(struct block *b, const char *text, size_t n);

/* The way back; fills all of the text. */
void block_format(const struct block *b, char text[BLOCK_BYTES]);

/* How long ago `granted` was, in nanoseconds; -1 where it says nothing sensible. */
int64_t block_age(const struct block *, int64_t now_us);

/*
 * The token after the header's: greater than that one and, below the limit, not less
 * than `now_us`.
 */
int64_t block_next_token(const struct block *header, int64_t now_us);

/* ---- in the file ---- */

/* 1; 0: the file is somebody else's, *b as for an empty one; -1 with errno. */
int block_read(int fd, off_t at, struct block *b);

/* 0, or -1 with errno. */
int block_write(int fd, off_t at, const struct block *b);

/* Where somebody who has locked this byte may be written down.  With META locked. */
off_t block_choose(int fd, int64_t byte);

/* Where he is; 0: nowhere. */
off_t block_find(int fd, int64_t byte, struct block *b);

/* Where the mark of the holder is who is written down there. */
static inline off_t
block_mark(off_t at)
{
	return at + BLOCK_BYTES;
}

/* Is the holder there, of this token, asked to give the lock up? */
bool block_is_marked(int fd, off_t at, int64_t token, struct block *mark);

/*
 * Is the lock frozen at that time?  Then *freeze is the block of it; one that cannot be
 * read has no end.
 */
bool block_is_frozen(
    int fd, const struct block *header, int64_t now_us, struct block *freeze);

#endif
