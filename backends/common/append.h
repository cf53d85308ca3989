/*
 * append.h - puts a text together, piece by piece.
 *
 * Every run writes such texts, so this does without stdio, whose first use costs a run seven
 * page faults.  Each function writes at `at` and before `end`, which is beyond `at`, and a NUL
 * behind it; it returns where that NUL is.  A piece that does not fit is cut off.
 *
 * They are inline because the stub calls them, which may run nothing of ours that is compiled in
 * the usual way: see cmd/supervise/stub.c.
 */
#ifndef DLOCK_COMMON_APPEND_H
#define DLOCK_COMMON_APPEND_H

#include <stdint.h>
#include <string.h>

static inline char *
append_text(char *at, const char *end, const char *text)
{
	size_t n = strnlen(text, end - at - 1);

	memcpy(at, text, n);
	at[n] = '\0';
	return at + n;
}

static inline char *
append_number(char *at, const char *end, uint64_t number)
{
	char digits[24], *first = digits + sizeof digits - 1;

	*first = '\0';
	do
		*--first = '0' + number % 10;
	while (number /= 10);
	return append_text(at, end, first);
}

static inline char *
append_signed(char *at, const char *end, int64_t number)
{
	if (number >= 0)
		return append_number(at, end, number);
	return append_number(append_text(at, end, "-"), end, -(uint64_t)number);
}

/* Without zeros in front. */
static inline char *
append_hex(char *at, const char *end, uint64_t number)
{
	char digits[17], *first = digits;

	for (int i = 0; i < 16; i++)
		digits[i] = "0123456789abcdef"[number >> (60 - 4 * i) & 15];
	digits[16] = '\0';
	while (*first == '0' && first[1])
		first++;
	return append_text(at, end, first);
}

#endif
