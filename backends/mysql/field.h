/* field.h - the rows of a result. */
#ifndef DLOCK_MYSQL_FIELD_H
#define DLOCK_MYSQL_FIELD_H

#include "lib.h"

#include "backends/sql/row.h"

/* The first row; and the next one. */
struct row row_first(const struct libmariadb *, MYSQL_RES *);
struct row row_next(const struct libmariadb *, MYSQL_RES *);

#endif
