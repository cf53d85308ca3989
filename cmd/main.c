/* main.c - has the table of subcommands, runs one of them, and is dlock help and version. */
#include "cmd.h"

#include "args.h"
#include "conf.h"
#include "exit.h"
#include "json.h"
#include "parse.h"
#include "say.h"
#include "text.h"
#include "variables.h"

#include "backends/common/dl.h"
#include "backends/common/libc.h"
#include "backends/common/url.h"
#include "backends/registry.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/auxv.h>

static int print_version(struct params *);

static const struct cmd cmd_help = {
    .help = "explain dlock or a subcommand", .bit = CMD_HELP};
static const struct cmd cmd_version = {
    .help = "show the version and the backends built in",
    .bit = CMD_VERSION,
    .usage =
	"usage: dlock version [-J]\n"
	"\n"
	"Tells the version, and each backend with the forms of its URLs.  With -J also\n"
	"which of the libraries that dlock loads when it needs them are installed here.\n",
    .notes = "dlock --version and dlock -V mean the same.",
    .run = print_version};

static const struct cmd *const cmds[] = {&cmd_run, &cmd_status, &cmd_ls, &cmd_wait,
    &cmd_break, &cmd_freeze, &cmd_thaw, &cmd_forget, &cmd_hold, &cmd_release, &cmd_config,
    &cmd_doctor, &cmd_help, &cmd_version, NULL};

/* The subcommand of this name; NULL: there is none. */
static const struct cmd *
cmd_named(const char *name)
{
	const struct cmd *const *c = cmds;

	while (*c && strcmp(options_cmd((*c)->bit), name) != 0)
		c++;
	return *c;
}

/*
 * Says that there is no such subcommand; more words behind it may be a command that is to run.
 * Returns the exit status.
 */
static int
refuse_name(const char *name, bool more)
{
	/* as docker, systemctl, flock, git and others have them */
	static const struct synonym others[] = {{"list", "ls"}, {"who", "status"},
	    {"lock", "run, or dlock hold"}, {"acquire", "run, or dlock hold"},
	    {"exec", "run"}, {"unlock", "release"}, {"unfreeze", "thaw"},
	    {"kill", "break"}, {"top", "ls --watch"}, {"watch", "status --watch"},
	    {"log", "ls --jobs, or dlock run --log"}, {NULL, NULL}};
	const char *known[32] = {0}, *word = name + strspn(name, "-"), *meant;
	const struct clean clean = text_shown(text_brief(name).text);

	for (size_t i = 0; cmds[i]; i++)
		known[i] = options_cmd(cmds[i]->bit);
	meant = parse_meant(word, strlen(word), others, known);
	if (*name == '-' && !meant)
		say_last(
		    "'%s' comes before a subcommand: say dlock run %s ... (dlock help lists them)",
		    clean.text, clean.text);
	else
		say_last("there is no subcommand '%s'%s (%sdlock help lists them)",
		    clean.text, parse_hint(": did you mean dlock ", meant, "?").text,
		    more && !meant ? "to run a command, say dlock run -k KEY -- COMMAND; "
				   : "");
	return STATUS_USAGE;
}

/* ---- help ---- */

static int
print_overview(void)
{
	puts(
	    "dlock runs a command under a lock that many machines can share: one run at a\n"
	    "time, the others wait in line.  If the lock is lost, dlock stops the command.\n");
	for (size_t i = 0; cmds[i]; i++)
		printf("  dlock %-8s %s\n", options_cmd(cmds[i]->bit), cmds[i]->help);
	puts(
	    "\n  dlock run -b file -k backup -- ./backup.sh\n"
	    "  dlock run -u redis://10.0.0.5 -k deploy -- make deploy\n\n"
	    "Options: dlock help run, or another subcommand.  What an administrator of\n"
	    "PostgreSQL or MySQL may have to run: dlock help pg-schema, mysql-schema.\n"
	    "Everything: man dlock, dlock-status, dlock-break, dlock-hold, dlock.conf,\n"
	    "dlock-backends (and a page for each backend, such as dlock-redis), dlock-events,\n"
	    "dlock-joins (with locks of others), dlock-recipes (cron, CI, containers),\n"
	    "dlock-troubleshooting (it is stuck), dlock-doctor (will it work?).");
	return say_written();
}

static int
print_usage(const struct cmd *c)
{
	puts(c->usage);
	options_print_help(stdout, c->bit);
	printf("\n%s\n", c->notes);
	return say_written();
}

/*
 * The script for "pg-schema" or "mysql-schema", which an administrator may have to run before
 * that backend can be used.  NULL: the word is neither.
 */
static const char *
schema_named(const char *word)
{
	size_t n = strcspn(word, "-");
	char name[16];
	const struct backend *b;

	if (n >= sizeof name || strcmp(word + n, "-schema") != 0)
		return NULL;
	snprintf(name, sizeof name, "%.*s", (int)n, word);
	b = registry_named(name);
	return b ? b->schema : NULL;
}

/*
 * Prints a list for the tests, which compare manual and completions with it: the options, the
 * backends with their schemes, or the names that may stand in a file.
 */
static int
print_raw(const char *what)
{
	if (what && strcmp(what, "backends") == 0)
		for (size_t i = 0; backends[i]; i++) {
			printf("%s\t", backends[i]->name);
			for (const char *const *s = backends[i]->schemes; *s; s++)
				printf("%s%s", *s, s[1] ? " " : "\n");
		}
	else if (what && strcmp(what, "config") == 0)
		for (int i = 0; i < OPTIONS; i++) {
			if (conf_allows(i))
				puts(options[i].name);
		}
	else
		options_print_raw(stdout);
	return say_written();
}

static int
print_help(char **words)
{
	const char *word = *words;
	const struct cmd *c;

	if (!word || strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0)
		return print_overview();
	if (strcmp(word, "--raw") == 0)
		return print_raw(words[1]);
	if (schema_named(word)) {
		fputs(schema_named(word), stdout);
		return say_written();
	}
	c = cmd_named(word);
	if (!c)
		return refuse_name(word, false);
	return c->usage ? print_usage(c) : print_overview();
}

static void
print_version_object(void)
{
	const char *built[OPTIONS_BACKENDS];
	struct json o;
	size_t n = 0;

	for (size_t i = 0; backends[i] && n < OPTIONS_BACKENDS; i++)
		if (backends[i]->open)
			built[n++] = backends[i]->name;
	json_begin_stream(&o, stdout);
	json_put_string(&o, "version", DLOCK_VERSION);
	json_put_strings(&o, "backends", built, n);
	json_open(&o, "libraries", '[');
	for (const struct dl_library *const *l = dl_libraries; *l; l++) {
		json_open(&o, NULL, '{');
		json_put_string(&o, "name", (*l)->name);
		json_put_string(&o, "file", (*l)->file);
		json_put_truth(&o, "found", dl_is_there(*l));
		json_close(&o, '}');
	}
	json_close(&o, ']');
	json_end(&o);
}

/* Prints the name of each backend, and the forms of its URLs below each other. */
static int
print_version(struct params *p)
{
	static char room[4096];

	if (p->look.json) {
		print_version_object();
		return say_written();
	}
	/* a buffer of ours, since stdio would call malloc() for one: a page fault */
	setvbuf(stdout, room, _IOFBF, sizeof room);
	puts("dlock " DLOCK_VERSION);
	for (size_t i = 0; backends[i]; i++) {
		const char *name = backends[i]->name, *line = backends[i]->url_help;

		for (size_t n; *line; line += n + (line[n] != '\0'), name = "") {
			n = strcspn(line, "\n");
			printf("  %-9s %.*s\n", name, (int)n, line);
		}
	}
	return say_written();
}

/* ---- running one ---- */

/* Reads the words behind the subcommand's name and runs it.  Returns the exit status. */
static int
run_cmd(const struct cmd *c, char **words)
{
	static struct params params;
	struct fault fault;
	char strays[700];
	enum rc rc = args_read(&params, c->bit, words, &fault);

	if (rc == RC_DONE)
		return print_usage(c);
	if (rc != RC_OK) {
		say_last("%s", text_shown(fault.text).text);
		/* the shell that evaluates our stdout must learn of the failure */
		if ((options[OPT_SHELL].cmds & c->bit) && args_have(words, "--shell"))
			say_to_eval(exit_of_rc(rc).number);
		return c->refuse ? c->refuse(&params, rc, &fault) : exit_of_rc(rc).number;
	}
	/* `version` reads no variables, so it warns of none */
	if (c != &cmd_version && !params.show.quiet &&
	    variables_strays(strays, sizeof strays))
		say("unknown environment variables are ignored: %s", strays);
	return c->run(&params);
}

int
main(int argc, char **argv)
{
	const struct cmd *c;

	/* if one of these is closed, a socket of ours could get its number, and our messages */
	for (int fd = 0; fd <= 2; fd++)
		if (fcntl(fd, F_GETFD) < 0 && libc_open_nothing() != fd) {
			say_last("cannot open anything in place of descriptor %d: %s", fd,
			    strerror(errno));
			return STATUS_SYSTEM;
		}
	if (getauxval(AT_SECURE)) {
		say_last(
		    "refuses to run set-uid or set-gid: install it without those bits");
		return STATUS_CONFIG;
	}
	if (argc < 2) {
		say_last(
		    "say what to do: dlock run -k KEY -- COMMAND (dlock help explains)");
		return STATUS_USAGE;
	}
	if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0)
		return print_help(argv + 2);
	if (strcmp(argv[1], "--version") == 0 || strcmp(argv[1], "-V") == 0)
		return run_cmd(&cmd_version, argv + 2);
	c = cmd_named(argv[1]);
	if (!c)
		return refuse_name(argv[1], argc > 2);
	return c->run ? run_cmd(c, argv + 2) : print_help(argv + 2);
}
