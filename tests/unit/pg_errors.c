/*
 * pg_errors.c - Goal of these tests: each error that PostgreSQL knows means what its user can
 * do: wait (busy, full), change a setting, be given a right, or name another server.
 */
#include "backends/pg/errors.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

/* All of appendix A of its manual; and those that later versions have added. */
static const struct {
	enum rc rc;
	const char *states;
} rows[] = {
    {RC_AGAIN,
	"03000 08000 08003 08006 08001 08004 08007 08P01 09000 0B000 0F000 "
	"0F001 0L000 0LP01 0Z000 0Z002 20000 23505 24000 25000 25001 25002 "
	"25008 25003 25004 25005 25007 25P01 25P02 25P03 26000 27000 2B000 "
	"2BP01 2D000 2F000 2F005 2F002 2F003 2F004 34000 38000 38001 38002 "
	"38003 38004 39000 39001 39004 39P01 39P02 39P03 3B000 3B001 40000 "
	"40002 40001 40003 40P01 42883 42P05 53000 53100 53200 53300 53400 "
	"54000 54011 54023 55000 55006 55P03 55P04 57000 57014 57P01 57P02 "
	"57P03 57P04 57P05 58000 58030 58P01 58P02 72000 XX000 25P04"},
    {RC_DENIED, "28000 28P01 42501"},
    {RC_CONFIG,
	"0A000 0P000 21000 22000 2202E 22021 22008 22012 22005 2200B 22022 "
	"22015 2201E 22014 22016 2201F 2201G 22018 22007 22019 2200D 22025 "
	"22P06 22010 22023 22013 2201B 2201W 2201X 2202H 2202G 22009 2200C "
	"2200G 22004 22002 22003 2200H 22026 22001 22011 22027 22024 2200F "
	"22P01 22P02 22P03 22P04 22P05 2200L 2200M 2200N 2200S 2200T 22030 "
	"22031 22032 22033 22034 22035 22036 22037 22038 22039 2203A 2203B "
	"2203C 2203D 2203E 2203F 2203G 23000 23001 23502 23503 23514 23P01 "
	"25006 3D000 3F000 42000 42846 42803 42P20 42P19 42830 42602 42622 "
	"42939 42804 42P18 42P21 42P22 42809 428C9 42703 42P01 42P02 42701 "
	"42P03 42P04 42723 42P06 42P07 42712 42710 42702 42725 42P08 42P09 "
	"42P10 42611 42P11 42P12 42P13 42P14 42P15 42P16 42P17 44000 54001 "
	"55P02 F0000 F0001 HV000 HV005 HV002 HV010 HV021 HV024 HV007 HV008 "
	"HV004 HV006 HV091 HV00B HV00C HV00D HV090 HV00A HV009 HV014 HV001 "
	"HV00P HV00J HV00K HV00Q HV00R HV00L HV00M HV00N P0000 P0001 P0002 "
	"P0003 P0004 XX001 XX002"},
    {RC_PROTOCOL, "42601 42704"},
};

static enum rc
meaning(const char *state)
{
	const struct sql_driver driver = {.meanings = error_meanings};
	struct sql db = {.driver = &driver, .where = "there"};
	struct fault f;

	error_set(&db, state);
	return sql_refused(&db, "no", &f);
}

/* Fails unless there is exactly one. */
static enum rc
row_of(const char *state)
{
	enum rc rc = RC_OK;
	int n = 0;

	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
		for (const char *at = rows[i].states; (at = strstr(at, state)); at += 5) {
			rc = rows[i].rc;
			n++;
		}
	if (n != 1)
		fail_msg("%s has %d rows: decide what it means", state, n);
	return rc;
}

static void
check(const char *state)
{
	if (meaning(state) != row_of(state))
		fail_msg("%s: %s", state, fault_rc_name(meaning(state)));
}

static void
each_state_means_what_was_decided(void **state)
{
	char one[6] = "";

	(void)state;
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
		for (const char *at = rows[i].states; *at; at += at[5] ? 6 : 5) {
			memcpy(one, at, 5);
			check(one);
		}
}

/* "53100    E    ERRCODE_DISK_FULL", where PostgreSQL's own files are installed. */
static void
no_state_of_this_postgresql_lacks_a_row(void **state)
{
	char path[60], line[200], one[6], letter;

	(void)state;
	for (int version = 10; version < 40; version++) {
		FILE *list;

		snprintf(
		    path, sizeof path, "/usr/share/postgresql/%d/errcodes.txt", version);
		list = fopen(path, "r");
		while (list && fgets(line, sizeof line, list))
			if (sscanf(line, "%5[0-9A-Z] %c", one, &letter) == 2 &&
			    letter == 'E' && strlen(one) == 5)
				check(one);
		if (list)
			fclose(list);
	}
}

static void
what_nobody_has_foreseen_may_pass(void **state)
{
	static const char *const unknown[] = {"ZZ999", "57PZZ", "08ABC", "5Z000"};

	(void)state;
	for (size_t i = 0; i < sizeof unknown / sizeof *unknown; i++)
		assert_int_equal(meaning(unknown[i]), RC_AGAIN);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(each_state_means_what_was_decided),
	    cmocka_unit_test(no_state_of_this_postgresql_lacks_a_row),
	    cmocka_unit_test(what_nobody_has_foreseen_may_pass),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
