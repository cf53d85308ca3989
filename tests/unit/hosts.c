/*
 * hosts.c - Goal of these tests: of the hosts that libpq's lists name, those behind one
 * are found.
 */
#include "backends/pg/login.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void
is_list(const char *list, const char *expected)
{
	if (expected)
		assert_string_equal(list, expected);
	else
		assert_null(list);
}

static void
behind(const struct hosts *h, const char *host, const char *port,
    const struct hosts *expected)
{
	struct hosts left = {NULL, NULL, NULL};

	assert_true(hosts_behind(h, host, port, &left));
	is_list(left.host, expected->host);
	is_list(left.hostaddr, expected->hostaddr);
	is_list(left.port, expected->port);
}

static void
hosts_are_counted(void **state)
{
	(void)state;
	assert_int_equal(hosts_count(&(struct hosts){NULL, NULL, NULL}), 1);
	assert_int_equal(hosts_count(&(struct hosts){"a", NULL, "1,2"}), 1);
	assert_int_equal(hosts_count(&(struct hosts){"a,b,c", NULL, NULL}), 3);
	assert_int_equal(hosts_count(&(struct hosts){NULL, "1.1.1.1,2.2.2.2", NULL}), 2);
	assert_int_equal(hosts_count(&(struct hosts){",", NULL, NULL}), 2);
}

static void
names_addresses_and_ports_go_together(void **state)
{
	(void)state;
	behind(&(struct hosts){"a,b,c", NULL, NULL}, "a", "5432",
	    &(struct hosts){"b,c", NULL, NULL});
	behind(&(struct hosts){"a,b,c", NULL, "1,2,3"}, "b", "2",
	    &(struct hosts){"c", NULL, "3"});
	behind(&(struct hosts){"a,b", "1.1.1.1,2.2.2.2", "7"}, "a", "7",
	    &(struct hosts){"b", "2.2.2.2", NULL});
	behind(&(struct hosts){NULL, "1.1.1.1,2.2.2.2", NULL}, "1.1.1.1", "5432",
	    &(struct hosts){NULL, "2.2.2.2", NULL});
}

/* One machine, several servers: the port tells which. */
static void
the_same_host_twice(void **state)
{
	(void)state;
	behind(&(struct hosts){"h,h,h", NULL, "1,2,3"}, "h", "2",
	    &(struct hosts){"h", NULL, "3"});
	behind(&(struct hosts){"h,h", NULL, NULL}, "h", "5432",
	    &(struct hosts){"h", NULL, NULL});
}

static void
nothing_is_behind_the_last(void **state)
{
	struct hosts left;

	(void)state;
	assert_false(hosts_behind(&(struct hosts){NULL, NULL, NULL}, "a", "1", &left));
	assert_false(hosts_behind(&(struct hosts){"a", NULL, NULL}, "a", "1", &left));
	assert_false(hosts_behind(&(struct hosts){"a,b", NULL, NULL}, "b", "1", &left));
	assert_false(hosts_behind(&(struct hosts){"a,b", NULL, NULL}, "aa", "1", &left));
	assert_false(hosts_behind(&(struct hosts){"a,b", NULL, "1,2"}, "a", "11", &left));
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(hosts_are_counted),
	    cmocka_unit_test(names_addresses_and_ports_go_together),
	    cmocka_unit_test(the_same_host_twice),
	    cmocka_unit_test(nothing_is_behind_the_last),
	};

	return cmocka_run_group_tests_name("hosts", tests, NULL, NULL);
}
