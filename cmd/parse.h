/*
 * parse.h - the words that people write: durations, times, numbers, signals.
 *
 * Each function takes the whole string or refuses it; none reads a locale.  On
 * refusal the output is untouched.
 */
#ifndef DLOCK_PARSE_H
#define DLOCK_PARSE_H

#include "text.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * Reads NUMBER[UNIT]..., with falling units of w d h m s ms and decimals behind a point.  A lone
 * number is seconds; "inf" is NEVER.  At most about 292 years.
 */
bool parse_duration(const char *, int64_t *ns);

/* Writes a duration in its two largest units: "2m13s", "4h02m", "850ms", "inf". */
struct word {
	char text[32];
};
struct word parse_span(int64_t ns);

/*
 * Reads a moment, in microseconds since the epoch: as RFC 3339 has it (2026-11-24T18:00:00Z, with
 * +01:00 for Z, or without seconds), or without a zone in local time (2026-11-24 18:00).  *twice:
 * it is refused, since local clocks show that time twice, before and after summer time ends.
 * Where the zone itself was set back, as Moscow's was in 2014, one of the two times is taken.
 */
bool parse_time(const char *, int64_t *us, bool *twice);

/* Reads decimal digits, for a number from low to high. */
bool parse_number(const char *, long low, long high, long *);

/* Reads "1", "yes", "true", "on" and their opposites. */
bool parse_truth(const char *, bool *);

/* Reads "TERM", "SIGTERM", "15". */
bool parse_signal(const char *, int *);

/* Writes "SIGTERM", or "signal 40". */
struct word parse_signal_text(int sig);

/*
 * Guesses which of `known` (NULL-ended) was meant by the n bytes of `word`, for "did you mean":
 * one or two keys were hit wrongly, or the word was cut short.  NULL: no guess.
 */
const char *parse_nearest(const char *word, size_t n, const char *const *known);

/* A word for something that other programs call so, and its name here. */
struct synonym {
	const char *said, *meant;
};

/*
 * The meaning of such a word, by a list that ends with a row of NULL; otherwise parse_nearest()'s
 * guess.
 */
const char *parse_meant(
    const char *word, size_t n, const struct synonym *, const char *const *known);

/* Writes ": did you mean --ttl?" of its three parts.  `meant` NULL gives "". */
struct brief parse_hint(const char *before, const char *meant, const char *behind);

#endif
