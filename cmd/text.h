/*
 * text.h - bytes from anywhere, made fit to be shown.
 */
#ifndef DLOCK_TEXT_H
#define DLOCK_TEXT_H

#include <stddef.h>
#include <stdint.h>

/*
 * Decodes one UTF-8 character of at most n bytes (n > 0) at s.  Returns its
 * length and sets *c, or returns 0 where the bytes are no character: broken,
 * overlong, a surrogate, beyond U+10FFFF.
 */
size_t utf8_next(const char *s, size_t n, uint32_t *c);

/*
 * Copies `n` bytes of text so that printing them is harmless: control
 * characters, bytes that are no UTF-8, and the invisible characters that
 * reorder or hide text (bidi controls, zero-width ones) appear as \x1B or
 * \u202E.  Cuts off with "..." where `size` ends.  Returns out.
 */
char *text_clean(char *out, size_t size, const char *text, size_t n);

#endif
