/*
 * rights.c - looks whether others could have put something into the database.
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
#include "mysql.h"

/* An account as information_schema names grantees. */
#define GRANTEE(account) \
	"CAST(CONCAT('''', LEFT(" account ", CHAR_LENGTH(" account \
	") - CHAR_LENGTH(SUBSTRING_INDEX(" account ", '@', -1)) - 1), '''@''', " \
	"SUBSTRING_INDEX(" account ", '@', -1), '''') AS BINARY)"

const char rights_who[] = "SET @dlock_me = " GRANTEE("CURRENT_USER()");

#define ELSEWHERE(kind, schema) \
	"OR EXISTS (SELECT 1 FROM information_schema." kind \
	"_privileges WHERE " RIGHTS_IS_ME " AND NOT " schema " <=> DATABASE()) "
const char rights_is_needed[] =
    "(COALESCE(CURRENT_ROLE(), 'NONE') <> 'NONE' "
    "OR EXISTS (SELECT 1 FROM information_schema.user_privileges WHERE " RIGHTS_IS_ME
    " AND privilege_type <> 'USAGE') " ELSEWHERE(
	"schema", "REPLACE(table_schema, '\\\\', '')") ELSEWHERE("table", "table_schema")
	ELSEWHERE("column", "table_schema") ")";

/* Of dlock's names; the database is chosen. */
#define OURS(kind) kind "_schema = DATABASE() AND " kind "_name LIKE 'dlock\\\\_%'"

/* A right by which something can be put there, or exchanged. */
#define PLANTS \
	"privilege_type IN ('CREATE ROUTINE', 'ALTER ROUTINE', 'CREATE VIEW', 'CREATE', " \
	"'ALTER', 'DROP')"

/* One by which whatever is wanted can be written into the tables of the database mysql. */
#define WRITES "privilege_type IN ('INSERT', 'UPDATE')"
#define KEPT_TABLES \
	"('proc', 'procs_priv', 'user', 'global_priv', 'db', 'tables_priv', 'columns_priv', " \
	"'roles_mapping', 'proxies_priv')"

/* The makers of procedures, and those who may put something there. */
#define OWNERS \
	"SELECT " GRANTEE("definer") " AS who FROM information_schema.routines WHERE " OURS( \
	    "routine") " UNION ALL SELECT CAST(grantee AS BINARY) FROM information_schema.user_privileges " \
		       "WHERE " PLANTS " OR " WRITES \
		       " UNION ALL SELECT CAST(grantee AS BINARY) FROM information_schema.schema_privileges " \
		       "WHERE DATABASE() LIKE table_schema AND " PLANTS \
		       " OR 'mysql' LIKE table_schema AND (" PLANTS " OR " WRITES ")" \
		       " UNION ALL SELECT CAST(grantee AS BINARY) FROM information_schema.table_privileges " \
		       "WHERE " OURS( \
			   "table") " AND " PLANTS \
				    " OR table_schema = 'mysql' AND table_name IN " KEPT_TABLES \
				    " AND (" PLANTS " OR " WRITES ")"

#define IS_OWNED_BY_OTHERS \
	"EXISTS (SELECT 1 FROM (" OWNERS ") o WHERE o.who <> @dlock_me AND NOT EXISTS (" \
	"SELECT 1 FROM information_schema.user_privileges a " \
	"WHERE CAST(a.grantee AS BINARY) = o.who AND a.privilege_type = 'SUPER'))"

#define HAS_VIEW \
	"EXISTS (SELECT 1 FROM information_schema.tables WHERE " OURS( \
	    "table") " AND table_type NOT IN ('BASE TABLE', 'SYSTEM VERSIONED'))"

/* For a user that does not see the rights of others. */
#define HAS_INVOKER \
	"EXISTS (SELECT 1 FROM information_schema.routines WHERE " OURS( \
	    "routine") " AND security_type <> 'DEFINER' AND " GRANTEE("definer") " <> @dlock_me)"
#define HAS_DANGEROUS \
	"EXISTS (SELECT 1 FROM information_schema.user_privileges WHERE " RIGHTS_IS_ME \
	" AND privilege_type NOT IN ('USAGE', 'PROCESS', 'SHOW DATABASES', " \
	"'CONNECTION ADMIN', 'CONNECTION_ADMIN', 'REPLICATION CLIENT', 'BINLOG MONITOR', " \
	"'SLAVE MONITOR', 'REPLICA MONITOR'))"
#define SEES_RIGHTS \
	"EXISTS (SELECT 1 FROM information_schema.user_privileges WHERE NOT " RIGHTS_IS_ME \
	")"

/* Two booleans: may such a user use what is there, and does it see the rights of others? */
static const char inspect_sql[] =
    "SELECT /* dlock looks at the database first, for this user has many rights */ "
    "DATABASE() IS NULL OR (NOT " HAS_VIEW " AND CASE WHEN " SEES_RIGHTS
    " THEN NOT " IS_OWNED_BY_OTHERS " ELSE NOT " HAS_INVOKER " AND NOT " HAS_DANGEROUS
    " END), " SEES_RIGHTS;

/*
 * The same for rights on *.* of MariaDB's roles, which information_schema does not list.
 * A user that sees the rights of others may read this.
 */
static const char inspect_roles_sql[] =
    "SELECT DATABASE() IS NULL OR NOT EXISTS (SELECT 1 FROM mysql.user WHERE is_role = 'Y' "
    "AND Super_priv <> 'Y' AND 'Y' IN (Create_routine_priv, Alter_routine_priv, "
    "Create_view_priv, Create_priv, Alter_priv, Drop_priv, Insert_priv, Update_priv)), TRUE";

/* Asks such a question.  RC_OK: our user may go on; *sees: it sees the rights of others. */
static enum rc
ask_of_rights(struct sql *db, const char *sql, bool *sees, instant until, struct fault *f)
{
	const struct question q = {.text = sql, .fields = 2};
	struct answer a = {.db = NULL};
	bool fine;
	enum rc rc = sql_exec(db, &q, until, &a, f);

	if (rc != RC_OK)
		return rc;
	if (!row_boolean(&a.row, 0, &fine) || !row_boolean(&a.row, 1, sees))
		rc = fault_set(
		    f, RC_PROTOCOL, "%s gave an answer that makes no sense", db->where);
	else if (!fine)
		rc = fault_set(f, RC_CONFIG,
		    "%s: this user has rights beyond the database, and procedures or views that others put into the database could use them: use an ordinary user, or a database of its own",
		    db->where);
	answer_drop(&a);
	return rc;
}

enum rc
rights_check(struct sql *db, instant until, struct fault *f)
{
	bool sees = false;
	enum rc rc = ask_of_rights(db, inspect_sql, &sees, until, f);

	if (rc == RC_OK && sees && mysql_const(db)->session.server.is_mariadb)
		rc = ask_of_rights(db, inspect_roles_sql, &sees, until, f);
	return rc;
}
