/* field.h - the rows of a result. */
#ifndef DLOCK_PG_FIELD_H
#define DLOCK_PG_FIELD_H

#include "lib.h"

#include "backends/sql/row.h"

enum { FIELDS_MAX = 24 }; /* no question of ours has an answer with more */

/* Room for what a struct row points to. */
struct fields {
	char *at[FIELDS_MAX];
	unsigned long lengths[FIELDS_MAX];
};

/* Row `n` of a result, as long as that lives, and *room. */
struct row field_row(const struct pq *, const PGresult *, int n, struct fields *room);

/* Single fields of its first row, as row_integer() and row_boolean() read them. */
bool field_integer(const struct pq *, const PGresult *, int field, int64_t low,
    int64_t high, int64_t *ret);
bool field_boolean(const struct pq *, const PGresult *, int field, bool *ret);

#endif
