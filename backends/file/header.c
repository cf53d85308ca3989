/* header.c - reads and writes the blocks of a lock file. */
#include "header.h"

#include "place.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static const char magic[] = "dlock1 ";

int64_t
header_number(const char **s, const char *end)
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
take_digits(const char **s, const char *end)
{
	int64_t n = header_number(s, end);

	return n > 0 ? n : 0;
}

static const char *
line_end(const char *s, const char *end)
{
	const char *found = memchr(s, '\n', (size_t)(end - s));

	return found ? found : end;
}

/* RANGE and NUMBER, as the byte that they mean; 0 where there is none. */
static int64_t
take_byte(const char **s, const char *end)
{
	int64_t range = header_number(s, end), number = header_number(s, end);

	return range >= 0 && range < RANGES && number >= 0 ? BYTE(range, number) : 0;
}

static void
take_owner(char out[OWNER_CHARS + 1], const char *s, const char *end)
{
	bool whole = end - s >= OWNER_CHARS &&
	    (end - s == OWNER_CHARS || s[OWNER_CHARS] == ' ');

	if (whole)
		memcpy(out, s, OWNER_CHARS);
	out[OWNER_CHARS] = '\0';
	if (strspn(out, "0123456789abcdef") != OWNER_CHARS)
		out[0] = '\0';
}

bool
header_parse(struct header *h, const char *text, size_t n)
{
	size_t sign = strnlen(text, strlen(magic) < n ? strlen(magic) : n);
	const char *s = text + sign, *end = text + n, *first = line_end(text, end);

	*h = (struct header){.next = 1};
	if (memcmp(text, magic, sign) != 0)
		return false;
	if (sign < strlen(magic))
		return true; /* the beginning of ours, or nothing */
	h->next = take_digits(&s, first);
	h->next = h->next > 0 ? h->next : 1;
	h->token = take_digits(&s, first);
	h->granted = take_digits(&s, first);
	h->freeze = take_digits(&s, first);
	h->byte = take_byte(&s, first);
	take_owner(h->owner, s, first);
	s = first < end ? first + 1 : end;
	snprintf(h->record, sizeof h->record, "%.*s", (int)(line_end(s, end) - s), s);
	return true;
}

void
header_format(const struct header *h, char block[HEADER_BYTES])
{
	int n = snprintf(block, HEADER_BYTES,
	    "%s%" PRId64 " %" PRId64 " %" PRId64 " %" PRId64 " %" PRId64 " %" PRId64
	    " %s\n%s",
	    magic, h->next, h->token, h->granted, h->freeze, (int64_t)RANGE_OF(h->byte),
	    NUMBER_OF(h->byte), *h->owner ? h->owner : "-", h->record);

	memset(block + n, '\n', (size_t)(HEADER_BYTES - n));
}

int64_t
header_age(const struct header *h, int64_t now_us)
{
	int64_t us = now_us - h->granted;

	return h->granted > 0 && us >= 0 && us <= INT64_MAX / 1000 ? us * 1000 : -1;
}

int64_t
header_next_token(const struct header *h, int64_t now_us)
{
	int64_t next = h->token + 1;

	return next > now_us ? next : now_us;
}
