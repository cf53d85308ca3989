/*
 * nearest.c - Goal of these tests: a typing error is understood, and a word of another
 * kind is not.
 */
#include "cmd/parse.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static void
typing_errors_are_understood(void **state)
{
	static const char *const known[] = {
	    "key", "wait", "nonblock", "ttl", "min-hold", "verbose", NULL};
	static const struct {
		const char *word, *meant;
	} rows[] = {
	    {"kye", "key"},
	    {"wiat", "wait"},
	    {"wati", "wait"},
	    {"WAIT", "wait"},
	    {"waits", "wait"},
	    {"non-block", "nonblock"},
	    {"minhold", "min-hold"},
	    {"MIN_HOLD", "min-hold"},
	    {"tll", "ttl"},
	    {"verb", "verbose"},
	    {"vrebsoe", "verbose"},
	    {"k", NULL},
	    {"", NULL},
	    {"x", NULL},
	    {"foo", NULL},
	    {"frobnicate", NULL},
	    {"colour", NULL},
	    /* the opposite of what it says is not meant */
	    {"nowait", "nonblock"},
	    {"no-wait", "nonblock"},
	    {"NO_WAIT", "nonblock"},
	    {"noverbose", NULL},
	    {"no-ttl", NULL},
	    {"nottl", NULL},
	    {"waitwaitwaitwaitwaitwaitwaitwaitwaitwaitwaitwait", NULL},
	    {"\xff\xff\xff", NULL},
	};

	(void)state;
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		const char *meant = parse_nearest(
		    rows[i].word, strlen(rows[i].word), known);

		if (rows[i].meant ? !meant || strcmp(meant, rows[i].meant) != 0
				  : meant != NULL)
			fail_msg("%s: %s", rows[i].word, meant ? meant : "nothing");
	}
	assert_string_equal(parse_nearest("wait=x", 4, known), "wait");
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(typing_errors_are_understood),
	};

	return cmocka_run_group_tests_name("nearest", tests, NULL, NULL);
}
