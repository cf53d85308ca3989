/*
 * digits.h - bytes and numbers as digits, and back.
 *
 * Every run reads and writes some, so this does without the C library's isalnum() and strtoull():
 * each reads a page of tables that a run needs for nothing else.
 */
#ifndef DLOCK_COMMON_DIGITS_H
#define DLOCK_COMMON_DIGITS_H

#include <ctype.h>
#include <stddef.h>
#include <stdint.h>

#define LETTERS_AND_DIGITS \
	"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"

/*
 * The byte that two hexadecimal digits mean, in either case.  -1: they are none.  It reads no
 * further than a NUL.
 */
static inline int
digits_hex_byte(const char *text)
{
	int byte = 0;

	for (const char *end = text + 2; text < end; text++) {
		int c = *text | 0x20;

		if (!isxdigit((unsigned char)*text))
			return -1;
		byte = byte * 16 + (c <= '9' ? c - '0' : c - 'a' + 10);
	}
	return byte;
}

/* Writes two hexadecimal digits for each byte, and a NUL. */
static inline void
digits_hex(char *out, const unsigned char *bytes, size_t n)
{
	static const char digits[] = "0123456789abcdef";

	for (size_t i = 0; i < n; i++) {
		*out++ = digits[bytes[i] >> 4];
		*out++ = digits[bytes[i] & 15];
	}
	*out = '\0';
}

/* The number that the digits at the beginning mean; they must fit. */
static inline uint64_t
digits_read(const char *text)
{
	uint64_t number = 0;

	for (; *text >= '0' && *text <= '9'; text++)
		number = 10 * number + (*text - '0');
	return number;
}

#endif
