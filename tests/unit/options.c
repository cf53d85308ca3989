/*
 * options.c - Goal of these tests: the words and the environment become the parameters that
 * was meant, or one clear sentence.
 */
#include "cmd/args.h"
#include "cmd/variables.h"
#include "backends/common/url.h"

#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define S NS_PER_S
#define WORDS_MAX 48

static struct params params;
static struct fault fault;
static char buffers[WORDS_MAX][2000];

/*
 * Parses the words, separated by single blanks; "" gives an empty word.  They stay
 * writable, as argv is.
 */
static enum rc
parse(const char *line)
{
	static char *words[WORDS_MAX]; /* the parameters point into it */
	size_t n = 0;

	while (*line) {
		size_t len = strcspn(line, " ");

		assert_in_range(n, 0, WORDS_MAX - 2);
		assert_in_range(len, 0, sizeof *buffers - 1);
		memcpy(buffers[n], line, len);
		buffers[n][len] = '\0';
		if (strcmp(buffers[n], "\"\"") == 0)
			*buffers[n] = '\0';
		words[n] = buffers[n];
		n++;
		line += len + (line[len] == ' ');
	}
	words[n] = NULL;
	fault = (struct fault){""};
	return args_read(&params, CMD_RUN, words, &fault);
}

static void
fine(const char *line)
{
	if (parse(line) != RC_OK)
		fail_msg("%s: %s", line, fault.text);
}

/* Refused, in a sentence that has all the words of `says` (separated by |). */
static void
wrong(const char *line, const char *says)
{
	char copy[200], *rest;

	if (parse(line) != RC_USAGE)
		fail_msg("%s: not refused", line);
	snprintf(copy, sizeof copy, "%s", says);
	for (char *word = strtok_r(copy, "|", &rest); word;
	     word = strtok_r(NULL, "|", &rest))
		if (!strstr(fault.text, word))
			fail_msg("%s: '%s' does not say '%s'", line, fault.text, word);
}

/* Also of what the caller has set, such as DLOCK_TEST_BACKENDS. */
static int
clean_environment(void **state)
{
	(void)state;
	for (char **e = environ; *e;) {
		char name[64];

		snprintf(name, sizeof name, "%.*s", (int)strcspn(*e, "="), *e);
		if (strncmp(name, "DLOCK", strlen("DLOCK")) == 0 && unsetenv(name) == 0)
			e = environ;
		else
			e++;
	}
	setenv("DLOCK_CONFIG", "/dev/null", 1);
	return 0;
}

static void
defaults(void **state)
{
	(void)state;
	fine("-b file -k job -- true");
	assert_int_equal(params.nkeys, 1);
	assert_string_equal(params.keys[0], "job");
	assert_string_equal(params.site.backend->name, "file");
	assert_null(params.site.url);
	assert_true(params.wait.most == NEVER);
	assert_int_equal(params.wait.conflict_status, 75);
	assert_true(params.terms.ttl == 30 * S && params.terms.grace == 5 * S &&
	    !params.terms.grace_fixed);
	assert_true(params.terms.min_hold == 0 && params.terms.max_run == NEVER &&
	    !params.terms.wait_tree);
	assert_int_equal(params.command.signal, SIGTERM);
	assert_int_equal(params.show.status_fd, -1);
	assert_false(params.show.quiet || params.show.verbose);
	assert_string_equal(params.command.argv[0], "true");
	assert_null(params.command.argv[1]);
}

static void
every_option(void **state)
{
	(void)state;
	fine(
	    "--key=job --backend file --url=file:///tmp/x --option path=b -O lock= --wait 1m30s -E 0 --ttl 60s --grace 2s "
	    "--signal=HUP --min-hold 5 -- cmd");
	assert_string_equal(params.site.url, "file:///tmp/x");
	assert_int_equal(params.site.nsettings, 2);
	assert_string_equal(params.site.settings[0].name, "path");
	assert_string_equal(params.site.settings[0].value, "b");
	assert_string_equal(params.site.settings[1].value, "");
	assert_true(params.wait.most == 90 * S && params.terms.ttl == 60 * S &&
	    params.terms.grace == 2 * S);
	assert_true(params.terms.grace_fixed && params.terms.min_hold == 5 * S);
	assert_int_equal(params.wait.conflict_status, 0);
	assert_int_equal(params.command.signal, SIGHUP);
	fine(
	    "-b file -kjob -nqv --max-run 1h --wait-tree --who me --why x --status-fd 1 -c true");
	assert_true(params.wait.most == 0 && params.show.quiet && params.show.verbose &&
	    params.terms.wait_tree);
	assert_true(params.terms.max_run == 3600 * S);
	assert_string_equal(params.show.who, "me");
	assert_string_equal(params.show.why, "x");
	assert_int_equal(params.show.status_fd, 1);
	assert_string_equal(params.command.argv[0], "/bin/sh");
	assert_string_equal(params.command.argv[2], "true");
}

static void
where_options_end(void **state)
{
	(void)state;
	fine("-b file -k job cmd -k other --ttl");
	assert_string_equal(params.command.argv[1], "-k");
	assert_string_equal(params.command.argv[3], "--ttl");
	fine("-b file -k job -- -n");
	assert_string_equal(params.command.argv[0], "-n");
	assert_true(params.wait.most == NEVER);
	fine("-b file -k job -- --");
	assert_string_equal(params.command.argv[0], "--");
	fine("-b file -k job - x");
	assert_string_equal(params.command.argv[0], "-");
	fine("-b file job -- cmd x");
	assert_string_equal(params.keys[0], "job");
	assert_string_equal(params.command.argv[0], "cmd");
	/* behind the key, where a -- shows which are options */
	fine("-b file job -n -t 10s -- -x -n");
	assert_string_equal(params.keys[0], "job");
	assert_string_equal(params.command.argv[0], "-x");
	assert_true(params.wait.most == 0 && params.terms.ttl == 10 * S);
	fine("-b file job -c true --");
	assert_string_equal(params.command.argv[2], "true");
	fine("-b file job -- -n -- x");
	assert_string_equal(params.command.argv[0], "-n");
	assert_true(params.wait.most == NEVER);
	assert_int_equal(parse("-b file job -h -- cmd"), RC_DONE);
	fine("-b file job cmd -- x");
	assert_string_equal(params.command.argv[1], "--");
	fine("-b file --key=-- cmd");
	assert_string_equal(params.keys[0], "--");
	assert_int_equal(parse("-b file -h"), RC_DONE);
	assert_int_equal(parse("--help"), RC_DONE);
}

static void
wrong_words(void **state)
{
	(void)state;
	wrong("", "key");
	wrong("-b file", "key");
	wrong("-b file -k job", "command");
	wrong("-b file -k job --", "command");
	wrong("-b file job", "command");
	wrong("-b file -k job \"\"", "empty");
	wrong("-b file \"\" cmd", "empty");
	wrong("-b file -k \"\" cmd", "--key|empty");
	wrong("-k job cmd", "backend|-b|file|redis");
	wrong("-b file -- job -n -- cmd", "no key before the --|-k KEY");
	wrong("-b file -n -- job cmd", "no key before the --|-k KEY");
	wrong("-b file -k -- cmd", "--key|'--'|--key=VALUE");
	wrong("-b file -nk -n cmd", "--key|'-n'|--key=VALUE");
	wrong("-b file job -w -q -- cmd", "--wait|'-q'|--wait=VALUE");
	wrong("-b file -k job --why --url=redis://:secret@h cmd", "--why|'--url'");
	wrong("-b file -k job --nonsense cmd", "--nonsense");
	wrong("-b file -k job --ke cmd", "--ke");
	wrong("-b file -k job -Z cmd", "-Z");
	wrong("-b file -k job --ttl", "--ttl|value");
	wrong("-b file -k", "--key|value");
	wrong("-b file -k job --nonblock=1 cmd", "--nonblock|no value");
	wrong("-b file -k job -t 10s -t 20s cmd", "--ttl|twice");
	wrong("-b file -k job -n -w 5 cmd", "--nonblock|--wait|contradict");
	wrong("-b file -k job -c true cmd", "--command|cmd");
	wrong("-b file -k job -c \"\"", "--command|empty");
	wrong("-b file job -n cmd", "-n|before|dlock run job -n ... -- COMMAND");
	wrong("-b file job -c cmd", "-c|dlock run -k job -c ...");
	wrong("-b file job -n cmd -- x", "-n|before");
	wrong("-b file job --full", "--full|before");
	wrong("-b file job --nonsense -- cmd", "--nonsense");
	wrong("-b file job -k other -- cmd", "job|other|-k for each");
	wrong("-b file job -n --", "command|job");
	wrong("-b file -k=job cmd", "-k=|-k KEY|--key=KEY");
	wrong("-b file -n -w=5 -k job cmd", "-w=|-w DURATION|--wait=DURATION");
	wrong("-b file -n=1 -k job cmd", "-n|no value");
	wrong("-b file -nq=1 -k job cmd", "-q|no value");
	wrong("-b file -= cmd", "-=");
	wrong("-b file -key job cmd", "-key|--key");
	wrong("-quiet -k job cmd", "-quiet|--quiet");
	wrong("-wait=5 -k job cmd", "-wait|--wait");
	wrong("-b file --non-block -k job cmd", "--non-block|did you mean --nonblock?");
	wrong("-b file --wiat=5 -k job cmd", "--wiat|did you mean --wait?");
	wrong("-b file --Key job cmd", "--Key|did you mean --key?");
	wrong("-b file --tlt 5 -k job cmd", "--tlt|did you mean --ttl?");
}

static void
wrong_values(void **state)
{
	(void)state;
	wrong("-b REDIS -k job cmd", "--backend|REDIS|file");
	wrong("-b \"\" -k job cmd", "--backend|file");
	wrong("-b pgg -k job cmd", "--backend|did you mean pg?");
	wrong("-b rdeis -k job cmd", "--backend|did you mean redis?");
	wrong("-b nope -k job cmd", "--backend|no such backend (there are");
	assert_int_equal(dup2(open("/dev/null", O_RDONLY), 90), 90);
	wrong("-b file -k job --status-fd 90 cmd", "--status-fd|not open for writing");
	wrong("-b file -k job -w 99999999999w cmd", "--wait|292 years|inf");
	wrong("-b file -k job --max-run 99999999999w cmd", "--max-run|292 years|inf");
	wrong("-b file -k job --grace x cmd", "--grace|1h30m|0ms to 365d");
	wrong("-b file -k job -t 2.9s cmd", "--ttl|2.9s|3s");
	wrong("-b file -k job -t 10x cmd", "--ttl|10x");
	wrong("-b file -k job -t inf cmd", "--ttl|inf");
	wrong("-b file -k job -t -1 cmd", "--ttl|-1");
	wrong("-b file -k job -t 366d cmd", "--ttl|365d");
	wrong("-b file -k job -w 1e9 cmd", "--wait|1e9");
	wrong("-b file -k job -E 256 cmd", "--conflict-exit-code|256|255");
	wrong("-b file -k job -E -1 cmd", "--conflict-exit-code|-1|0");
	wrong("-b file -k job -E x cmd", "--conflict-exit-code|x");
	wrong("-b file -k job --signal NOPE cmd", "--signal|NOPE");
	wrong("-b file -k job --signal STOP cmd", "--signal|STOP");
	wrong("-b file -k job --signal CHLD cmd", "--signal|CHLD");
	wrong("-b file -k job --signal 0 cmd", "--signal|0");
	wrong("-b file -k job --max-run 0 cmd", "--max-run|0");
	wrong("-b file -k job --status-fd 99 cmd", "--status-fd|99|not open");
	wrong("-b file -k job --status-fd -1 cmd", "--status-fd|-1");
	wrong("-b file -k job -O x cmd", "--option|NAME=VALUE");
	wrong("-b file -k job -O =x cmd", "--option|NAME=VALUE");
	wrong("-b file -k \xff cmd", "--key|UTF-8");
	wrong("-b file -k a\nb cmd", "--key|control");
}

static void
kinds_and_jobs(void **state)
{
	(void)state;
	fine("-b file -k job cmd");
	assert_true(params.claim.kind == KIND_EXCLUSIVE &&
	    !job_is_wanted(&params.claim.job) && params.claim.skipped_status == 0);
	fine("-b file -k job -s cmd");
	assert_int_equal(params.claim.kind, KIND_SHARED);
	fine("-b file -k job -x cmd");
	assert_int_equal(params.claim.kind, KIND_WRITER);
	fine("-b file -k job -n --limit 100000 cmd");
	assert_true(params.claim.kind == KIND_LIMIT && params.claim.limit == 100000 &&
	    params.wait.most == 0);
	fine(
	    "-b file -k job --once 2026-11-22 --cooldown 1h30m --skipped-exit-code 255 cmd");
	assert_string_equal(params.claim.job.once, "2026-11-22");
	assert_true(
	    params.claim.job.cooldown == 5400 * S && params.claim.skipped_status == 255);
	wrong("-b file -k job -sx cmd", "--shared|--exclusive|contradict");
	wrong("-b file -k job -s --limit 3 cmd", "--shared|--limit|contradict");
	wrong("-b file -k job --limit 0 cmd", "--limit '0'|1 to 100000");
	wrong("-b file -k job --limit 1x cmd", "--limit '1x'|1 to 100000");
	wrong("-b file -k job --limit 100001 cmd", "--limit '100001'|1 to 100000");
	wrong("-b file -k job --once \"\" cmd", "--once ''|empty");
	wrong("-b file -k job --cooldown -1 cmd", "--cooldown '-1'|365d");
}

/* Of -s, -x and --limit, the source that says one decides alone. */
static void
kind_is_of_one_source(void **state)
{
	(void)state;
	setenv("DLOCK_SHARED", "1", 1);
	fine("-b file -k job cmd");
	assert_int_equal(params.claim.kind, KIND_SHARED);
	fine("-b file -k job --limit 3 cmd");
	assert_true(params.claim.kind == KIND_LIMIT && params.claim.limit == 3);
	fine("-b file -k job -x cmd");
	assert_int_equal(params.claim.kind, KIND_WRITER);
	setenv("DLOCK_LIMIT", "3", 1);
	wrong("-b file -k job cmd", "DLOCK_SHARED|DLOCK_LIMIT|contradict");
	setenv("DLOCK_SHARED", "no", 1);
	fine("-b file -k job cmd");
	assert_int_equal(params.claim.kind, KIND_LIMIT);
	fine("-b file -k job -s cmd");
	assert_int_equal(params.claim.kind, KIND_SHARED);
}

static void
lease_must_carry_the_grace(void **state)
{
	(void)state;
	wrong("-b file -k job --grace 60 cmd", "--ttl|30s|--grace|1m00s|1m43s");
	fine("-b file -k job --grace 60 -t 103s cmd");
	wrong("-b file -k job -t 3s --grace 3s cmd", "--ttl|3s|--grace");
	fine("-b file -k job -t 3s cmd");
	assert_true(params.terms.grace == S / 2);
	fine("-b file -k job -t 3s --grace 0 cmd");
	assert_true(params.terms.grace == 0 && params.terms.grace_fixed);
}

static void
long_values_leave_room_for_the_reason(void **state)
{
	char line[1100] = "-b file -k ";

	(void)state;
	memset(line + 11, 'k', 1000);
	strcpy(line + 1011, " cmd");
	wrong(line, "--key|too long|512");
}

static void
place_is_named_once(void **state)
{
	(void)state;
	fine("-u file:///tmp/x -k job cmd");
	assert_string_equal(params.site.backend->name, "file");
	fine("-b file -u file:///tmp/x -k job cmd");
	wrong("-b file -u redis://h -k job cmd", "file|redis|contradict");
	wrong("-u http://h -k job cmd", "--url|scheme");
	wrong("-u nonsense -k job cmd", "--url|scheme");
	wrong("-u \"\" -k job cmd", "--url|scheme");
	wrong("-u /tmp/x -k job cmd", "--url|'/tmp/x'|file:///tmp/x");
	wrong("-b file -u /tmp/x -k job cmd", "--url|file:///tmp/x");
	wrong("-u zkk://h -k job cmd", "--url|did you mean zk://?");
	wrong("-u reids://u:secret@h -k job cmd", "--url|did you mean redis://?");
	assert_null(strstr(fault.text, "secret"));
	setenv("DLOCK_URL", "/tmp/x", 1);
	wrong("-k job cmd", "DLOCK_URL '/tmp/x'|file:///tmp/x");
	unsetenv("DLOCK_URL");
	setenv("DLOCK_FILE_URL", "/tmp/x", 1);
	wrong("-b file -k job cmd", "DLOCK_FILE_URL '/tmp/x'|file:///tmp/x");
}

static void
variables(void **state)
{
	(void)state;
	setenv("DLOCK_BACKEND", "file", 1);
	setenv("DLOCK_TTL", "60s", 1);
	setenv("DLOCK_NONBLOCK", "yes", 1);
	setenv("DLOCK_OPTION", "name=b name=d", 1);
	setenv("DLOCK_WHY", "", 1); /* as good as none */
	fine("-k job cmd");
	assert_string_equal(params.site.backend->name, "file");
	assert_true(
	    params.terms.ttl == 60 * S && params.wait.most == 0 && !params.show.why);
	assert_int_equal(params.site.nsettings, 2);
	/* a flag beats its variable, and those that say the same with another word */
	fine("-k job -t 10s -w 5 cmd");
	assert_true(params.terms.ttl == 10 * S && params.wait.most == 5 * S);
	fine("-k job -u redis://h cmd");
	assert_string_equal(params.site.backend->name, "redis");
	setenv("DLOCK_KEY", "from-environment", 1);
	fine("-- cmd");
	assert_string_equal(params.keys[0], "from-environment");
	fine("-k job cmd");
	assert_int_equal(params.nkeys, 1);
	assert_string_equal(params.keys[0], "job");
	setenv("DLOCK_TTL", "x", 1);
	wrong("-k job cmd", "DLOCK_TTL|'x'");
}

static void
retry_is_named_once(void **state)
{
	(void)state;
	fine("-b file -k job cmd");
	assert_true(params.wait.most == NEVER && !params.wait.persist);
	fine("-b file -k job -w 5 cmd");
	assert_true(params.wait.most == 5 * S && params.wait.persist);
	fine("-b file -k job -n cmd");
	assert_true(params.wait.most == 0 && !params.wait.persist);
	setenv("DLOCK_WAIT", "7", 1);
	fine("-b file -k job cmd");
	assert_true(params.wait.most == 7 * S && params.wait.persist);
	fine("-b file -k job -n cmd");
	assert_true(params.wait.most == 0 && !params.wait.persist);
	setenv("DLOCK_NONBLOCK", "1", 1);
	wrong("-b file -k job cmd", "DLOCK_NONBLOCK|DLOCK_WAIT|contradict");
	setenv("DLOCK_NONBLOCK", "0", 1);
	fine("-b file -k job cmd");
	assert_true(params.wait.most == 7 * S);
}

static void
strange_variables_are_noticed(void **state)
{
	char text[300];

	(void)state;
	assert_false(variables_strays(text, sizeof text));
	setenv("DLOCK_TTL", "5", 1);
	setenv("DLOCK_PG_URL", "x", 1);
	setenv("DLOCK_TOKEN", "7", 1);
	setenv("DLOCK_OWNER", "x", 1);
	setenv("DLOCK_NONSENSE", "", 1); /* empty is as good as none */
	setenv("DLOCKED", "1", 1);
	assert_false(variables_strays(text, sizeof text));
	setenv("DLOCK_WIAT", "secret", 1);
	assert_true(variables_strays(text, sizeof text));
	assert_string_equal(text, "DLOCK_WIAT (did you mean DLOCK_WAIT?)");
	setenv("DLOCK_\33[2J\xff", "1", 1);
	assert_true(variables_strays(text, sizeof text));
	assert_non_null(strstr(text, "DLOCK_\\x1B[2J\\xFF"));
	for (size_t size = 1; size < 60; size++) {
		memset(text, 'X', sizeof text);
		variables_strays(text, size);
		assert_in_range(strlen(text), 0, size - 1);
		assert_int_equal(text[size], 'X');
	}
	unsetenv("DLOCK_\33[2J\xff");
	unsetenv("DLOCKED");
}

static void
url_of_a_backend(void **state)
{
	(void)state;
	setenv("DLOCK_FILE_URL", "file:///srv/locks", 1);
	setenv("DLOCK_REDIS_URL", "redis://h", 1);
	fine("-b file -k job cmd");
	assert_string_equal(params.site.url, "file:///srv/locks");
	fine("-b redis -k job cmd");
	assert_string_equal(params.site.url, "redis://h");
	fine("-b file -u file:///x -k job cmd");
	assert_string_equal(params.site.url, "file:///x");
	setenv("DLOCK_FILE_URL", "redis://h", 1);
	wrong("-b file -k job cmd", "DLOCK_FILE_URL");
}

static void
passwords_are_blotted_out(void **state)
{
	(void)state;
	fine("-u redis://user:p%40ss@h:1/0 -k job cmd");
	assert_string_equal(params.site.url, "redis://user:p%40ss@h:1/0");
	assert_null(strstr(buffers[1], "p%40ss"));
	assert_non_null(strstr(buffers[1], "redis://user:"));
	assert_non_null(strstr(buffers[1], "@h:1/0"));
	fine("--url=redis://:secret@h -k job cmd");
	assert_string_equal(params.site.url, "redis://:secret@h");
	assert_null(strstr(buffers[0], "secret"));
	fine("-u postgresql://u@h/d?password=secret&connect_timeout=2 -k job cmd");
	assert_string_equal(
	    params.site.url, "postgresql://u@h/d?password=secret&connect_timeout=2");
	assert_string_equal(
	    buffers[1], "postgresql://u@h/d?password=xxxxxx&connect_timeout=2");
	fine("-u dbname=d\tpassword\t=\tsecret\tuser=u -k job cmd");
	assert_string_equal(buffers[1], "dbname=d\tpassword\t=\txxxxxx\tuser=u");
	fine("-u redis://h:1/0 -k job cmd"); /* a port is no password */
	assert_string_equal(buffers[1], "redis://h:1/0");
	wrong("-b file -u redis://user:secret@h -k job cmd", "contradict");
	assert_null(strstr(fault.text, "secret"));
	wrong("-u nope://user:secret@h -k job cmd", "scheme");
	assert_null(strstr(fault.text, "secret"));
	wrong("--urls=redis://user:secret@h -k job cmd", "--urls");
	assert_null(strstr(fault.text, "secret"));
}

static void
the_table_is_whole(void **state)
{
	(void)state;
	for (const struct option *o = options; o->name; o++) {
		char env[64] = "DLOCK_";

		for (size_t i = 0; o->name[i]; i++)
			env[6 + i] = o->name[i] == '-'
			    ? '_'
			    : (char)(o->name[i] -
				  ('a' <= o->name[i] && o->name[i] <= 'z') * 32);
		if (o->env)
			assert_string_equal(o->env, env);
		assert_non_null(o->set);
		assert_non_null(o->help);
		for (const struct option *p = options; p < o; p++) {
			assert_string_not_equal(p->name, o->name);
			assert_false(
			    p->letter && p->letter == o->letter && (p->cmds & o->cmds));
		}
	}
}

static void
several_keys(void **state)
{
	static const char sixteen[] =
	    "-k a -k b -k c -k d -k e -k f -k g -k h -k i -k j -k k -k l -k m -k n";
	static const char sixty[] =
	    "123456789012345678901234567890123456789012345678901234567890";
	char line[200];

	(void)state;
	fine("-b file -k b --key=a -k c cmd");
	assert_int_equal(params.nkeys, 3);
	assert_string_equal(params.keys[0], "b"); /* as named */
	assert_string_equal(params.keys[1], "a");
	assert_string_equal(params_keys(&params).text, "b, a and c");
	snprintf(line, sizeof line, "-b file %s -k o -k p cmd", sixteen);
	fine(line);
	assert_int_equal(params.nkeys, KEYS_MAX);
	for (size_t i = 0; i < params.nkeys; i++)
		params.keys[i] = sixty;
	assert_non_null(strstr(params_keys(&params).text, "0 and 10 more"));
	snprintf(line, sizeof line, "-b file %s -k o -k p -k q cmd", sixteen);
	wrong(line, "--key|'q'|16");
	wrong("-b file -k a -k b -k a cmd", "--key|'a'|twice");
	wrong("-b file -k a -k \"\" cmd", "--key|empty");
	fine("-b file -k a cmd");
	assert_string_equal(params_keys(&params).text, "a");
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test_setup(defaults, clean_environment),
	    cmocka_unit_test_setup(every_option, clean_environment),
	    cmocka_unit_test_setup(where_options_end, clean_environment),
	    cmocka_unit_test_setup(wrong_words, clean_environment),
	    cmocka_unit_test_setup(wrong_values, clean_environment),
	    cmocka_unit_test_setup(several_keys, clean_environment),
	    cmocka_unit_test_setup(kinds_and_jobs, clean_environment),
	    cmocka_unit_test_setup(kind_is_of_one_source, clean_environment),
	    cmocka_unit_test_setup(lease_must_carry_the_grace, clean_environment),
	    cmocka_unit_test_setup(
		long_values_leave_room_for_the_reason, clean_environment),
	    cmocka_unit_test_setup(place_is_named_once, clean_environment),
	    cmocka_unit_test_setup(variables, clean_environment),
	    cmocka_unit_test_setup(retry_is_named_once, clean_environment),
	    cmocka_unit_test_setup(strange_variables_are_noticed, clean_environment),
	    cmocka_unit_test_setup(url_of_a_backend, clean_environment),
	    cmocka_unit_test_setup(passwords_are_blotted_out, clean_environment),
	    cmocka_unit_test_setup(the_table_is_whole, clean_environment),
	};

	return cmocka_run_group_tests_name("options", tests, NULL, NULL);
}
