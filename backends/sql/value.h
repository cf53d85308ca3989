/*
 * value.h - the fields of a row that a database has answered, checked; and the words for the
 * kinds of lock, as the schemas have them.
 *
 * Databases send text.  It is hostile: what is no number, too long, or has a NUL in it,
 * is refused here.
 */
#ifndef DLOCK_SQL_VALUE_H
#define DLOCK_SQL_VALUE_H

#include "backends/backend.h"

/* One row, as long as the answer lives. */
struct row {
	char *const *at; /* its fields, NULL for NULL; NULL: there is no (further) row */
	const unsigned long *lengths;
};

bool row_is_null(const struct row *, int field);

/*
 * False: not that, or NULL.  An integer from `low` to `high`; a boolean, 0 or 1, f or t;
 * text that fits and has no NUL in it ("" for NULL).
 */
bool row_integer(const struct row *, int field, int64_t low, int64_t high, int64_t *ret);
bool row_boolean(const struct row *, int field, bool *ret);
bool row_text(const struct row *, int field, char *out, size_t size);

/* Text as the answer has it, up to its first NUL; NULL for NULL. */
const char *row_words(const struct row *, int field);

/* ---- kinds of lock ---- */

/* The word for a kind; both exclusive ones have the same. */
const char *kind_word(enum lock_kind);

/* False: no kind has this word, or it is NULL. */
bool kind_of_word(const char *word, enum lock_kind *);

/*
 * The slot of a holder, of a limit of `room`; one that has no limit (0) has none: NULL, -1
 * or 0, and *slot is -1.  False: it makes no sense.
 */
bool kind_slot(const struct row *, int field, int64_t room, int64_t *slot);

/* What stands for a kind where there is a freeze. */
#define KIND_WORD_FREEZE "freeze"

#endif
