/*
 * text.h - makes bytes from anywhere fit to be shown.
 */
#ifndef DLOCK_TEXT_H
#define DLOCK_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * Decodes one UTF-8 character of at most n bytes (n > 0) at s into *c.  Returns its length, or 0
 * where the bytes are no character: broken, overlong, a surrogate, beyond U+10FFFF.
 */
size_t text_next(const char *s, size_t n, uint32_t *c);

/*
 * Copies `n` bytes of text so that printing them is harmless: control
 * characters, bytes that are no UTF-8, and the invisible characters that
 * reorder or hide text (bidi controls, zero-width ones) appear as \x1B or
 * \u202E.  Cuts off with "..." where `size` ends.  Returns out.
 */
char *text_clean(char *out, size_t size, const char *text, size_t n);

/*
 * Does the same, and puts it between quotes.  The text cannot imitate the closing quote, since
 * quotes and backslashes in it get a backslash.  size is at least 8.
 */
char *text_quote(char *out, size_t size, const char *text, char quote);

/*
 * Does the same for a name in a sentence.  A name with blanks or backslashes, or one that begins
 * with a quote, stands in '...', so that a reader sees where it ends.  Two different names look
 * different.
 */
char *text_name(char *out, size_t size, const char *text);

/*
 * Makes one line of UTF-8 of a text that a user tells others, into out[size].  Control characters
 * become blanks, a byte that is no UTF-8 appears as \xE9, and a long text is cut off with "...".
 * Passwords of URLs are masked, also where the cut goes through one.  Returns out.
 */
char *text_told(char *out, size_t size, const char *text);

/*
 * Cuts a line of UTF-8 off with "...", so that it takes at most so many columns of a terminal.
 * Returns text.
 */
char *text_fit(char *text, size_t columns);

/* Counts the columns of a terminal that a clean text takes. */
size_t text_columns(const char *);

/*
 * Escapes the first character of n bytes (n > 0) for a JSON string, and writes it as a string to
 * out[8].  Bytes that are no UTF-8 become the replacement character, as in jq and browsers.
 * Returns how many bytes the character had.
 */
size_t text_json(char *out, const char *s, size_t n);

/*
 * Says why this is no text of up to `most` bytes of UTF-8 without control characters (C0, DEL,
 * C1).  NULL: it is one.
 */
const char *text_objection(const char *, size_t most);

/* Are these n bytes this word? */
bool text_is(const char *word, const char *text, size_t n);

/* Counts the bytes of a text to keep, at most `most`, without cutting a character in two. */
size_t text_whole(const char *text, size_t most);

/*
 * The beginning of a user's text, short enough that the rest of a sentence fits behind it.
 * Passwords in it are masked, also where the cut goes through one.
 */
struct brief {
	char text[64];
};

struct brief text_brief(const char *);

/*
 * Writes microseconds since the epoch in the user's own zone: "2026-11-22 08:37:14 UTC", or "?".
 */
struct brief text_time(int64_t us);
/* The same of a moment on the day of `now`: "08:37:14". */
struct brief text_clock(int64_t us, int64_t now);
/* Writes "until 2026-11-24 08:37:14 UTC", or for a freeze without an end "until dlock thaw". */
struct brief text_until(int64_t us);
/* Writes a time as RFC 3339 has it; "": not known, or after the year 9999. */
struct brief text_time_utc(int64_t us);

/* One text of a sentence: text_shown() does text_clean(), text_key() does text_name(). */
struct clean {
	char text[700];
};

struct clean text_shown(const char *);
struct clean text_key(const char *);

#endif
