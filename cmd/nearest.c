/* nearest.c - which of the words that we know was meant by one that we do not. */
#include "nearest.h"

#include <string.h>
#include <strings.h>

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

/*
 * How many keys were left out, hit too much, hit wrongly or swapped with their neighbour
 * (Damerau 1964).
 */
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
			if (i > 1 && j > 1 && lower(a[i - 1]) == lower(b[j - 2]) &&
			    lower(a[i - 2]) == lower(b[j - 1]))
				d[i][j] = least(d[i][j], d[i - 2][j - 2] + 1);
		}
	return d[na][nb];
}

const char *
nearest_word(const char *word, size_t n, const char *const *known)
{
	const char *best = NULL;
	/* what is that far away was not meant */
	size_t nearest = n < 5 ? 2 : n < 8 ? 3 : 4;

	if (n < 2 || n > WORD_BYTES)
		return NULL;
	for (; *known; known++) {
		size_t length = strlen(*known), d;

		if (length > WORD_BYTES)
			continue;
		d = n >= 2 && n < length && strncmp(word, *known, n) == 0
		    ? 1
		    : distance(word, n, *known, length);
		if (d < nearest && d < length) {
			nearest = d;
			best = *known;
		}
	}
	return best;
}

const char *
nearest_synonym(const char *word, size_t n, const struct synonym *s)
{
	for (; s->word; s++)
		if (strlen(s->word) == n && strncasecmp(s->word, word, n) == 0)
			return s->meant;
	return NULL;
}

const char *
nearest_meant(
    const char *word, size_t n, const struct synonym *synonyms, const char *const *known)
{
	const char *meant = nearest_synonym(word, n, synonyms);

	return meant ? meant : nearest_word(word, n, known);
}
