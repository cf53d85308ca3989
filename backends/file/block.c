/* block.c - reads and writes the blocks of a lock file, and finds them in it. */
#include "block.h"

#include "backends/common/append.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

enum {
	BLOCKS_FIRST = 4, /* those before the first place */
	PLACES_LEAST = 4,
	PLACES_MOST = 65536,
};

/* ---- as text ---- */

static const char magic[] = "dlock1 ";

int64_t
block_number(const char **s, const char *end)
{
	const char *stop = memchr(*s, ' ', (size_t)(end - *s)), *c;
	int64_t n = 0;

	stop = stop ? stop : end;
	for (c = *s; c < stop && *c >= '0' && *c <= '9' && n < NUMBER_LIMIT / 10; c++)
		n = n * 10 + (*c - '0');
	n = c == stop && c > *s ? n : -1;
	*s = stop < end ? stop + 1 : end;
	return n;
}

/* A number that is missing, or not one, counts as 0. */
static int64_t
parse_digits(const char **s, const char *end)
{
	int64_t n = block_number(s, end);

	return n > 0 ? n : 0;
}

static const char *
line_end(const char *s, const char *end)
{
	const char *found = memchr(s, '\n', (size_t)(end - s));

	return found ? found : end;
}

bool
block_parse(struct block *b, const char *text, size_t n)
{
	size_t sign = strnlen(text, strlen(magic) < n ? strlen(magic) : n);
	const char *s = text + sign, *end = text + n, *first;
	int64_t range, number;

	*b = (struct block){.next = 1};
	if (memcmp(text, magic, sign) != 0)
		return false;
	if (sign < strlen(magic))
		return true; /* the beginning of ours, or nothing */
	first = line_end(s, end);
	b->next = parse_digits(&s, first);
	b->next = b->next > 0 ? b->next : 1;
	b->token = parse_digits(&s, first);
	b->granted = parse_digits(&s, first);
	b->freeze = parse_digits(&s, first);
	range = block_number(&s, first);
	number = block_number(&s, first);
	if (range >= 0 && range < RANGES && number >= 0)
		b->byte = BYTE(range, number);
	if (first - s == OWNER_CHARS ||
	    (first - s > OWNER_CHARS && s[OWNER_CHARS] == ' '))
		memcpy(b->owner, s, OWNER_CHARS);
	for (size_t i = 0; i < OWNER_CHARS; i++)
		if (!b->owner[i] || !strchr("0123456789abcdef", b->owner[i]))
			b->owner[0] = '\0';
	s = first < end ? first + 1 : end;
	n = line_end(s, end) - s;
	n = n < sizeof b->record ? n : sizeof b->record - 1;
	memcpy(b->record, s, n);
	b->record[n] = '\0';
	return true;
}

void
block_format(const struct block *b, char text[BLOCK_BYTES])
{
	const int64_t numbers[] = {b->next, b->token, b->granted, b->freeze,
	    RANGE_OF(b->byte), NUMBER_OF(b->byte)};
	const char *end = text + BLOCK_BYTES;
	char *at = append_text(text, end, magic);

	for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
		at = append_text(append_number(at, end, numbers[i]), end, " ");
	at = append_text(at, end, *b->owner ? b->owner : "-");
	at = append_text(append_text(at, end, "\n"), end, b->record);
	memset(at, '\n', (size_t)(end - at));
}

int64_t
block_age(const struct block *b, int64_t now_us)
{
	int64_t us = now_us - b->granted;

	return b->granted > 0 && us >= 0 && us <= INT64_MAX / 1000 ? us * 1000 : -1;
}

int64_t
block_next_token(const struct block *b, int64_t now_us)
{
	int64_t next = b->token + 1;

	return next > now_us ? next : now_us;
}

/* ---- in the file ---- */

int
block_read(int fd, off_t at, struct block *b)
{
	char text[BLOCK_BYTES];
	ssize_t n = pread(fd, text, sizeof text, at);

	return n < 0 ? -1 : block_parse(b, text, (size_t)n);
}

int
block_write(int fd, off_t at, const struct block *b)
{
	char text[BLOCK_BYTES];

	block_format(b, text);
	errno = ENOSPC; /* what a short write means */
	return pwrite(fd, text, sizeof text, at) == sizeof text ? 0 : -1;
}

/* ---- who is written where ---- */

/* In the row of so many places, which follows those with a quarter of that, and so on. */
static off_t
block_at(int64_t byte, int64_t places)
{
	int64_t before = (places - PLACES_LEAST) / 3;

	return BLOCK_BYTES * (BLOCKS_FIRST + 2 * (before + NUMBER_OF(byte) % places));
}

/* Is anybody there who is alive, other than we? */
static bool
is_taken(int fd, off_t at)
{
	struct span found;
	struct block b;

	return block_read(fd, at, &b) == 1 && b.byte != META &&
	    tickets_look(fd, F_RDLCK, (struct span){b.byte, b.byte + 1}, &found) != 0;
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
block_find(int fd, int64_t byte, struct block *b)
{
	for (int64_t places = PLACES_LEAST; places <= PLACES_MOST; places *= 4) {
		off_t at = block_at(byte, places);

		if (block_read(fd, at, b) == 1 && b->byte == byte)
			return at;
	}
	return 0;
}

/* ---- what is asked of them ---- */

bool
block_is_marked(int fd, off_t at, int64_t token, struct block *mark)
{
	return block_read(fd, block_mark(at), mark) == 1 && token > 0 &&
	    mark->token == token;
}

bool
block_is_frozen(int fd, const struct block *header, int64_t now_us, struct block *f)
{
	*f = (struct block){.next = 1};
	if (header->freeze == 0)
		return false;
	if (block_read(fd, BLOCK_FREEZE, f) != 1 || f->freeze == 0)
		f->freeze = FREEZE_FOREVER;
	return f->freeze == FREEZE_FOREVER || now_us < f->freeze;
}
