/*
 * json.c - Goal of these tests: what dlock writes as JSON is JSON, whatever goes in
 * and however small the buffer.
 */
#include "cmd/json.h"
#include "cmd/record.h"
#include "cmd/text.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>
#include <jansson.h>

static json_t *
parsed(const char *text)
{
	json_error_t error;
	json_t *root = json_loads(text, JSON_REJECT_DUPLICATES, &error);

	if (!root || !json_is_object(root))
		fail_msg("%s: %s", text, error.text);
	return root;
}

static const char *
member(const json_t *root, const char *name)
{
	return json_string_value(json_object_get(root, name));
}

static void
values_come_back(void **state)
{
	static const char *const rows[] = {"", "plain", "a \"quoted\" \\ word",
	    "tab\tnewline\nescape\x1b[0m", "\x01\x1f\x7f",
	    "\xc3\xbc \xf0\x9f\x94\x92 \xe2\x80\xae", "\xc2\x9b", "</script>",
	    "{\"who\":\"x\"}"};
	char out[512];

	(void)state;
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		struct json j;
		json_t *root;

		json_begin(&j, out, sizeof out);
		json_put_string(&j, "text", rows[i]);
		json_put_number(&j, "least", INT64_MIN);
		json_put_string(&j, "absent", NULL);
		json_put_number(&j, "most", INT64_MAX);
		json_end(&j);
		root = parsed(out);
		assert_string_equal(member(root, "text"), rows[i]);
		assert_true(
		    json_integer_value(json_object_get(root, "least")) == INT64_MIN);
		assert_true(
		    json_integer_value(json_object_get(root, "most")) == INT64_MAX);
		assert_int_equal(json_object_size(root), 3);
		/* one line, or a reader of --status-fd would see two */
		assert_null(strchr(out, '\n'));
		json_decref(root);
	}
}

static void
nothing_is_an_object_too(void **state)
{
	char out[3];
	struct json j;

	(void)state;
	json_begin(&j, out, sizeof out);
	json_put_string(&j, "a", "b");
	json_put_number(&j, "c", 1);
	json_end(&j);
	assert_string_equal(out, "{}");
}

static void
what_is_no_utf8_is_replaced(void **state)
{
	char out[64];
	struct json j;
	json_t *root;

	(void)state;
	json_begin(&j, out, sizeof out);
	json_put_string(&j, "a", "x\xff\xc0\xafy");
	json_end(&j);
	root = parsed(out);
	assert_string_equal(member(root, "a"), "x\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbdy");
	json_decref(root);
}

/* Each member is there as a whole or not at all. */
static void
too_small_a_buffer_leaves_members_out(void **state)
{
	(void)state;
	for (size_t size = 3; size < 80; size++) {
		char out[80];
		struct json j;
		json_t *root;

		memset(out, 'X', sizeof out);
		json_begin(&j, out, size);
		json_put_string(&j, "first", "\x1b\"\\ \xc3\xbc");
		json_put_number(&j, "second", -1234567890123);
		json_put_string(&j, "third", "3");
		json_end(&j);
		assert_in_range(strlen(out), 2, size - 1);
		for (size_t i = size; i < sizeof out; i++)
			assert_int_equal(out[i], 'X');
		root = parsed(out);
		if (member(root, "first"))
			assert_string_equal(member(root, "first"), "\x1b\"\\ \xc3\xbc");
		if (json_object_get(root, "second"))
			assert_true(json_integer_value(json_object_get(root, "second")) ==
			    -1234567890123);
		if (member(root, "third"))
			assert_string_equal(member(root, "third"), "3");
		json_decref(root);
	}
}

static void
random_bytes_give_json(void **state)
{
	(void)state;
	srand(4);
	for (int round = 0; round < 50000; round++) {
		char text[101], out[300];
		size_t n = rand() % sizeof text;
		struct json j;

		for (size_t i = 0; i < n; i++)
			text[i] = (char)(1 + rand() % 255);
		text[n] = '\0';
		json_begin(&j, out, 3 + rand() % (sizeof out - 3));
		json_put_string(&j, "a", text);
		json_put_string(&j, text, "b");
		json_end(&j);
		json_decref(parsed(out));
	}
}

/* ---- the holder record ---- */

static void
record_tells_who_we_are(void **state)
{
	char *argv[] = {"/usr/local/bin/deploy.sh", "--password=secret", NULL};
	struct params p = {.command = {.argv = argv},
	    .show = {.who = "alice", .why = "release \"4.2\""}};
	char record[RECORD_BYTES], text[400], host[256];
	json_t *root;

	(void)state;
	record_write(record, &p, getpid(), "0123456789abcdef0123456789abcdef");
	root = parsed(record);
	assert_string_equal(member(root, "who"), "alice");
	assert_string_equal(member(root, "why"), "release \"4.2\"");
	/* arguments may hold secrets */
	assert_string_equal(member(root, "command"), "deploy.sh");
	assert_null(strstr(record, "secret"));
	assert_int_equal(json_integer_value(json_object_get(root, "pid")), getpid());
	assert_non_null(member(root, "host"));
	assert_non_null(json_object_get(root, "since"));
	json_decref(root);
	record_describe(record, text, sizeof text);
	gethostname(host, sizeof host);
	snprintf(record, sizeof record,
	    "alice (pid %d on %s, running deploy.sh) \"release \\\"4.2\\\"\"",
	    (int)getpid(), host);
	assert_string_equal(text, record);
}

/* As a shell has them; no control characters, no passwords of URLs; cut off where the record ends. */
static void
arguments_are_shown_where_that_is_asked_for(void **state)
{
	static char long_one[5000];
	char *argv[] = {"/bin/deploy.sh", "prod", "a'b", "", "x y", "\x1b\n\xff",
	    "redis://u:secret@h", long_one, "behind", NULL};
	char *alone[] = {"true", NULL};
	struct params p = {
	    .command = {.argv = argv}, .show = {.arguments = true, .who = "a"}};
	char record[RECORD_BYTES], text[700];
	const char *rest;
	struct record r;
	json_t *root;

	(void)state;
	memset(long_one, 'z', sizeof long_one - 1);
	for (size_t n = 0; n < sizeof long_one; n += n < 1100 ? 1 : 977) {
		long_one[n] = '\0';
		record_write(record, &p, getpid(), "0123456789abcdef0123456789abcdef");
		root = record_read(&r, record);
		assert_non_null(root);
		assert_in_range(strlen(record), 100, RECORD_BYTES - 1);
		assert_non_null(strstr(
		    r.arguments, "prod 'a'\\''b' '' 'x y' ' \\xFF' redis://u:xxxxxx@h"));
		rest = r.arguments + strlen(r.arguments);
		if (strcmp(rest - 3, "...") == 0)
			assert_in_range(
			    strlen(record), RECORD_BYTES - 20, RECORD_BYTES - 1);
		else
			assert_string_equal(rest - 8, n ? "z behind" : "' behind");
		assert_string_equal(r.command, "deploy.sh");
		json_decref(root);
		long_one[n] = 'z';
	}
	record_describe(record, text, sizeof text);
	assert_non_null(strstr(text, ", running \"deploy.sh prod 'a'"));
	p.command.argv = alone;
	record_write(record, &p, getpid(), NULL);
	assert_null(strstr(record, "arguments"));
	p.command.argv = argv;
	record_write(record, &p, 0, NULL); /* of a person */
	assert_null(strstr(record, "arguments"));
	p.show.arguments = false;
	record_write(record, &p, getpid(), NULL);
	assert_null(strstr(record, "prod"));
}

static void
long_words_leave_a_record(void **state)
{
	static char name[5000], who[201], why[201];
	char *argv[] = {name, NULL};
	struct params p = {.command = {.argv = argv}, .show = {.who = who, .why = why}};
	char record[RECORD_BYTES];

	(void)state;
	memset(name, '\x1b', sizeof name - 1);
	memset(who, '"', sizeof who - 1);
	memset(why, '\\', sizeof why - 1);
	for (size_t n = 1; n < sizeof name; n += 97) {
		name[n] = '\0';
		record_write(record, &p, getpid(), "0123456789abcdef0123456789abcdef");
		assert_in_range(strlen(record), 2, RECORD_BYTES - 1);
		json_decref(parsed(record));
		name[n] = '\x1b';
	}
}

static void
hostile_records_are_described(void **state)
{
	static const struct {
		const char *record, *text;
	} rows[] = {
	    {"", "somebody"},
	    {"x", "somebody"},
	    {"[]", "somebody"},
	    {"null", "somebody"},
	    {"{}", "somebody"},
	    {"{\"who\":", "somebody"},
	    {"{\"who\":\"a\",\"who\":\"b\"}", "somebody"},
	    {"{\"who\":\"a\\u0000b\"}", "somebody"},
	    {"{\"who\":\"\xff\"}", "somebody"},
	    {"{\"who\":\"\"}", "somebody"},
	    {"{\"who\":7,\"command\":[],\"why\":{}}", "somebody"},
	    {"{\"who\":\"eve\"}", "eve"},
	    {"{\"who\":\"eve\",\"pid\":7}", "eve (pid 7)"},
	    {"{\"who\":\"eve\",\"pid\":\"7\",\"command\":\"x\"}", "eve"},
	    {"{\"who\":\"eve\",\"pid\":-1,\"command\":\"x\"}", "eve"},
	    {"{\"who\":\"eve\",\"pid\":0,\"command\":\"x\"}", "eve"},
	    {"{\"who\":\"eve\",\"pid\":99999999999999999999}", "somebody"},
	    {"{\"pid\":7,\"command\":\"x\",\"why\":\"y\"}",
		"somebody (pid 7, running x) \"y\""},
	    {"{\"who\":\"eve\",\"pid\":7,\"host\":\"h\",\"command\":\"x\"}",
		"eve (pid 7 on h, running x)"},
	    {"{\"who\":\"eve\",\"pid\":7,\"host\":\"\",\"command\":\"\"}", "eve (pid 7)"},
	    {"{\"who\":\"eve\",\"pid\":7,\"host\":\"h\\u001b[2J\",\"command\":\"\\n\"}",
		"eve (pid 7 on h\\x1B[2J, running \\x0A)"},
	    /* an imitation of other words stays within its quotes */
	    {"{\"who\":\"al ice\",\"pid\":7,\"command\":\"a b\"}",
		"'al ice' (pid 7, running 'a b')"},
	    {"{\"who\":\"root' (pid 1 on '\"}", "'root\\' (pid 1 on \\''"},
	    {"{\"who\":\"root\xc2\xa0(pid\xe3\x80\x80"
	     "1)\"}",
		"'root\xc2\xa0(pid\xe3\x80\x80"
		"1)'"},
	    {"{\"who\":\"eve\",\"why\":\"x\\\" for 3s; y\"}", "eve \"x\\\" for 3s; y\""},
	    {"{\"who\":\"\\u001b[2J\\n\\u202e\\u009b\"}", "\\x1B[2J\\x0A\\u202E\\x9B"},
	    {"{\"who\":\"%s%n\"}", "%s%n"},
	};
	char text[400];

	(void)state;
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		record_describe(rows[i].record, text, sizeof text);
		assert_string_equal(text, rows[i].text);
	}
}

static void
arrays_come_back_or_are_left_out(void **state)
{
	const char *const words[] = {"a", "b\"\n", "\xff"};
	char text[100];
	struct json j;

	(void)state;
	for (size_t size = 3; size < sizeof text; size++) {
		json_begin(&j, text, size);
		json_put_strings(&j, "keys", words, 3);
		json_end(&j);
		assert_string_equal(text,
		    size < 36 ? "{}" : "{\"keys\":[\"a\",\"b\\\"\\u000A\",\"\\uFFFD\"]}");
	}
	json_begin(&j, text, sizeof text);
	json_put_strings(&j, "none", words, 0);
	json_end(&j);
	assert_string_equal(text, "{\"none\":[]}");
}

static void
descriptions_fit(void **state)
{
	static char long_words[3000], record[10000];
	char text[400];

	(void)state;
	memset(long_words, 'x', sizeof long_words - 1);
	snprintf(record, sizeof record,
	    "{\"who\":\"%s\",\"pid\":7,\"command\":\"%s\",\"why\":\"%s\"}", long_words,
	    long_words, long_words);
	for (size_t size = 1; size < sizeof text; size++) {
		memset(text, 'X', sizeof text);
		record_describe(record, text, size);
		assert_in_range(strlen(text), 0, size - 1);
		for (size_t i = size; i < sizeof text; i++)
			assert_int_equal(text[i], 'X');
	}
	record_describe(record, text, sizeof text);
	assert_non_null(strstr(text, "..."));   /* what is cut off says so */
	memset(record, '[', sizeof record - 1); /* nested ten thousand deep */
	record_describe(record, text, sizeof text);
	assert_string_equal(text, "somebody");
}

/* However JSON writes it, and however an echo does within that. */
static void
no_record_shows_the_secret(void **state)
{
	static const char *const texts[] = {"a%b\\\\ c", "\\u0061\\u0025b\\u005c c",
	    "a%25b%5C%20c", "\\\\x61%25\\\\x62\\\\x5c c", "a%b\\\\\\\\ c"};
	char text[200];

	(void)state;
	for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
		snprintf(text, sizeof text, "{\"who\":\"<%s>\"}", texts[i]);
		record_blot(text, "a%b\\ c");
		assert_string_equal(text, "{\"who\":\"<***>\"}");
	}
	/* which is a word of records, too */
	snprintf(text, sizeof text, "{\"who\":\"one who\",\"pid\":1}");
	record_blot(text, "who");
	assert_string_equal(text, "{\"who\":\"one ***\",\"pid\":1}");
	/* no record, or one that grows */
	snprintf(text, sizeof text, "[\"one who\"]");
	record_blot(text, "who");
	assert_string_equal(text, "[\"one ***\"]");
	snprintf(text, sizeof text, "{\"n\":1e9,\"a\":\"one who\"}");
	record_blot(text, "one who");
	assert_null(strstr(text, "one who"));
	record_blot(text, NULL);
	record_blot(text, "");
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(values_come_back),
	    cmocka_unit_test(nothing_is_an_object_too),
	    cmocka_unit_test(what_is_no_utf8_is_replaced),
	    cmocka_unit_test(too_small_a_buffer_leaves_members_out),
	    cmocka_unit_test(random_bytes_give_json),
	    cmocka_unit_test(arrays_come_back_or_are_left_out),
	    cmocka_unit_test(record_tells_who_we_are),
	    cmocka_unit_test(arguments_are_shown_where_that_is_asked_for),
	    cmocka_unit_test(long_words_leave_a_record),
	    cmocka_unit_test(hostile_records_are_described),
	    cmocka_unit_test(descriptions_fit),
	    cmocka_unit_test(no_record_shows_the_secret),
	};

	return cmocka_run_group_tests_name("json", tests, NULL, NULL);
}
