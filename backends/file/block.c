/* block.c - finds, reads and writes the blocks of a lock file. */
#include "block.h"

#include "place.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

enum {
	BLOCKS_FIRST = 4, /* those before the first place */
	PLACES_LEAST = 4,
	PLACES_MOST = 65536,
};

int
block_read(int fd, off_t at, struct header *h)
{
	char block[HEADER_BYTES];
	ssize_t n = pread(fd, block, sizeof block, at);

	return n < 0 ? -1 : header_parse(h, block, (size_t)n);
}

int
block_write(int fd, off_t at, const struct header *h)
{
	char block[HEADER_BYTES];

	header_format(h, block);
	errno = ENOSPC; /* what a short write means */
	return pwrite(fd, block, sizeof block, at) == sizeof block ? 0 : -1;
}

/* ---- who is written where ---- */

/* In the row of so many places, which follows those with a quarter of that, and so on. */
static off_t
block_at(int64_t byte, int64_t places)
{
	int64_t before = (places - PLACES_LEAST) / 3;

	return HEADER_BYTES * (BLOCKS_FIRST + 2 * (before + NUMBER_OF(byte) % places));
}

/* Is anybody there who is alive, other than we? */
static bool
is_taken(int fd, off_t at)
{
	struct span found;
	struct header h;

	return block_read(fd, at, &h) == 1 && h.byte != META &&
	    tickets_look(fd, F_RDLCK, (struct span){h.byte, h.byte + 1}, &found) != 0;
}

off_t
block_choose(int fd, int64_t byte)
{
	int64_t places = PLACES_LEAST;

	while (places < PLACES_MOST && is_taken(fd, block_at(byte, places)))
		places *= 4;
	return block_at(byte, places);
}

off_t
block_find(int fd, int64_t byte, struct header *h)
{
	for (int64_t places = PLACES_LEAST; places <= PLACES_MOST; places *= 4) {
		off_t at = block_at(byte, places);

		if (block_read(fd, at, h) == 1 && h->byte == byte)
			return at;
	}
	return 0;
}

/* ---- what is asked of them ---- */

off_t
block_mark(off_t at)
{
	return at + HEADER_BYTES;
}

bool
block_is_marked(int fd, off_t at, int64_t token, struct header *mark)
{
	return block_read(fd, block_mark(at), mark) == 1 && token > 0 &&
	    mark->token == token;
}

bool
block_is_frozen(int fd, const struct header *header, int64_t now_us, struct header *f)
{
	*f = (struct header){.next = 1};
	if (header->freeze == 0)
		return false;
	if (block_read(fd, BLOCK_FREEZE, f) != 1 || f->freeze == 0)
		f->freeze = FREEZE_FOREVER;
	return f->freeze == FREEZE_FOREVER || now_us < f->freeze;
}
