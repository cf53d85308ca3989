/* text.c - see text.h. */
#include "text.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

size_t
utf8_next(const char *s, size_t n, uint32_t *ret)
{
	static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
	const unsigned char *u = (const unsigned char *)s;
	size_t len = u[0] < 0x80 ? 1 : u[0] >> 5 == 6 ? 2 : u[0] >> 4 == 14 ? 3 : u[0] >> 3 == 30 ? 4 : 0;
	uint32_t c = len == 1 ? u[0] : u[0] & (0x7f >> len);

	if (len == 0 || len > n)
		return 0;
	for (size_t i = 1; i < len; i++) {
		if (u[i] >> 6 != 2)
			return 0;
		c = c << 6 | (u[i] & 0x3f);
	}
	if (c < least[len] || c > 0x10ffff || (c >= 0xd800 && c <= 0xdfff))
		return 0;
	*ret = c;
	return len;
}

/* Characters that show nothing and change how their neighbours look, or are blank though they are letters. */
static bool
is_deceptive(uint32_t c)
{
	static const struct {
		uint32_t from, to;
	} ranges[] = {
	    {0xad, 0xad}, {0x61c, 0x61c}, {0x115f, 0x1160}, {0x17b4, 0x17b5}, {0x180b, 0x180f},
	    {0x200b, 0x200f}, {0x2028, 0x202e}, {0x2060, 0x206f}, {0x3164, 0x3164}, {0xfe00, 0xfe0e},
	    {0xfeff, 0xfeff}, {0xffa0, 0xffa0}, {0xfff9, 0xfffb}, {0x1d173, 0x1d17a}, {0xe0000, 0xe0fff},
	};

	for (size_t i = 0; i < sizeof ranges / sizeof *ranges; i++)
		if (c >= ranges[i].from && c <= ranges[i].to)
			return true;
	return false;
}

static bool
is_control(uint32_t c)
{
	return c < 0x20 || (c >= 0x7f && c <= 0x9f);
}

static bool
is_blank(uint32_t c)
{
	return c == ' ' || c == 0xa0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200a) || c == 0x202f || c == 0x205f ||
	    c == 0x2800 || c == 0x3000;
}

/* text_clean(), and with a backslash before each `quote`. */
static char *
clean(char *out, size_t size, const char *text, size_t n, char quote)
{
	size_t used = 0;

	for (size_t i = 0; i < n;) {
		uint32_t c = 0;
		size_t len = utf8_next(text + i, n - i, &c);
		char shown[16];

		if (len == 0)
			snprintf(shown, sizeof shown, "\\x%02X", (unsigned char)text[i]);
		else if (is_control(c))
			snprintf(shown, sizeof shown, "\\x%02X", (unsigned)c);
		else if (is_deceptive(c))
			snprintf(shown, sizeof shown, "\\u%04X", (unsigned)c);
		else
			snprintf(shown, sizeof shown, "%s%.*s", quote && c == (unsigned char)quote ? "\\" : "", (int)len,
			    text + i);
		if (used + strlen(shown) + 4 > size) {
			memcpy(out + used, "...", 4);
			return out;
		}
		memcpy(out + used, shown, strlen(shown));
		used += strlen(shown);
		i += len ? len : 1;
	}
	out[used] = '\0';
	return out;
}

char *
text_clean(char *out, size_t size, const char *text, size_t n)
{
	return clean(out, size, text, n, '\0');
}

static bool
has_blanks(const char *text)
{
	for (size_t left = strlen(text); left > 0;) {
		uint32_t c = 0;
		size_t len = utf8_next(text, left, &c);

		if (len > 0 && is_blank(c))
			return true;
		text += len ? len : 1;
		left -= len ? len : 1;
	}
	return false;
}

char *
text_quote(char *out, size_t size, const char *text, char quote)
{
	size_t n;

	out[0] = quote;
	n = 1 + strlen(clean(out + 1, size - 2, text, strlen(text), quote));
	out[n] = quote;
	out[n + 1] = '\0';
	return out;
}

char *
text_name(char *out, size_t size, const char *text)
{
	return has_blanks(text) ? text_quote(out, size, text, '\'') : text_clean(out, size, text, strlen(text));
}

/* Wide characters begin there; what combines with its neighbour and takes none counts as well: never too few. */
static size_t
columns_of(uint32_t c)
{
	return c < 0x1100 ? 1 : 2;
}

char *
text_fit(char *text, size_t columns)
{
	static const char dots[] = "...";
	size_t n = strlen(text), used = 0, cut = 0, len, most = columns < 3 ? columns : 3;

	for (size_t i = 0; i < n; i += len) {
		uint32_t c = 0;

		len = utf8_next(text + i, n - i, &c);
		len = len ? len : 1;
		used += columns_of(c);
		if (used + most <= columns)
			cut = i + len;
		if (used > columns) {
			memcpy(text + cut, dots, most);
			text[cut + most] = '\0';
			break;
		}
	}
	return text;
}

/* ---- what was meant ---- */

enum { WORD_BYTES = 32 };

static char
lower(char c)
{
	return c >= 'A' && c <= 'Z' ? (char)(c + 'a' - 'A') : c;
}

static size_t
least(size_t a, size_t b)
{
	return a < b ? a : b;
}

/* How many keys were left out, hit too much, hit wrongly or swapped with their neighbour (Damerau 1964). */
static size_t
distance(const char *a, size_t na, const char *b, size_t nb)
{
	size_t d[WORD_BYTES + 1][WORD_BYTES + 1];

	for (size_t i = 0; i <= na; i++)
		for (size_t j = 0; j <= nb; j++) {
			if (i == 0 || j == 0) {
				d[i][j] = i + j;
				continue;
			}
			d[i][j] = d[i - 1][j - 1] + (lower(a[i - 1]) != lower(b[j - 1]));
			d[i][j] = least(d[i][j], least(d[i - 1][j], d[i][j - 1]) + 1);
			if (i > 1 && j > 1 && lower(a[i - 1]) == lower(b[j - 2]) && lower(a[i - 2]) == lower(b[j - 1]))
				d[i][j] = least(d[i][j], d[i - 2][j - 2] + 1);
		}
	return d[na][nb];
}

const char *
text_nearest(const char *word, size_t n, const char *const *known)
{
	const char *best = NULL;
	size_t nearest = n < 5 ? 2 : n < 8 ? 3 : 4; /* what is that far away was not meant */

	if (n < 2 || n > WORD_BYTES)
		return NULL;
	for (; *known; known++) {
		size_t length = strlen(*known), d;

		if (length > WORD_BYTES)
			continue;
		d = n >= 2 && n < length && strncmp(word, *known, n) == 0 ? 1 : distance(word, n, *known, length);
		if (d < nearest && d < length) {
			nearest = d;
			best = *known;
		}
	}
	return best;
}

const char *
text_meant(const char *word, size_t n, const struct synonym *s)
{
	for (; s->word; s++)
		if (strlen(s->word) == n && strncasecmp(s->word, word, n) == 0)
			return s->meant;
	return NULL;
}
