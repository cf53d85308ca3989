/*
 * fuzz.h - what the fuzz targets share: the input as a string, and a claim that
 * stays in every build.
 */
#ifndef DLOCK_TESTS_FUZZ_H
#define DLOCK_TESTS_FUZZ_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define CLAIM(holds) \
	do { \
		if (!(holds)) { \
			fprintf(stderr, "%s:%d: not true: %s\n", __FILE__, __LINE__, \
			    #holds); \
			abort(); \
		} \
	} while (0)

/* The input up to its first NUL, in memory of exactly that size. */
static inline char *
fuzz_string(const uint8_t *data, size_t size)
{
	char *s = strndup((const char *)data, size);

	if (!s)
		abort();
	return s;
}

#endif
