/*
 * mask.h - passwords in URLs and connection strings, hidden from ps(1) and from whoever reads what dlock says.
 *
 * Known forms: scheme://user:PASSWORD@host/..., ...?password=PASSWORD&... and
 * libpq's password=PASSWORD or password='PASS WORD' among other pairs, in any letters.  Of a
 * URL whose shape is not understood, all behind the scheme is taken for one.  A password ends
 * with the last @ of all: a URL with an unescaped / in it is refused, and still its password
 * is not shown.
 */
#ifndef DLOCK_MASK_H
#define DLOCK_MASK_H

#include <stdbool.h>
#include <stddef.h>

/* Does this URL hold a password?  NULL: no. */
bool mask_finds(const char *url);

/*
 * redis://PASSWORD@host: the user of a URL that has no password behind it, where the backend wants
 * one, and its length.  NULL: it has none.
 */
const char *mask_lone_user(const char *url, size_t *n);

/* Writes an x over each character of its passwords; the length stays. */
void mask_passwords(char *url);

/* The same of a sentence, in which a URL ends with its word. */
void mask_spoken(char *text);

/*
 * The same in a copy of the first `size` bytes of the text, which may cut a password: of a URL,
 * or (`spoken`) of a sentence.
 */
void mask_copy(char *out, size_t size, const char *text, bool spoken);

#endif
