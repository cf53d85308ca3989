/*
 * sql.h - statements with what the user named in them, as hexadecimal literals: there is
 * nothing to escape, and no character set that changes it.
 */
#ifndef DLOCK_MYSQL_SQL_H
#define DLOCK_MYSQL_SQL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { SQL_BYTES = 12288 }; /* a key, and some records, twice over */

struct sql {
	char text[SQL_BYTES];
	size_t used;
	bool full; /* something did not fit: `text` is no statement */
};

/* One argument. */
struct sql_value {
	enum { SQL_BYTES_OF, SQL_NUMBER } type;
	const char *bytes; /* NULL: NULL */
	int64_t number;
};

#define SQL_TEXT(s) ((struct sql_value){.type = SQL_BYTES_OF, .bytes = (s)})
#define SQL_INT(n) ((struct sql_value){.type = SQL_NUMBER, .number = (n)})

/*
 * The version of schema.sql, and the end of the name of each of its procedures.  Whatever
 * procedure is changed, all get the next.
 */
#define SQL_SCHEMA_VERSION "2"
#define SQL_PROCEDURE(name) "dlock_" name "_" SQL_SCHEMA_VERSION

/*
 * CALL SQL_PROCEDURE(name)(values): the statement's text, or NULL where it does not fit.
 */
const char *sql_call(struct sql *, const char *name, const struct sql_value *, size_t n);

/* The same with any text: each ? of `format` becomes the next value. */
const char *sql_write(
    struct sql *, const char *format, const struct sql_value *, size_t n);

/* Both with the values written out. */
#define SQL_VALUES(...) \
	(const struct sql_value[]){__VA_ARGS__}, \
	    sizeof((const struct sql_value[]){__VA_ARGS__}) / sizeof(struct sql_value)

#endif
