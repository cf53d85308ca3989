/* main.c - dispatch: finds the subcommand. */
#include "cmd.h"

#include "backends/backend.h"
#include "nearest.h"
#include "options.h"
#include "say.h"
#include "text.h"
#include "status.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/auxv.h>

#ifndef DLOCK_VERSION
#define DLOCK_VERSION "0.1.0"
#endif

const struct cmd cmds[] = {
    {"run", "-k KEY [options] [--] COMMAND [ARGUMENT...]", "run a command under a lock", cmd_run},
    {"help", "[SUBCOMMAND]", "explain dlock or a subcommand", cmd_help},
    {"version", "", "tell the version and the backends built in", cmd_version},
    {0},
};

enum { CMDS = sizeof cmds / sizeof *cmds - 1 };

static const struct cmd *
find(const char *name)
{
	for (const struct cmd *c = cmds; c->name; c++)
		if (strcmp(c->name, name) == 0)
			return c;
	return NULL;
}

/* The subcommand that was meant, or NULL. */
static const char *
meant_by(const char *name)
{
	static const struct synonym synonyms[] = {
	    {"exec", "run"}, {"lock", "run"}, {"with", "run"}, {"usage", "help"}, {NULL, NULL}};
	const char *known[CMDS + 1] = {0};

	name += strspn(name, "-");
	for (int i = 0; i < CMDS; i++)
		known[i] = cmds[i].name;
	return nearest_meant(name, strlen(name), synonyms, known);
}

static int
no_such(const char *name)
{
	const char *meant = meant_by(name);
	char clean[200];

	text_clean(clean, sizeof clean, name, strlen(name));
	if (*name == '-' && !meant)
		say_last("'%s' comes before a subcommand: say dlock run %s ... (dlock help lists them)", clean, clean);
	else
		say_last("there is no subcommand '%s'%s%s%s (dlock help lists them)", clean,
		    meant ? ": did you mean dlock " : "", meant ? meant : "", meant ? "?" : "");
	return STATUS_USAGE;
}

static int
print_overview(void)
{
	puts("dlock runs a command under a lock that many machines can share: one run at a\n"
	     "time, the others wait in line, and if the lock is lost, the command is stopped.\n");
	for (const struct cmd *c = cmds; c->name; c++)
		printf("  dlock %-8s %s\n", c->name, c->help);
	puts("\n  dlock run -b file -k backup -- ./backup.sh\n"
	     "  dlock run -u redis://10.0.0.5 -k deploy -- make deploy\n\n"
	     "Options: dlock help run.  What an administrator of PostgreSQL may have to run:\n"
	     "dlock help pg-schema.  Everything: man dlock, man dlock-backends.");
	return say_written();
}

/* "pg-schema": what an administrator may have to run before the pg backend can be used. */
static const char *
schema_named(const char *word)
{
	size_t n = strcspn(word, "-");
	char name[16];
	const struct backend *b;

	if (n >= sizeof name || strcmp(word + n, "-schema") != 0)
		return NULL;
	snprintf(name, sizeof name, "%.*s", (int)n, word);
	b = backend_named(name);
	return b ? b->schema : NULL;
}

int
cmd_help(char **words)
{
	if (!*words || strcmp(*words, "--help") == 0 || strcmp(*words, "-h") == 0)
		return print_overview();
	if (strcmp(*words, "--raw") == 0) {
		options_print_raw(stdout);
		return say_written();
	}
	if (strcmp(*words, "run") == 0)
		return cmd_run((char *[]){"--help", NULL});
	if (schema_named(*words)) {
		fputs(schema_named(*words), stdout);
		return say_written();
	}
	return find(*words) ? print_overview() : no_such(*words);
}

int
cmd_version(char **words)
{
	(void)words;
	puts("dlock " DLOCK_VERSION);
	for (size_t i = 0; backends[i]; i++)
		printf("  %-6s %s\n", backends[i]->name, backends[i]->url_help);
	return say_written();
}

/* A descriptor that is closed now would be given to a socket of ours and written to as "stderr". */
static void
occupy_standard_descriptors(void)
{
	for (int fd = 0; fd <= 2; fd++)
		if (fcntl(fd, F_GETFD) < 0)
			open("/dev/null", O_RDWR | O_CLOEXEC);
}

int
main(int argc, char **argv)
{
	const struct cmd *c;

	occupy_standard_descriptors();
	if (getauxval(AT_SECURE)) {
		say_last("refuses to run set-uid or set-gid: install it without those bits");
		return STATUS_CONFIG;
	}
	if (argc < 2) {
		say_last("say what to do: dlock run -k KEY -- COMMAND (dlock help explains)");
		return STATUS_USAGE;
	}
	if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0)
		return cmd_help(argv + 2);
	if (strcmp(argv[1], "--version") == 0 || strcmp(argv[1], "-V") == 0)
		return cmd_version(argv + 2);
	c = find(argv[1]);
	return c ? c->run(argv + 2) : no_such(argv[1]);
}
