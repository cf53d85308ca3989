/*
 * line.h - reads the line on a lock file for people, as place.h does for a decision.
 *
 * The kernel's locks say who is there, and are only asked for.  A decision needs nothing
 * else.  For people the blocks of the file say whether he holds, and who he is.  Nobody is
 * kept from anything meanwhile: it is looked again where a lock was granted during a look.
 *
 * A place in line is told of those before it alone, and asks the kernel no question whose
 * answer it knows: the more wait, the longer each takes.
 */
#ifndef DLOCK_FILE_LINE_H
#define DLOCK_FILE_LINE_H

#include "block.h"

/* Is anybody in line, or holds the lock?  Another dlock's file may be asked so, too. */
bool line_is_used(int fd);

enum { LINE_HOLDERS = 1000 };

/* One who holds. */
struct line_holder {
	int64_t byte;
	off_t at;      /* his block; -1: it is not known */
	int64_t token; /* 0: not known */
	bool foreign;  /* somebody who is no dlock, with more bytes than one */
};

struct line {
	int fd;
	int64_t end; /* tickets below this are told of */
	size_t most; /* holders that are counted */
	bool plain;  /* all are exclusive, as our place knows */
	bool used;   /* there is anybody, or was when the look began */
	bool frozen;
	unsigned limit; /* of those who have one */
	struct block header, freeze;
	struct line_holder *holders; /* in the order of their grants */
	size_t n;
};

/* One who waits; begin with zeros. */
struct line_waiter {
	int64_t byte;
	unsigned position;
	/* in each range: the number of the next one, and where to look then */
	struct span next[RANGES];
};

/*
 * Reads who holds; `fd` may be one for reading only.  For a place in line, which has the
 * same file open: what is before its ticket (0: it has none), and no more than LINE_HOLDERS
 * are counted.  1; 0: the file is none of ours; -1 with errno.  In any case line_free() it.
 */
enum { TICKET_OF_A_LOOK = -1 };
int line_read(struct line *, int fd, int64_t ticket, bool plain, int64_t now_us);
void line_free(struct line *);

/* What is written of a holder; what is not known is empty. */
void line_who(const struct line *, const struct line_holder *, struct block *);

/* The next one who waits.  False: that was the last. */
bool line_wait(const struct line *, struct line_waiter *);

/*
 * Our place behind those who wait; 1: there are none, 0: too many to be counted.  *first
 * is the byte of the first of them where nobody holds, or 0.
 */
unsigned line_position(const struct line *, int64_t *first);

/* What kind of lock asks for this byte, or has it. */
enum lock_kind line_kind(int64_t byte);

#endif
