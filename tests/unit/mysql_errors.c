/*
 * mysql_errors.c - Goal of these tests: each error that MariaDB, MySQL, what stands before them
 * and libmariadb know means what its user can do: wait (busy, full), change a setting, be given
 * a right, or name another server.
 */
#include "backends/mysql/errors.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

struct decided {
	enum rc rc;
	const char *numbers;
};

/* Those that decide something for a lock. */
static const struct decided server_rows[] = {
    {RC_DENIED,
	"1044 1045 1095 1129 1130 1131 1142 1143 1227 1370 1698 1820 1862 1873 3118 3955 4151"},
    {RC_CONFIG,
	"1036 1046 1048 1049 1054 1115 1119 1136 1153 1193 1194 1195 1197 1229 1231 1235 1238 "
	"1242 1251 1264 1267 1273 1275 1286 1289 1290 1292 1301 1318 1364 1366 1369 1406 1418 "
	"1419 1436 1442 1449 1456 1457 1524 1558 1644 1665 1690 1705 1712 1728 1792 1817 1836 "
	"1874 1877 1881 3159 3819 4025 8108"},
    {RC_PROTOCOL, "1043 1064 1149"},
    {RC_AGAIN, /* busy, full, lost, ended */
	"1020 1021 1040 1041 1047 1053 1062 1080 1105 1114 1135 1152 1158 1159 1160 1161 1180 "
	"1184 1203 1205 1206 1213 1226 1305 1317 1412 1461 1637 1927 1969 3024 3032 3058 3101 "
	"3168 3572 4031 9001 9005 9006"},
};

/*
 * All other numbers of MariaDB 10.11's list: of statements that dlock does not make, of
 * replication, of what is told and is no error.  One that comes all the same may pass.
 */
static const struct {
	unsigned first, last;
} others[] = {{1000, 1264}, {1266, 1616}, {1619, 1619}, {1621, 1637}, {1639, 1646},
    {1648, 1707}, {1709, 1869}, {1871, 1880}, {1900, 1982}, {2000, 2000}, {3000, 3060},
    {4000, 4113}, {4116, 4117}, {4119, 4182}, {4184, 4189}, {4191, 4192}};

/* libmariadb's: it reaches nobody, or understands nothing. */
static const struct decided library_rows[] = {
    {RC_PROTOCOL, "2007 2012 2027 2057 2068"},
    {RC_CONFIG, "2019 2026 2047 2049 2058 2059 5004 5005 5010 5012"},
    {RC_SYSTEM, "2008"},
    {RC_AGAIN,
	"2000 2001 2002 2003 2004 2005 2006 2009 2010 2011 2013 2014 2015 2016 2017 2018 2020 "
	"2030 2031 2034 2035 2036 2037 2038 2051 2052 2054 2055 2056 2060 2061 5000 5001 5002 "
	"5003 5006 5007 5008 5009 5011 5013 5014 5015 5016 5017 5018 5019 5020 5021 5022 5023 "
	"5024 5026"},
};

static enum rc
server_meaning(unsigned number)
{
	const struct sql_driver driver = {.meanings = errors_meanings};
	struct sql db = {.driver = &driver, .where = "there"};
	struct fault f;

	snprintf(db.error, sizeof db.error, "%u", number);
	return sql_refused(&db, "no", &f);
}

/* RC_OK: none. */
static enum rc
row_of(const struct decided *rows, size_t n, unsigned number)
{
	char text[12];

	snprintf(text, sizeof text, "%u", number);
	for (size_t i = 0; i < n; i++)
		if (strstr(rows[i].numbers, text))
			return rows[i].rc;
	return RC_OK;
}

#define ROW_OF(rows, number) row_of(rows, sizeof(rows) / sizeof *(rows), number)

static void
check_server(unsigned number)
{
	enum rc rc = ROW_OF(server_rows, number);

	for (size_t i = 0; rc == RC_OK && i < sizeof others / sizeof *others; i++)
		if (number >= others[i].first && number <= others[i].last)
			rc = RC_AGAIN;
	if (rc == RC_OK)
		fail_msg("%u has no row: decide what it means", number);
	if (server_meaning(number) != rc)
		fail_msg("%u: %s", number, fault_rc_name(server_meaning(number)));
}

static void
check_library(unsigned number)
{
	enum rc rc = ROW_OF(library_rows, number);

	if (rc == RC_OK)
		fail_msg("%u has no row: decide what it means", number);
	if (errors_of_library(number) != rc)
		fail_msg("%u: %s", number, fault_rc_name(errors_of_library(number)));
}

/* "#define ER_NAME 1000" and the like, of the headers that dlock is built with. */
static void
check_all(const char *file, const char *form, void (*check)(unsigned))
{
	static const char *const places[] = {"mariadb", "mysql"};
	char path[80], line[400], name[100];
	unsigned number;

	for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
		FILE *list;

		snprintf(path, sizeof path, "/usr/include/%s/%s", places[i], file);
		list = fopen(path, "r");
		while (list && fgets(line, sizeof line, list))
			if (sscanf(line, form, name, &number) == 2 &&
			    !strstr(name, "MIN_ERROR") && !strstr(name, "MAX_ERROR") &&
			    !strstr(name, "LAST_ERROR"))
				check(number);
		if (list)
			fclose(list);
	}
}

static void
each_number_of_a_server_means_what_was_decided(void **state)
{
	unsigned number;
	int n;

	(void)state;
	for (size_t i = 0; i < sizeof server_rows / sizeof *server_rows; i++)
		for (const char *at = server_rows[i].numbers;
		     sscanf(at, "%u%n", &number, &n) == 1; at += n)
			check_server(number);
	for (size_t i = 0; i < sizeof others / sizeof *others; i++)
		for (number = others[i].first; number <= others[i].last; number++)
			check_server(number);
	check_all("mysqld_error.h", "#define ER_%99s %u", check_server);
}

static void
each_number_of_the_library_means_what_was_decided(void **state)
{
	unsigned number;
	int n;

	(void)state;
	for (size_t i = 0; i < sizeof library_rows / sizeof *library_rows; i++)
		for (const char *at = library_rows[i].numbers;
		     sscanf(at, "%u%n", &number, &n) == 1; at += n)
			check_library(number);
	check_all("errmsg.h", "#define CR_%99s %u", check_library);
}

/* A member of Galera that others have overtaken within a procedure gives neither number nor words. */
static void
who_was_overtaken_in_a_cluster_tries_again_at_once(void **state)
{
	const struct sql_driver driver = {.failures = errors_failures};
	struct sql db = {.driver = &driver, .error = "0"};

	(void)state;
	assert_int_equal(server_meaning(0), RC_AGAIN);
	assert_true(sql_is_failure(&db, SQL_LOST_RACE));
	strcpy(db.error, "1040");
	assert_false(sql_is_failure(&db, SQL_LOST_RACE));
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(each_number_of_a_server_means_what_was_decided),
	    cmocka_unit_test(each_number_of_the_library_means_what_was_decided),
	    cmocka_unit_test(who_was_overtaken_in_a_cluster_tries_again_at_once),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
