/*
 * rights.h - whose procedures a session may call, and whose views it may read.
 *
 * A procedure with SQL SECURITY INVOKER can do, in the name of whoever calls it, all that
 * this one may; so can a function in a view.  Whoever may create routines in a database
 * can have called one of them dlock_take_2.  So a user that has rights beyond its database
 * (any right on *.*, on another database, or a role) uses nothing there unless
 *
 *  1. the procedures are an administrator's (SUPER) or its own, no table is a view, and
 *  2. nobody else may create or alter any of it, be it by writing the tables of the database
 *     mysql, in which procedures and rights are kept.
 *
 * Who has which rights only those see who may read the database mysql.  Others who have no
 * dangerous rights on *.* look at what is there alone: a procedure of somebody else's that
 * runs with the rights of its caller, or a view, is refused.
 *
 * An ordinary user pays no round trip for that: whether the question has to be asked is
 * told with the first answer of each session.
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

/* A statement: who we are, for what follows. */
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
