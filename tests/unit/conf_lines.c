/*
 * conf_lines.c - Goal of these tests: a line of a configuration file means what it says, or
 * is refused with its number; nothing of it is lost in silence.
 */
#include "cmd/conf.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static char told[20000];
static struct fault fault;
static int number;

/* "3 [section] name=value;" */
static enum rc
tell(void *ctx, const struct conf_line *l, struct fault *f)
{
	size_t used = strlen(told);

	(void)ctx;
	if (l->name && strcmp(l->name, "stop") == 0)
		return fault_set(f, RC_USAGE, "stopped");
	snprintf(told + used, sizeof told - used, "%d [%s] %s%s%s;", l->number,
	    l->section, l->name ? l->name : "", l->name ? "=" : "",
	    l->name ? l->value : "");
	return RC_OK;
}

static enum rc
read_bytes(const char *text, size_t n)
{
	char *copy = malloc(n + 1); /* exact, for the address sanitizer */
	enum rc rc;

	assert_non_null(copy);
	memcpy(copy, text, n);
	*told = '\0';
	fault = (struct fault){""};
	rc = conf_cut(copy, n, tell, NULL, &number, &fault);
	free(copy);
	return rc;
}

static void
lines_mean_what_they_say(void **state)
{
	static const struct {
		const char *text, *told;
	} rows[] = {
	    {"", ""},
	    {"\n\n", ""},
	    {"a=b", "1 [] a=b;"},
	    {"a = b c \n", "1 [] a=b c;"},
	    {"a: b\n", "1 [] a=b;"},
	    {"a =\n", "1 [] a=;"},
	    {"a = b\r\nc = d\r\n", "1 [] a=b;2 [] c=d;"},
	    {"\xef\xbb\xbf"
	     "a = b\n",
		"1 [] a=b;"},
	    /* a colon or an equals sign in a value divides nothing */
	    {"url = redis://u:p@h:1/2?x=y\n", "1 [] url=redis://u:p@h:1/2?x=y;"},
	    {"url: redis://h\n", "1 [] url=redis://h;"},
	    {"option = a=b:c\n", "1 [] option=a=b:c;"},
	    /* no comment without a blank before it */
	    {"url = redis://h/;x#y\n", "1 [] url=redis://h/;x#y;"},
	    {"# a = b\n; c = d\n  # e ; f\n", ""},
	    /* what is indented continues nothing */
	    {"a = b\n    c = d\n\te = f\n", "1 [] a=b;2 [] c=d;3 [] e=f;"},
	    {"[s]\na = b\n[t \"u v\"]\n[w]\nc = d",
		"1 [s] ;2 [s] a=b;3 [t \"u v\"] ;4 [w] ;5 [w] c=d;"},
	    {"  [s]  \n a = 'b'\n", "1 [s] ;2 [s] a='b';"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		if (read_bytes(rows[i].text, strlen(rows[i].text)) != RC_OK)
			fail_msg("%s: %s", rows[i].text, fault.text);
		assert_string_equal(told, rows[i].told);
	}
}

static void
other_lines_are_refused(void **state)
{
	static const struct {
		const char *text, *says;
		int number;
	} rows[] = {
	    {"a = b\nc\nd = e\n", "neither NAME = VALUE", 2},
	    {"a = b\n\n  continued\n", "neither NAME = VALUE", 3},
	    {"a = b ; c\n", "comment", 1},
	    {"a = b\t# c\n", "comment", 1},
	    {"a ;b = c\n", "comment", 1},
	    {"[s] a = b\n", "ends with its ]", 1},
	    {"[key \"[0-9]\"]\n", "no other one", 1},
	    {"\n[s\n", "ends with its ]", 2},
	    {"a = b\x1b\n", "control character", 1},
	    {"a = b\rc = d\n", "control character", 1},
	    {"a = b\vc\n", "control character", 1},
	    {"a = \x7f\n", "control character", 1},
	};

	(void)state;
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		if (read_bytes(rows[i].text, strlen(rows[i].text)) != RC_CONFIG ||
		    !strstr(fault.text, rows[i].says))
			fail_msg("%s: '%s'", rows[i].text, fault.text);
		assert_int_equal(number, rows[i].number);
	}
	/* nothing may stand behind a NUL that nobody sees */
	assert_int_equal(read_bytes("a = b\0c\n", 8), RC_CONFIG);
	assert_non_null(strstr(fault.text, "control character"));
	assert_int_equal(read_bytes("a = b\n\0\n", 8), RC_CONFIG);
	assert_int_equal(read_bytes("a = b\nstop = 1\nc\nd = e\n", 22), RC_USAGE);
	assert_int_equal(number, 2);
	assert_string_equal(told, "1 [] a=b;");
}

/* Long lines, sections and names are whole, up to the longest line that is taken. */
static void
nothing_is_cut_off(void **state)
{
	static char text[20000], wanted[20000];
	char name[300];

	(void)state;
	memset(name, 'n', sizeof name - 1);
	name[sizeof name - 1] = '\0';
	snprintf(
	    text, sizeof text, "[%s]\n%s = %4000d\n# %9000d\nc = d\n", name, name, 7, 7);
	snprintf(wanted, sizeof wanted, "1 [%s] ;2 [%s] %s=7;4 [%s] c=d;", name, name,
	    name, name);
	assert_int_equal(read_bytes(text, strlen(text)), RC_OK);
	assert_string_equal(told, wanted);
	for (char *c = text; *c; c++) /* the same without the blanks */
		if (*c == ' ' && c[-1] == ' ')
			*c = 'x';
	assert_int_equal(read_bytes(text, strlen(text)), RC_OK);
	assert_true(strlen(told) > 4000);
	snprintf(text, sizeof text, "a = b\nc = x%09000d\n", 7);
	assert_int_equal(read_bytes(text, strlen(text)), RC_CONFIG);
	assert_int_equal(number, 2);
	assert_non_null(strstr(fault.text, "longer than"));
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(lines_mean_what_they_say),
	    cmocka_unit_test(other_lines_are_refused),
	    cmocka_unit_test(nothing_is_cut_off),
	};

	return cmocka_run_group_tests_name("inifile", tests, NULL, NULL);
}
