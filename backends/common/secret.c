/* secret.c - finds passwords in what is quoted, however they are written. */
#include "secret.h"

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

enum {
	ECHO = 8,  /* so much of a secret is too much of it */
	LEAST = 3, /* a shorter one stands in every other word, and stars would tell it */
};

static int
hex_digit(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	c |= 0x20;
	return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* Two hexadecimal digits that mean `c`? */
static bool
is_hex(const char *text, char c)
{
	int high = hex_digit(text[0]), low = high < 0 ? -1 : hex_digit(text[1]);

	return low >= 0 && (char)(high * 16 + low) == c;
}

/* How many bytes at `text` stand for `c` in some guise; 0: none. */
static size_t
guise(const char *text, char c)
{
	const char *letter = strchr("\nn\rr\tt\aa\bb", c);

	if (*text == '%' && is_hex(text + 1, c))
		return 3;
	if (*text == '\\' && text[1] == 'x' && is_hex(text + 2, c))
		return 4;
	if (*text == '\\' &&
	    (text[1] == c || (letter && (unsigned char)c < ' ' && text[1] == letter[1])))
		return 2;
	return *text == ' ' && ((unsigned char)c < ' ' || c == 0x7f);
}

/*
 * How many bytes of `text` are the secret or enough of its beginning; 0: it is not here.
 */
static size_t
echo_length(const char *text, const char *secret, bool disguised)
{
	size_t used = 0, matched = 0, n = 1;

	for (; secret[matched] && text[used]; matched++, used += n) {
		n = disguised ? guise(text + used, secret[matched]) : 0;
		if (n == 0 && text[used] == secret[matched])
			n = 1;
		if (n == 0)
			break;
	}
	return !secret[matched] || matched >= ECHO ? used : 0;
}

void
secret_blot(char *text, const char *secret)
{
	if (!secret || strlen(secret) < LEAST)
		return;
	for (; *text; text++) {
		size_t plain = echo_length(text, secret, false),
		       disguised = echo_length(text, secret, true);
		size_t n = plain > disguised ? plain : disguised, stars = n < 3 ? n : 3;

		if (n == 0)
			continue;
		memset(text, '*', stars);
		memmove(text + stars, text + n, strlen(text + n) + 1);
		text += stars - 1;
	}
}
