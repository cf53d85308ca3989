/* text.c - decodes UTF-8, and makes bytes from anywhere fit to be shown. */
#include "text.h"

#include "mask.h"

#include "backends/common/instant.h"

#include <locale.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <wchar.h>

size_t
text_next(const char *s, size_t n, uint32_t *ret)
{
	static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
	const unsigned char *u = (const unsigned char *)s;
	size_t len = u[0] < 0x80 ? 1
	    : u[0] >> 5 == 6     ? 2
	    : u[0] >> 4 == 14    ? 3
	    : u[0] >> 3 == 30    ? 4
				 : 0;
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

/*
 * Decodes a character as text_next() does.  A byte that is no UTF-8 counts as one character, 0.
 */
static size_t
next_shown(const char *s, size_t n, uint32_t *c)
{
	size_t len = text_next(s, n, c);

	if (len == 0)
		*c = 0;
	return len ? len : 1;
}

/*
 * Does a character mislead the reader?  Some show nothing and change how their neighbours look;
 * some are letters that look like blanks.
 */
static bool
is_deceptive(uint32_t c)
{
	/* in their order: most characters are before the first */
	static const struct {
		uint32_t from, to;
	} ranges[] = {{0xad, 0xad}, {0x61c, 0x61c}, {0x115f, 0x1160}, {0x17b4, 0x17b5},
	    {0x180b, 0x180f}, {0x200b, 0x200f}, {0x2028, 0x202e}, {0x2060, 0x206f},
	    {0x3164, 0x3164}, {0xfe00, 0xfe0e}, {0xfeff, 0xfeff}, {0xffa0, 0xffa0},
	    {0xfff9, 0xfffb}, {0x1d173, 0x1d17a}, {0xe0000, 0xe0fff}};

	for (size_t i = 0; i < sizeof ranges / sizeof *ranges && c >= ranges[i].from; i++)
		if (c <= ranges[i].to)
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
	return c == ' ' || c == 0xa0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200a) ||
	    c == 0x202f || c == 0x205f || c == 0x2800 || c == 0x3000;
}

/* Does text_clean(), and puts a backslash before each `quote` and each backslash. */
static char *
clean(char *out, size_t size, const char *text, size_t n, char quote)
{
	size_t used = 0;

	for (size_t i = 0; i < n;) {
		uint32_t c = 0;
		size_t len = text_next(text + i, n - i, &c);
		char shown[16];
		size_t m = 0;

		if (len == 0) {
			m = snprintf(
			    shown, sizeof shown, "\\x%02X", (unsigned char)text[i]);
		} else if (is_control(c)) {
			m = snprintf(shown, sizeof shown, "\\x%02X", (unsigned)c);
		} else if (is_deceptive(c)) {
			m = snprintf(shown, sizeof shown, "\\u%04X", (unsigned)c);
		} else {
			if (quote && (c == (unsigned char)quote || c == '\\'))
				shown[m++] = '\\';
			memcpy(shown + m, text + i, len);
			m += len;
		}
		if (used + m + 4 > size) {
			memcpy(out + used, "...", 4);
			return out;
		}
		memcpy(out + used, shown, m);
		used += m;
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
	/*
	 * without quotes, a name with a backslash could pass for one that we have escaped, such
	 * as \x1B
	 */
	bool quoted = text[0] == '\'' || strchr(text, '\\');
	size_t n = strlen(text);

	for (size_t i = 0; i < n && !quoted;) {
		uint32_t c;

		i += next_shown(text + i, n - i, &c);
		quoted = is_blank(c);
	}
	return quoted ? text_quote(out, size, text, '\'')
		      : text_clean(out, size, text, n);
}

/*
 * Asks the C library for the columns of a character, whatever the user's locale is.  Its tables
 * are loaded when the first such character comes.  -1: it does not know.
 */
static int
columns_in_library(uint32_t c)
{
	static locale_t utf8;
	static bool asked;
	locale_t before;
	int columns;

	if (!asked)
		utf8 = newlocale(LC_CTYPE_MASK, "C.UTF-8", (locale_t)0);
	asked = true;
	if (!utf8)
		return -1;
	before = uselocale(utf8);
	columns = wcwidth((wchar_t)c);
	uselocale(before);
	return columns;
}

/* The columns of a character.  An unknown one counts for too many rather than too few. */
static size_t
columns_of(uint32_t c)
{
	int columns = c < 0x300 ? 1 : columns_in_library(c);

	return columns >= 0 ? (size_t)columns : c < 0x1100 ? 1 : 2;
}

size_t
text_columns(const char *text)
{
	size_t columns = 0;

	for (size_t left = strlen(text), n; left > 0; text += n, left -= n) {
		uint32_t c;

		n = next_shown(text, left, &c);
		columns += columns_of(c);
	}
	return columns;
}

size_t
text_json(char *out, const char *s, size_t n)
{
	uint32_t c = 0;
	size_t len = text_next(s, n, &c);

	if (len == 0) {
		strcpy(out, "\\uFFFD");
	} else if (is_control(c)) {
		snprintf(out, 8, "\\u%04X", (unsigned)c);
	} else if (c == '"' || c == '\\') {
		memcpy(out, (const char[]){'\\', (char)c, '\0'}, 3);
	} else {
		memcpy(out, s, len);
		out[len] = '\0';
	}
	return len ? len : 1;
}

char *
text_fit(char *text, size_t columns)
{
	static const char dots[] = "...";
	size_t n = strlen(text), used = 0, cut = 0, len, most = columns < 3 ? columns : 3;

	for (size_t i = 0; i < n; i += len) {
		uint32_t c;

		len = next_shown(text + i, n - i, &c);
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

const char *
text_objection(const char *s, size_t most)
{
	size_t n = strlen(s);

	if (n > most)
		return "too long";
	for (size_t i = 0; i < n;) {
		uint32_t c = 0;
		size_t len = text_next(s + i, n - i, &c);

		if (len == 0)
			return "not UTF-8";
		if (is_control(c))
			return "it has control characters";
		i += len;
	}
	return NULL;
}

#define YEAR_10000 (253402300800 * US_PER_S)

/* Splits a time with `split`, gmtime_r or localtime_r.  False: the time is not known. */
static bool
split_time(int64_t us, struct tm *(*split)(const time_t *, struct tm *), struct tm *tm)
{
	const time_t seconds = us / US_PER_S;

	return us >= 0 && us < YEAR_10000 && split(&seconds, tm);
}

struct brief
text_time(int64_t us)
{
	struct brief b = {"?"};
	struct tm tm;

	if (split_time(us, localtime_r, &tm))
		strftime(b.text, sizeof b.text, "%Y-%m-%d %H:%M:%S %Z", &tm);
	return b;
}

struct brief
text_clock(int64_t us, int64_t now)
{
	struct brief b = text_time(us);
	struct tm then, today;

	if (split_time(us, localtime_r, &then) && split_time(now, localtime_r, &today) &&
	    then.tm_yday == today.tm_yday && then.tm_year == today.tm_year)
		strftime(b.text, sizeof b.text, "%H:%M:%S", &then);
	return b;
}

struct brief
text_until(int64_t us)
{
	struct brief b;

	snprintf(b.text, sizeof b.text, "until %.57s",
	    us < 0 ? "dlock thaw" : text_time(us).text);
	return b;
}

struct brief
text_time_utc(int64_t us)
{
	struct brief b = {""};
	struct tm tm;

	if (split_time(us, gmtime_r, &tm))
		snprintf(b.text + strftime(b.text, 32, "%Y-%m-%dT%H:%M:%S", &tm), 8,
		    ".%03dZ", (int)(us % US_PER_S / 1000));
	return b;
}

bool
text_is(const char *word, const char *text, size_t n)
{
	return strlen(word) == n && strncmp(word, text, n) == 0;
}

size_t
text_whole(const char *text, size_t most)
{
	size_t n = strnlen(text, most), back = 0;

	while (back < 3 && back < n && (text[n - back] & 0xc0) == 0x80)
		back++;
	return (text[n - back] & 0xc0) == 0x80 ? n : n - back;
}

/* ---- texts of users, for a sentence ---- */

struct brief
text_brief(const char *text)
{
	size_t n = strlen(text);
	struct brief b;

	if (n >= sizeof b.text)
		n = text_whole(text, sizeof b.text - 4);
	snprintf(b.text, sizeof b.text, "%.*s%s", (int)n, text, text[n] ? "..." : "");
	mask_copy(b.text, n, text, false);
	return b;
}

char *
text_told(char *out, size_t size, const char *text)
{
	char copy[1024]; /* longer than any result, since blanks in a row become one */
	size_t n = text_whole(text, sizeof copy), used = 0, len;

	memcpy(copy, text, n);
	mask_copy(copy, n, text, true);
	while (n > 0 && strchr(" \t\n\v\f\r", copy[n - 1]))
		n--;
	for (size_t i = 0; i < n; i += len) {
		char shown[8];
		uint32_t c;
		size_t m;

		len = next_shown(copy + i, n - i, &c);
		m = len;
		if (c == 0)
			m = snprintf(
			    shown, sizeof shown, "\\x%02X", (unsigned char)copy[i]);
		else if (!is_control(c))
			memcpy(shown, copy + i, len);
		else if ((m = used > 0 && out[used - 1] != ' '))
			*shown = ' ';
		if (used + m + 4 > size) {
			memcpy(out + used, "...", 4);
			return out;
		}
		memcpy(out + used, shown, m);
		used += m;
	}
	out[used] = '\0';
	return out;
}

struct clean
text_shown(const char *text)
{
	struct clean s;

	text_clean(s.text, sizeof s.text, text, strlen(text));
	return s;
}

struct clean
text_key(const char *key)
{
	struct clean s;

	text_name(s.text, 400, key); /* the rest of the sentence must fit behind it */
	return s;
}
