/*
 * statement.h - statements with what the user named in them, as hexadecimal literals: there
 * is nothing to escape, and no character set that changes it.
 */
#ifndef DLOCK_MYSQL_STATEMENT_H
#define DLOCK_MYSQL_STATEMENT_H

#include "backends/sql/sql.h"

enum { STATEMENT_BYTES = 12288 }; /* a key, and some records, twice over */

struct statement {
	char text[STATEMENT_BYTES];
	size_t used;
	bool full; /* something did not fit: `text` is no statement */
};

/*
 * The version of schema.sql, and the end of the name of each of its procedures.  Whatever
 * procedure is changed, all get the next.
 */
#define SCHEMA_VERSION "3"

/*
 * The text of a question with its values in place of $1 and so on, up to $19.  It is the question's own,
 * where there are none.  NULL: it does not fit.
 */
const char *statement_write(struct statement *, const struct question *);

#endif
