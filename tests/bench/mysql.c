/*
 * mysql.c - the least that a lock on MySQL or MariaDB costs: load libmariadb,
 * connect, write one row, delete it.
 *
 *	bench_mysql PORT KEY
 *
 * The table is made by who measures: probe (k varchar(64) PRIMARY KEY, owner text), in
 * the database app of the user app.
 */
#include <dlfcn.h>
#include <err.h>
#include <mysql.h>
#include <stdio.h>
#include <stdlib.h>

static struct {
	MYSQL *(STDCALL *init)(MYSQL *);
	MYSQL *(STDCALL *connect)(MYSQL *, const char *, const char *, const char *,
	    const char *, unsigned, const char *, unsigned long);
	int(STDCALL *query)(MYSQL *, const char *);
	const char *(STDCALL *error)(MYSQL *);
	void(STDCALL *close)(MYSQL *);
} my;

static void
load(void)
{
	void *lib = dlopen("libmariadb.so.3", RTLD_NOW | RTLD_LOCAL);

	if (!lib)
		errx(1, "%s", dlerror());
	*(void **)&my.init = dlsym(lib, "mysql_init");
	*(void **)&my.connect = dlsym(lib, "mysql_real_connect");
	*(void **)&my.query = dlsym(lib, "mysql_query");
	*(void **)&my.error = dlsym(lib, "mysql_error");
	*(void **)&my.close = dlsym(lib, "mysql_close");
}

static void
execute(MYSQL *m, const char *sql)
{
	if (my.query(m, sql))
		errx(1, "%s", my.error(m));
}

int
main(int argc, char **argv)
{
	char sql[200];
	MYSQL *m;

	if (argc != 3)
		errx(64, "usage: bench_mysql PORT KEY");
	load();
	m = my.init(NULL);
	if (!my.connect(
		m, "127.0.0.1", "app", NULL, "app", (unsigned)atoi(argv[1]), NULL, 0))
		errx(1, "%s", my.error(m));
	snprintf(sql, sizeof sql,
	    "INSERT INTO probe VALUES ('%s', 'me') ON DUPLICATE KEY UPDATE owner = 'me'",
	    argv[2]);
	execute(m, sql);
	snprintf(sql, sizeof sql, "DELETE FROM probe WHERE k = '%s'", argv[2]);
	execute(m, sql);
	my.close(m);
	return 0;
}
