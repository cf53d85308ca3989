/*
 * text.h - bytes from anywhere, made fit to be shown.
 */
#ifndef DLOCK_TEXT_H
#define DLOCK_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * Decodes one UTF-8 character of at most n bytes (n > 0) at s.  Returns its
 * length and sets *c, or returns 0 where the bytes are no character: broken,
 * overlong, a surrogate, beyond U+10FFFF.
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
 * The same between quotes, one of which cannot be imitated inside, since quotes and
 * backslashes have a backslash before them; size is at least 8.
 */
char *text_quote(char *out, size_t size, const char *text, char quote);

/*
 * The same for a name in a sentence: in '...' where it has blanks or backslashes, or begins
 * with a quote, so that one sees where it ends and which name it is: what differs is
 * shown differently.
 */
char *text_name(char *out, size_t size, const char *text);

/*
 * Makes one line of UTF-8 of a text that a user tells others, into out[size], whatever its bytes are:
 * control characters become blanks, a byte that is no UTF-8 appears as \xE9, and what does not
 * fit is cut off with "...".  Passwords of URLs are masked, wherever it is cut.  Returns out.
 */
char *text_told(char *out, size_t size, const char *text);

/*
 * Cuts a line of UTF-8 off with "..." so that it takes no more than so many
 * columns of a terminal.  Returns text.
 */
char *text_fit(char *text, size_t columns);

/* How many columns of a terminal a clean text takes. */
size_t text_columns(const char *);

/*
 * Escapes the first character of n bytes (n > 0) for a JSON string, as a string in
 * out[8]; bytes that are no UTF-8 become the replacement character, as jq and browsers have
 * it.  Returns how many bytes it stood for.
 */
size_t text_json(char *out, const char *s, size_t n);

/*
 * NULL, or why this is no text of up to `most` bytes of UTF-8 without control characters
 * (C0, DEL, C1).
 */
const char *text_objection(const char *, size_t most);

/* Are these n bytes this word? */
bool text_is(const char *word, const char *text, size_t n);

/* How much of a text to keep, at most `most` bytes: whole characters, where it has such. */
size_t text_whole(const char *text, size_t most);

/*
 * The beginning of a user's text, to be quoted: the rest of the sentence must still fit
 * behind it.  Passwords in it are masked, wherever it is cut.
 */
struct brief {
	char text[64];
};

struct brief text_brief(const char *);

/* Microseconds since the epoch in the user's own zone: "2026-11-22 08:37:14 UTC", or "?". */
struct brief text_time(int64_t us);
/* "until 2026-11-24 08:37:14 UTC", or of a freeze without an end "until dlock thaw" */
struct brief text_until(int64_t us);
/* As RFC 3339 has it; "": not known, or after the year 9999. */
struct brief text_time_utc(int64_t us);

/* text_clean() of a whole text, and text_name() of a key, for one sentence. */
struct clean {
	char text[700];
};

struct clean text_shown(const char *);
struct clean text_key(const char *);

#endif
