/* field.h - the fields of a result, checked: of its first row, mostly. */
#ifndef DLOCK_PG_FIELD_H
#define DLOCK_PG_FIELD_H

#include "lib.h"

/*
 * False: not that, or NULL.  An integer from `low` to `high`; a boolean; text that fits
 * ("" for NULL).
 */
bool field_integer(const struct pq *, const PGresult *, int field, int64_t low,
    int64_t high, int64_t *ret);
bool field_boolean(const struct pq *, const PGresult *, int field, bool *ret);
bool field_text(const struct pq *, const PGresult *, int field, char *out, size_t size);

/* The same of any row; text as the result has it: NULL for NULL. */
bool field_integer_in(const struct pq *, const PGresult *, int row, int field,
    int64_t low, int64_t high, int64_t *ret);
bool field_boolean_in(const struct pq *, const PGresult *, int row, int field, bool *ret);
const char *field_text_in(const struct pq *, const PGresult *, int row, int field);

#endif
