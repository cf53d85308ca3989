/*
 * derive.h - the name of GET_LOCK that a program makes of a key.  They are the whole
 * server's, so most programs put the database in.
 */
#ifndef DLOCK_MYSQL_DERIVE_H
#define DLOCK_MYSQL_DERIVE_H

#include "backends/backend.h"

/* A prefix of its own with a key. */
enum { DERIVE_NAME_BYTES = 2 * KEY_BYTES };

/* Is this the name that -O derive= has for one? */
bool derive_mysql_knows(const char *tool);

/* Does it have one lock, whatever the key? */
bool derive_mysql_is_one(const char *tool);

/*
 * Does it ask the server how the database is called?  A server that has no capitals there
 * (lower_case_table_names) is reached by any spelling.
 */
bool derive_mysql_asks(const char *tool);

/* All their names, for people. */
extern const char derive_mysql_names[];

void derive_mysql_name(
    char out[DERIVE_NAME_BYTES], const char *tool, const char *key, const char *database);

#endif
