/*
 * nearest.h - what was meant by a word that we do not know.
 *
 * For "did you mean --wait?" behind an error: a hint, never obeyed.
 */
#ifndef DLOCK_NEAREST_H
#define DLOCK_NEAREST_H

#include <stddef.h>

/*
 * The one of `known` (NULL-ended) that was probably meant by the n bytes of
 * `word`, or NULL: one or two keys were hit wrongly, or it was cut short.
 */
const char *nearest_word(const char *word, size_t n, const char *const *known);

/* A word that people use for another one, often because another program calls it so. */
struct synonym {
	const char *word, *meant;
};

/* The same among synonyms, which end with {NULL, NULL}; only the whole word counts. */
const char *nearest_synonym(const char *word, size_t n, const struct synonym *);

/* The same in both: a synonym counts more. */
const char *nearest_meant(
    const char *word, size_t n, const struct synonym *, const char *const *known);

#endif
