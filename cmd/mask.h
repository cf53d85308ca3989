/*
 * mask.h - hides passwords in URLs and connection strings from ps(1), and from those who read
 * what dlock says.
 *
 * Known forms are scheme://user:PASSWORD@host/..., ...?password=PASSWORD&... and libpq's
 * password=PASSWORD or password='PASS WORD' among other pairs, in capital or small letters.  In a
 * URL that we cannot parse, all behind the scheme counts as a password.  A password ends with the
 * last @ of the URL: a URL with an unescaped / in it is refused, and its password is hidden all
 * the same.
 */
#ifndef DLOCK_MASK_H
#define DLOCK_MASK_H

#include <stdbool.h>
#include <stddef.h>

/* Does this URL hold a password?  No for NULL. */
bool mask_finds(const char *url);

/*
 * Finds a user without a password in the URL of a backend that needs one, and its length: in
 * redis://NAME@host the user may be a password by mistake.  NULL: there is none.
 */
const char *mask_lone_user(const char *url, size_t *n);

/* Writes an x over each character of the URL's passwords; the length stays. */
void mask_passwords(char *url);

/* Does the same to a sentence, in which a URL ends with its word. */
void mask_spoken(char *text);

/*
 * Does the same in `out`, a copy of the first `size` bytes of the text.  The copy may end within
 * a password.  `spoken`: the text is a sentence.
 */
void mask_copy(char *out, size_t size, const char *text, bool spoken);

/*
 * Does the same in `out`, a copy of the first `size` bytes of one word of a command.  It may be a
 * URL, whose password has blanks in it, or a script with several.
 */
void mask_word(char *out, size_t size, const char *text);

#endif
