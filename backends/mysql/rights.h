/*
 * rights.h - whether a session may call the procedures of a database, and read its tables.
 *
 * A procedure with SQL SECURITY INVOKER can do, in the name of its caller, all that the
 * caller may; so can a function in a view.  Any user with the right to create routines in a
 * database can call one of them dlock_take_3.  So a user that has rights beyond its database
 * (any right on *.*, on another database, or a role) uses nothing there unless
 *
 *  1. the procedures are an administrator's (SUPER) or its own, no table is a view, and
 *  2. nobody else may create or alter any of it, be it by writing the tables of the database
 *     mysql, in which procedures and rights are kept.
 *
 * Only a user who may read the database mysql sees the rights of others.  One who may not,
 * and has no dangerous right on *.*, looks at what is there alone: it refuses a view, and
 * a procedure of somebody else's that runs with the rights of its caller.
 *
 * An ordinary user pays no round trip for that: the first answer of each session says
 * whether the question has to be asked.
 */
#ifndef DLOCK_MYSQL_RIGHTS_H
#define DLOCK_MYSQL_RIGHTS_H

#include "backends/sql/sql.h"

/* An account as information_schema names grantees. */
#define RIGHTS_GRANTEE(account) \
	"CAST(CONCAT('''', LEFT(" account ", CHAR_LENGTH(" account \
	") - CHAR_LENGTH(SUBSTRING_INDEX(" account ", '@', -1)) - 1), '''@''', " \
	"SUBSTRING_INDEX(" account ", '@', -1), '''') AS BINARY)"
#define RIGHTS_IS_ME "CAST(grantee AS BINARY) = @dlock_me"

/* A statement: the name of our user, for what follows. */
#define RIGHTS_WHO "SET @dlock_me = " RIGHTS_GRANTEE("CURRENT_USER()")

/* An expression: has our user rights beyond the database? */
#define RIGHTS_ELSEWHERE(kind, schema) \
	"OR EXISTS (SELECT 1 FROM information_schema." kind \
	"_privileges WHERE " RIGHTS_IS_ME " AND NOT " schema " <=> DATABASE()) "
#define RIGHTS_IS_NEEDED \
	"(COALESCE(CURRENT_ROLE(), 'NONE') <> 'NONE' " \
	"OR EXISTS (SELECT 1 FROM information_schema.user_privileges WHERE " RIGHTS_IS_ME \
	" AND privilege_type <> 'USAGE') " RIGHTS_ELSEWHERE( \
	    "schema", "REPLACE(table_schema, '\\\\', '')") \
	    RIGHTS_ELSEWHERE("table", "table_schema") \
		RIGHTS_ELSEWHERE("column", "table_schema") ")"

/* Asks then, on the session there is.  RC_CONFIG: nothing there may be used. */
enum rc rights_check(struct sql *, instant until, struct fault *);

#endif
