/*
 * conf.c - Goal of these tests: of a configuration file, that counts which is for this
 * subcommand, these keys and this profile.
 */
#include "cmd/conf.h"
#include "cmd/variables.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static struct said_list all;
static struct conf_text text;
static struct fault fault;
static char bytes[4000];

static int
clean_environment(void **state)
{
	(void)state;
	for (const struct option *o = options; o->name; o++)
		if (o->env)
			unsetenv(o->env);
	unsetenv("DLOCK_KEEPER");
	return 0;
}

/* For up to two keys. */
static enum rc
take(unsigned cmd, const char *key, const char *other, const char *said)
{
	static const char *keys[2];

	keys[0] = key;
	keys[1] = other;
	snprintf(bytes, sizeof bytes, "%s", said);
	text = (struct conf_text){.text = bytes,
	    .n = strlen(said),
	    .shown = "f",
	    .user = true,
	    .profile = "p",
	    .keys = keys,
	    .nkeys = (key != NULL) + (other != NULL)};
	fault = (struct fault){""};
	said_init(&all, cmd);
	variables_read(&all);
	return conf_take(&all, &text, &fault);
}

static const char *
value(int i)
{
	const struct said *s = said_of(&all, i);

	return s ? s->value : "-";
}

/* What a file says of a run's waiting is no answer to `dlock wait`, and no reason to break. */
static void
each_subcommand_takes_what_is_for_it(void **state)
{
	static const char said[] =
	    "url = file:///d\nnonblock = yes\nconflict-exit-code = "
	    "0\nwhy = w\nshared = yes\nttl = 9s\nwho = a\n";
	static const struct {
		unsigned cmd;
		const char *nonblock, *conflict, *why, *shared, *ttl, *who;
	} rows[] = {
	    {CMD_RUN, "yes", "0", "w", "yes", "9s", "a"},
	    {CMD_CONFIG, "yes", "0", "w", "yes", "9s", "a"},
	    {CMD_HOLD, "yes", "-", "w", "yes", "9s", "a"},
	    {CMD_WAIT, "-", "-", "-", "yes", "-", "-"},
	    {CMD_BREAK, "-", "-", "-", "-", "-", "a"},
	    {CMD_FREEZE, "-", "-", "-", "-", "-", "a"},
	    {CMD_STATUS, "-", "-", "-", "-", "-", "-"},
	    {CMD_LS, "-", "-", "-", "-", "-", "-"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		assert_int_equal(take(rows[i].cmd, "k", NULL, said), RC_OK);
		assert_string_equal(value(OPT_URL), "file:///d");
		assert_string_equal(value(OPT_NONBLOCK), rows[i].nonblock);
		assert_string_equal(value(OPT_CONFLICT), rows[i].conflict);
		assert_string_equal(value(OPT_WHY), rows[i].why);
		assert_string_equal(value(OPT_SHARED), rows[i].shared);
		assert_string_equal(value(OPT_TTL), rows[i].ttl);
		assert_string_equal(value(OPT_WHO), rows[i].who);
	}
	/* it is checked all the same */
	assert_int_equal(take(CMD_LS, NULL, NULL, "ttl = x\n"), RC_CONFIG);
}

static void
patterns_match_keys(void **state)
{
	static const struct {
		const char *section, *key;
		bool matches;
	} rows[] = {
	    {"[key a]", "a", true},
	    {"[key \"a\"]", "a", true},
	    {"[ key a]", "a", false},
	    {"[key  \t a]", "a", true},
	    {"[key a b]", "a b", true},
	    {"[key \"a \"]", "a ", true},
	    {"[key \"*\"]", "any/thing", true},
	    {"[key a*]", "b", false},
	    {"[key a/*]", "a/b/c", true},
	    {"[key a?]", "a/", true},
	    {"[key a\\*]", "a*", true},
	    {"[key a\\*]", "ab", false},
	    {"[key A]", "a", false},
	    {"[key .*]", ".x", true},
	    {"[key *]", ".x", true},
	    {"[key [a]", "[a", true},
	    {"[key \xc3\xa9*]", "\xc3\xa9t\xc3\xa9", true},
	};
	char said[200];

	(void)state;
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		enum rc rc;

		snprintf(said, sizeof said, "%s\nttl = 9s\n", rows[i].section);
		rc = take(CMD_RUN, rows[i].key, NULL, said);
		if ((rc == RC_OK && strcmp(value(OPT_TTL), "9s") == 0) != rows[i].matches)
			fail_msg(
			    "%s and %s: %s", rows[i].section, rows[i].key, fault.text);
	}
	assert_int_equal(take(CMD_RUN, NULL, NULL, "[key *]\nttl = 9s\n"), RC_OK);
	assert_string_equal(value(OPT_TTL), "-");
}

static void
sections_for_some_keys_are_known(void **state)
{
	const struct said *s;

	(void)state;
	assert_int_equal(
	    take(CMD_RUN, "a", "b", "[key *]\nttl = 9s\n[key a]\nwhy = x\n"), RC_OK);
	s = said_of(&all, OPT_TTL);
	assert_null(s->origin->outside);
	s = said_of(&all, OPT_WHY);
	assert_string_equal(s->origin->outside, "b");
	assert_string_equal(s->origin->section, "key a");
	assert_int_equal(s->line, 4);
}

static void
profiles_are_found(void **state)
{
	(void)state;
	assert_int_equal(
	    take(CMD_LS, NULL, NULL, "[profile q]\nurl = file:///q\n"), RC_OK);
	assert_false(text.found);
	assert_string_equal(value(OPT_URL), "-");
	assert_int_equal(take(CMD_LS, NULL, NULL, "[profile \"p\"]\n"), RC_OK);
	assert_true(text.found);
	assert_int_equal(
	    take(CMD_LS, NULL, NULL, "url = file:///d\n[profile p]\nurl = file:///p\n"),
	    RC_OK);
	assert_string_equal(value(OPT_URL), "file:///p");
}

static void
passwords_are_noticed(void **state)
{
	static const struct {
		const char *said;
		int line;
	} rows[] = {
	    {"url = redis://h\n", 0},
	    {"url = redis://user@h\n", 0},
	    {"option = password-file=/f\n", 0},
	    {"why = password=x\n", 0},
	    {"\nurl = redis://u:p@h\n", 2},
	    {"[profile q]\nurl = host=h password = p\n", 2},
	    {"[key q]\n\noption = password=p\nurl = redis://u:p@h\n", 3},
	};

	(void)state;
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		assert_int_equal(take(CMD_RUN, "k", NULL, rows[i].said), RC_OK);
		assert_int_equal(text.secret, rows[i].line);
	}
}

static void
too_many_sections_are_refused(void **state)
{
	char said[2000] = "";

	(void)state;
	for (int i = 0; i < SAID_SECTIONS + 3; i++)
		strcat(said, "[key k]\n");
	assert_int_equal(take(CMD_RUN, "k", NULL, said), RC_CONFIG);
	assert_non_null(strstr(fault.text, "f:29: "));
	assert_int_equal(take(CMD_RUN, "other", NULL, said), RC_OK);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(each_subcommand_takes_what_is_for_it),
	    cmocka_unit_test(patterns_match_keys),
	    cmocka_unit_test(sections_for_some_keys_are_known),
	    cmocka_unit_test(profiles_are_found),
	    cmocka_unit_test(passwords_are_noticed),
	    cmocka_unit_test(too_many_sections_are_refused),
	};

	return cmocka_run_group_tests_name("conf", tests, clean_environment, NULL);
}
