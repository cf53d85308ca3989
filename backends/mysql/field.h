/* field.h - the fields of a result's rows, checked. */
#ifndef DLOCK_MYSQL_FIELD_H
#define DLOCK_MYSQL_FIELD_H

#include "lib.h"

/* One row of a result, as long as that lives. */
struct row {
	MYSQL_ROW at; /* NULL: there is no (further) row */
	const unsigned long *lengths;
};

/* The first row; and the next one. */
struct row row_first(const struct libmariadb *, MYSQL_RES *);
struct row row_next(const struct libmariadb *, MYSQL_RES *);

bool row_is_null(const struct row *, int field);

/*
 * False: not that, or NULL.  An integer from `low` to `high`; a boolean, 0 or 1; text that
 * fits and has no NUL in it ("" for NULL).
 */
bool row_integer(const struct row *, int field, int64_t low, int64_t high, int64_t *ret);
bool row_boolean(const struct row *, int field, bool *ret);
bool row_text(const struct row *, int field, char *out, size_t size);

/* Text as the result has it, up to its first NUL; NULL for NULL. */
const char *row_words(const struct row *, int field);

#endif
