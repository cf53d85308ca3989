/* encode.c - writes keys as names, and reads them. */
#include "encode.h"

#include "digits.h"

#include <string.h>

size_t
encode_key(char *out, size_t size, const char *key)
{
	static const char hex[] = "0123456789ABCDEF",
			  itself[] = LETTERS_AND_DIGITS "-_.~:@=";
	bool dots = strcmp(key, ".") == 0 || strcmp(key, "..") == 0;
	size_t n = 0;

	for (; *key; key++) {
		unsigned char c = *key;

		if (n + 4 > size)
			return 0;
		if (!dots && strchr(itself, c)) {
			out[n++] = c;
		} else {
			out[n++] = '%';
			out[n++] = hex[c >> 4];
			out[n++] = hex[c & 15];
		}
	}
	out[n] = '\0';
	return n;
}

int
encode_undo(char *out, size_t size, const char *text, size_t n)
{
	size_t len = 0;

	for (size_t i = 0; i < n; i++) {
		int c = (unsigned char)text[i];

		if (c == '%') {
			c = i + 2 < n ? digits_hex_byte(text + i + 1) : -1;
			if (c <= 0)
				return -1;
			i += 2;
		}
		if (len + 1 >= size)
			return -1;
		out[len++] = c;
	}
	out[len] = '\0';
	return len;
}

bool
encode_read_key(char key[KEY_BYTES + 1], const char *text, size_t n)
{
	char again[ENCODED_BYTES];

	if (encode_undo(key, KEY_BYTES + 1, text, n) < 1)
		return false;
	for (const char *c = key; *c; c++)
		if ((unsigned char)*c < ' ' || *c == 0x7F)
			return false;
	return encode_key(again, sizeof again, key) == n && memcmp(again, text, n) == 0;
}
