/*
 * line.h - all who hold the lock of a file, and all who wait for it.
 *
 * Who is there say the kernel's locks, which are only asked for; whether he holds,
 * and who he is, say the blocks of the file.  Nobody is kept from anything
 * meanwhile: it is looked again where a lock was granted during a look.
 */
#ifndef DLOCK_FILE_LINE_H
#define DLOCK_FILE_LINE_H

#include "block.h"

/* One who holds. */
struct line_holder {
	int64_t byte;
	off_t at;      /* his block; -1: it is not known */
	int64_t token; /* 0: not known */
	bool foreign;  /* somebody who is no dlock, with more bytes than one */
};

struct line {
	int fd;
	bool used; /* there is anybody, or was when the look began */
	bool frozen;
	struct block header, freeze;
	struct line_holder *holders; /* in the order of their grants */
	size_t n, room;
};

/* One who waits; begin with zeros. */
struct line_waiter {
	int64_t byte;
	unsigned position;
	/* in each range: the number of the next one, and where to look then */
	struct span next[RANGES];
};

/*
 * Reads who holds; `fd` is the caller's, and may be one for reading only.  1; 0: the
 * file is none of ours; -1 with errno.  In any case line_free() it.
 */
int line_read(struct line *, int fd, int64_t now_us);
void line_free(struct line *);

/* What is written of a holder; what is not known is empty. */
void line_tell(const struct line *, const struct line_holder *, struct block *);

/* The next one who waits.  False: that was the last. */
bool line_wait(const struct line *, struct line_waiter *);

/* The limit of those who have one; 0: nobody has. */
unsigned line_limit(const struct line *);

#endif
