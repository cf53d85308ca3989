/* secret.c - finds a secret in whatever guise it is quoted. */
#include "secret.h"

#include "digits.h"

#include <stdbool.h>
#include <string.h>

enum {
	ECHO = 8, /* characters that give a secret away */
	LEAST =
	    3, /* a shorter secret stands in every other word, and stars would show where */
};

/* Writes the UTF-8 of JSON's "uXXXX".  Returns how many bytes, or 0 where the text is none. */
static size_t
json_letter(const char *text, char out[3])
{
	int high = *text == 'u' ? digits_hex_byte(text + 1) : -1,
	    low = high < 0 ? -1 : digits_hex_byte(text + 3), c;

	if (low < 0)
		return 0;
	c = high << 8 | low;
	out[0] = (char)(c < 0x80 ? c : c < 0x800 ? 0xc0 | c >> 6 : 0xe0 | c >> 12);
	out[1] = (char)(0x80 | (c < 0x800 ? c & 0x3f : c >> 6 & 0x3f));
	out[2] = (char)(0x80 | (c & 0x3f));
	return c < 0x80 ? 1 : c < 0x800 ? 2 : 3;
}

/*
 * Returns how many bytes of `text` write the beginning of `secret` in some guise, and in *stands
 * how many bytes of the secret they stand for.  0: the text does not begin with such a guise.
 */
static size_t
guise(const char *text, const char *secret, size_t *stands)
{
	char c = *secret, letters[3];
	const char *letter = strchr("\nn\rr\tt\aa\bb", c);
	size_t n = *text == '\\' ? json_letter(text + 1, letters) : 0;

	if (n > 0 && strncmp(secret, letters, n) == 0) {
		*stands = n;
		return 6;
	}
	*stands = 1;
	if (*text == '%' && digits_hex_byte(text + 1) == (unsigned char)c)
		return 3;
	if (*text == '\\' && text[1] == 'x' &&
	    digits_hex_byte(text + 2) == (unsigned char)c)
		return 4;
	if (*text == '\\' &&
	    (text[1] == c || (letter && (unsigned char)c < ' ' && text[1] == letter[1])))
		return 2;
	return *text == ' ' && ((unsigned char)c < ' ' || c == 0x7f);
}

/* Returns how many bytes of `text` are the secret or enough of its beginning; 0: none are. */
static size_t
echo_length(const char *text, const char *secret, bool disguised)
{
	size_t used = 0, matched = 0, stands = 1, n = 1;

	for (; secret[matched] && text[used]; matched += stands, used += n) {
		n = disguised ? guise(text + used, secret + matched, &stands) : 0;
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
