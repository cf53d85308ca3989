/*
 * mask.h - passwords in URLs and connection strings, hidden from ps(1).
 *
 * Known forms: scheme://user:PASSWORD@host/..., ...?password=PASSWORD&... and
 * libpq's password=PASSWORD or password='PASS WORD' among other pairs.  A password ends
 * with the last @ of all: a URL with an unescaped / in it is refused, and still its password is not shown.
 */
#ifndef DLOCK_MASK_H
#define DLOCK_MASK_H

#include <stdbool.h>

/* Does this URL hold a password?  NULL: no. */
bool mask_finds(const char *url);

/* Writes an x over each character of its passwords; the length stays. */
void mask_passwords(char *url);

/* The same of a sentence, in which a URL ends with its word. */
void mask_spoken(char *text);

#endif
