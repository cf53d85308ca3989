/*
 * row.h - the fields of a row that a database has answered, checked.
 *
 * Databases send text.  It is hostile: what is no number, too long, or has a NUL in it,
 * is refused here.
 */
#ifndef DLOCK_ROW_H
#define DLOCK_ROW_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

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

#endif
