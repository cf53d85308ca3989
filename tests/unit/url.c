/*
 * unit url.c - Goal of these tests: every URL falls into the right parts, or is
 * refused, and no part lies outside the text.
 */
#include "backends/common/url.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static const char *
text_of(const struct url_part *p)
{
	static char texts[8][64];
	static int i;
	char *text = texts[i++ % 8];

	snprintf(text, sizeof texts[0], p->at ? "%.*s" : "-", (int)p->n, p->at);
	return text;
}

static void
good_urls(void **state)
{
	static const struct {
		const char *url, *scheme, *user, *password, *hosts, *path, *query;
	} rows[] = {
	    {"a://h", "a", "-", "-", "h", "", "-"},
	    {"a://", "a", "-", "-", "", "", "-"},
	    {"a:///p", "a", "-", "-", "", "/p", "-"},
	    {"a+b://h:1,i/p/q?x=1", "a+b", "-", "-", "h:1,i", "/p/q", "x=1"},
	    {"a://h?", "a", "-", "-", "h", "", ""},
	    {"a://u@h", "a", "u", "-", "h", "", "-"},
	    {"a://:p@h", "a", "", "p", "h", "", "-"},
	    {"a://u:p:q@r@h/", "a", "u", "p:q@r", "h", "/", "-"},
	    {"a://[::1]:7/", "a", "-", "-", "[::1]:7", "/", "-"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		struct url u;

		assert_null(url_cut(&u, rows[i].url));
		assert_string_equal(text_of(&u.scheme), rows[i].scheme);
		assert_string_equal(text_of(&u.user), rows[i].user);
		assert_string_equal(text_of(&u.password), rows[i].password);
		assert_string_equal(text_of(&u.hosts), rows[i].hosts);
		assert_string_equal(text_of(&u.path), rows[i].path);
		assert_string_equal(text_of(&u.query), rows[i].query);
	}
}

static void
wrong_urls(void **state)
{
	static const char *const rows[] = {"", "a", "a:", "a:/", "a:h", "a/b://h",
	    "a?b://h", "a://h#x", "a://h/p#", "a://h?q#",
	    /* an unescaped / ? or # of a password */
	    "a://u:p/w@h", "a://u:1/2?x=y@h:6379/0", "a://u:p?w@h", "a://u:p#w@h",
	    "a://u:@/w@h", "a://h/@"};
	struct url u;

	(void)state;
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
		assert_non_null(url_cut(&u, rows[i]));
}

/* Some schemes take it all the same. */
static void
a_path_without_slashes_before_it(void **state)
{
	struct url u;

	(void)state;
	assert_non_null(url_cut(&u, "file:/a/b?c"));
	assert_string_equal(text_of(&u.path), "/a/b");
	assert_non_null(url_cut(&u, "a:h/b"));
	assert_string_equal(text_of(&u.path), "-");
	assert_string_equal(text_of(&u.hosts), "-");
}

static void
lists(void **state)
{
	struct url_part list = {"a,,b", 4}, one = {"x", 1}, none = {"", 0};
	struct url_part p;

	(void)state;
	p = url_part_first(&list);
	assert_true(url_part_is(&p, "a"));
	p = url_part_first(&list);
	assert_true(url_part_is(&p, ""));
	p = url_part_first(&list);
	assert_true(url_part_is(&p, "b") && !list.at);
	p = url_part_first(&one);
	assert_true(url_part_is(&p, "x") && !one.at);
	p = url_part_first(&none);
	assert_true(url_part_is(&p, "") && !none.at);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(good_urls),
	    cmocka_unit_test(wrong_urls),
	    cmocka_unit_test(a_path_without_slashes_before_it),
	    cmocka_unit_test(lists),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
