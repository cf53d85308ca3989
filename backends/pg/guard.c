/*
 * guard.c - see guard.h.
 *
 * The search path may be anybody's here, so every operator has its schema.  And
 * so may be the role in which the session began (ALTER DATABASE SET role), from
 * which a function steps back to the one that logged in: that one counts.
 */
#include "guard.h"

#define EQUALS " OPERATOR(pg_catalog.=) "

/*
 * In a new session this is what a start-up pays for the guard, 0.6 ms, most of it
 * for the view (there is no other way to CREATEROLE and the like).  So: no more
 * functions and casts than must be.
 */
const char guard_first[] =
    "SELECT /* dlock looks at the schema first, for this role has many rights */ "
    "r.rolconnlimit OPERATOR(pg_catalog./) 0 FROM pg_catalog.pg_roles r "
    "WHERE (r.rolsuper OR r.rolbypassrls OR r.rolcreaterole OR r.rolreplication OR r.rolname" EQUALS
    "ANY ('{pg_execute_server_program, pg_read_server_files, pg_write_server_files, pg_read_all_data, "
    "pg_write_all_data, pg_signal_backend, pg_maintain, pg_create_subscription}'::pg_catalog.name[])) "
    "AND pg_catalog.pg_has_role(session_user, r.oid, 'MEMBER')";

/* Whoever owns the schema or something in it, or may put something there. */
#define OWNERS                                                                                             \
	"SELECT n.nspowner FROM n UNION ALL "                                                              \
	"SELECT p.proowner FROM n JOIN pg_catalog.pg_proc p ON p.pronamespace" EQUALS "n.oid UNION ALL "   \
	"SELECT c.relowner FROM n JOIN pg_catalog.pg_class c ON c.relnamespace" EQUALS "n.oid UNION ALL "  \
	"SELECT t.typowner FROM n JOIN pg_catalog.pg_type t ON t.typnamespace" EQUALS "n.oid UNION ALL "   \
	"SELECT a.grantee FROM n, pg_catalog.aclexplode(n.nspacl) a WHERE a.privilege_type" EQUALS         \
	"'CREATE' UNION ALL "                                                                              \
	"SELECT a.grantee FROM n JOIN pg_catalog.pg_class c ON c.relnamespace" EQUALS "n.oid, "            \
	"pg_catalog.aclexplode(c.relacl) a WHERE a.privilege_type" EQUALS "'TRIGGER'"

const char guard_last[] =
    "WITH n AS (SELECT * FROM pg_catalog.pg_namespace s WHERE s.nspname" EQUALS "'dlock'), "
    "w(who) AS (" OWNERS ") "
    "SELECT CASE WHEN EXISTS (SELECT FROM n) THEN NOT EXISTS (SELECT FROM w WHERE NOT EXISTS (SELECT FROM pg_catalog.pg_roles r "
    "WHERE r.oid" EQUALS "w.who AND (r.rolsuper OR r.rolname" EQUALS "session_user))) END";
