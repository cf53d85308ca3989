/*
 * mask.c - Goal of these tests: a password is found in a URL and blotted out, also where it
 * was not written as it must be, and nothing else is.
 */
#include "cmd/mask.h"
#include "cmd/params.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static void
passwords_are_blotted_out(void **state)
{
	static const struct {
		const char *url, *left;
	} rows[] = {
	    {"redis://u:pw@h", "redis://u:xx@h"},
	    {"redis://:p@h", "redis://:x@h"},
	    {"redis://u:12/3?a=b@h:1/0", "redis://u:xxxxxxxx@h:1/0"},
	    {"redis://u:a@b/c#d@h/0", "redis://u:xxxxxxx@h/0"},
	    {"redis://u:a b/c@h", "redis://u:xxxxx@h"},
	    {"redis+sentinel://:/w@a,b/m", "redis+sentinel://:xx@a,b/m"},
	    {"postgresql://u:5/w@h/d?password=pw", "postgresql://u:xxx@h/d?password=xx"},
	    {"host=h password='a b' user=u", "host=h password=xxxx' user=u"},
	    /* what is not understood */
	    {"redis://u:secret", "redis://xxxxxxxx"},
	    {"redis://h:1,u:secret/0", "redis://xxxxxxxxxxxxxx"},
	    {"redis:u:secret@h", "redis:xxxxxxxxxx"},
	    {"redis:/u:secret@h", "redis:xxxxxxxxxxx"},
	    {"etcds:secret", "etcds:xxxxxx"},
	    {"zks://u:pw@h1,h2/c", "zks://u:xx@h1,h2/c"},
	    {"zks:secret", "zks:xxxxxx"},
	    {"postgresql:///d?passWord=pw", "postgresql:///d?passWord=xx"},
	    {"host=h PASSWORD = pw", "host=h PASSWORD = xx"},
	};
	static const char *const clear[] = {"redis://h:6379/0", "redis://u@h/0",
	    "file:///srv/a:b@c", "postgresql://h:5432/d?user=me@realm", "zk://a:1,b:2/x",
	    "zks://a:1,b:2/x", "password-file=/run/p", "redis://[::1]:6379,h:1/0",
	    "redis://h:/0", "file:/srv/a:b", "redis+unix:///run/r.sock", "job:nightly",
	    "postgresql://%2Frun:5432/d"};

	(void)state;
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		char text[100];

		snprintf(text, sizeof text, "%s", rows[i].url);
		assert_true(mask_finds(text));
		mask_passwords(text);
		assert_string_equal(text, rows[i].left);
	}
	for (size_t i = 0; i < sizeof clear / sizeof *clear; i++)
		assert_false(mask_finds(clear[i]));
}

static void
a_url_in_a_sentence_ends_with_its_word(void **state)
{
	char text[] = "see http://ci:80/job or ask ann@corp, redis://u:p/w@h";
	char other[] = "redis://u:p/w@h or ask ann@corp";

	(void)state;
	mask_spoken(text);
	assert_string_equal(
	    text, "see http://ci:80/job or ask ann@corp, redis://u:xxx@h");
	mask_spoken(other);
	assert_string_equal(other, "redis://u:xxx@h or ask ann@corp");
}

static void
a_word_of_a_command_may_be_a_url_or_a_script(void **state)
{
	static const struct {
		const char *word, *left;
	} rows[] = {
	    {"host=db password='s3cret' user=u", "host=db password=xxxxxxx' user=u"},
	    {"redis://u:my secret@h/0", "redis://u:xxxxxxxxx@h/0"},
	    {"--url=amqp://u:my secret@h", "--url=amqp://u:xxxxxxxxx@h"},
	    {"curl http://u:pw@h/; curl http://v:pw@i/",
		"curl http://u:xx@h/; curl http://v:xx@i/"},
	    {"curl http://h:80/ | mail ann@corp", "curl http://h:80/ | mail ann@corp"},
	    {"redis:7", "redis:7"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		char text[100];

		snprintf(text, sizeof text, "%s", rows[i].word);
		mask_word(text, strlen(text), rows[i].word);
		assert_string_equal(text, rows[i].left);
	}
}

/* Also one that begins, or whose @ stands, behind the end of what is quoted. */
static void
a_quotation_has_no_password(void **state)
{
	char text[200], begin[100];

	(void)state;
	assert_string_equal(
	    text_brief("--url=redis://u:s3cret@h").text, "--url=redis://u:xxxxxx@h");
	for (size_t n = 0; n < 80; n++) {
		memset(begin, 'a', n);
		snprintf(text, sizeof text, "redis://%.*s:%s@h", (int)n, begin,
		    "0123456789012345678901234567890123456789");
		assert_null(strpbrk(text_brief(text).text, "0123456789"));
		assert_int_equal(
		    strncmp(text_brief(text).text, text, n < 51 ? 9 + n : 60), 0);
	}
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(passwords_are_blotted_out),
	    cmocka_unit_test(a_url_in_a_sentence_ends_with_its_word),
	    cmocka_unit_test(a_word_of_a_command_may_be_a_url_or_a_script),
	    cmocka_unit_test(a_quotation_has_no_password),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
