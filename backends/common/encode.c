/* encode.c - keys as names, and %XX undone. */
#include "encode.h"

#include <stdbool.h>
#include <string.h>

static bool
is_plain(unsigned char c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
	    (c >= '0' && c <= '9') || (c && strchr("-_.~:@=", c));
}

size_t
encode_key(char *out, size_t size, const char *key)
{
	static const char hex[] = "0123456789ABCDEF";
	bool dots = strcmp(key, ".") == 0 || strcmp(key, "..") == 0;
	size_t n = 0;

	for (; *key; key++) {
		unsigned char c = *key;

		if (n + 4 > size)
			return 0;
		if (is_plain(c) && !dots) {
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

static int
hex_value(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	if (c >= 'a' && c <= 'f')
		return c - 'a' + 10;
	if (c >= 'A' && c <= 'F')
		return c - 'A' + 10;
	return -1;
}

int
encode_undo(char *out, size_t size, const char *text, size_t n)
{
	size_t len = 0;

	for (size_t i = 0; i < n; i++) {
		int c = (unsigned char)text[i];

		if (c == '%') {
			int high = i + 2 < n ? hex_value(text[i + 1]) : -1;
			int low = high >= 0 ? hex_value(text[i + 2]) : -1;

			if (low < 0 || (c = high * 16 + low) == 0)
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
