/*
 * utf8.h - tells whether a text is UTF-8.
 */
#ifndef DLOCK_COMMON_UTF8_H
#define DLOCK_COMMON_UTF8_H

#include <stdbool.h>

/* Without UTF-8 a text cannot stand in JSON. */
bool utf8_is_valid(const char *text);

#endif
