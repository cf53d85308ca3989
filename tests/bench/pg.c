/*
 * pg.c - the least that a lock on PostgreSQL costs: load libpq, connect,
 * write one row, delete it.
 *
 *	bench_pg CONNINFO KEY
 *
 * The table is made by who measures: probe (key text PRIMARY KEY, owner text).
 */
#include <err.h>
#include <libpq-fe.h>

static void
execute(PGconn *c, const char *sql, const char *key)
{
	PGresult *result = PQexecParams(c, sql, 1, NULL, &key, NULL, NULL, 0);

	if (PQresultStatus(result) != PGRES_COMMAND_OK)
		errx(1, "%s", PQerrorMessage(c));
	PQclear(result);
}

int
main(int argc, char **argv)
{
	PGconn *c;

	if (argc != 3)
		errx(64, "usage: bench_pg CONNINFO KEY");
	c = PQconnectdb(argv[1]);
	if (PQstatus(c) != CONNECTION_OK)
		errx(1, "%s", PQerrorMessage(c));
	execute(c,
	    "INSERT INTO probe VALUES ($1, 'me') ON CONFLICT (key) DO UPDATE SET owner = excluded.owner",
	    argv[2]);
	execute(c, "DELETE FROM probe WHERE key = $1", argv[2]);
	PQfinish(c);
	return 0;
}
