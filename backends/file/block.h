/*
 * block.h - where in a lock file it is written who is who.
 *
 * A file consists of blocks (header.h) of HEADER_BYTES:
 *
 *	0	    the header: of the line, and of who holds the lock alone
 *	1	    his mark
 *	2	    the freeze: GRANTED is when it was made, FREEZE its end, RECORD by
 *		    whom; it is one if the header says so
 *	4 + 2 P	    somebody in place P: a holder with others beside him, or who waits.
 *		    RANGE and NUMBER are the byte that he has locked (his slot or his
 *		    ticket), GRANTED says since when; TOKEN is 0 for who waits
 *	5 + 2 P	    his mark
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
 */
#ifndef DLOCK_FILE_BLOCK_H
#define DLOCK_FILE_BLOCK_H

#include "header.h"

#include <sys/types.h>

enum { BLOCK_HEADER = 0, BLOCK_FREEZE = 2 * HEADER_BYTES };

/* 1; 0: the file is somebody else's, *h as for an empty one; -1 with errno. */
int block_read(int fd, off_t at, struct header *h);

/* 0, or -1 with errno. */
int block_write(int fd, off_t at, const struct header *h);

/* Where somebody who has locked this byte may be written down.  With META locked. */
off_t block_choose(int fd, int64_t byte);

/* Where he is; 0: nowhere. */
off_t block_find(int fd, int64_t byte, struct header *h);

/* Where the mark of the holder is who is written down there. */
off_t block_mark(off_t at);

/* Is the holder there, of this token, asked to give the lock up? */
bool block_is_marked(int fd, off_t at, int64_t token, struct header *mark);

/*
 * Is the lock frozen at that time?  Then *f is the block of it; one that cannot be read
 * has no end.
 */
bool block_is_frozen(
    int fd, const struct header *header, int64_t now_us, struct header *f);

#endif
