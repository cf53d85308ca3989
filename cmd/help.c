/* help.c - dlock help: explains dlock, a subcommand, or what a server needs. */
#include "cmd.h"

#include "backends/backend.h"
#include "conf.h"
#include "options.h"
#include "say.h"
#include "site.h"

#include <stdio.h>
#include <string.h>

static int
print_overview(void)
{
	puts(
	    "dlock runs a command under a lock that many machines can share: one run at a\n"
	    "time, the others wait in line, and if the lock is lost, the command is stopped.\n");
	for (const struct cmd *c = cmds; c->name; c++)
		printf("  dlock %-8s %s\n", c->name, c->help);
	puts("\n  dlock run -b file -k backup -- ./backup.sh\n"
	     "  dlock run -u redis://10.0.0.5 -k deploy -- make deploy\n\n"
	     "Options: dlock help run, or another subcommand.  What an administrator of\n"
	     "PostgreSQL or MySQL may have to run: dlock help pg-schema, mysql-schema.\n"
	     "Everything: man dlock, dlock-status, dlock-break, dlock-hold, dlock.conf,\n"
	     "dlock-backends.");
	return say_written();
}

/*
 * "pg-schema", "mysql-schema": what an administrator may have to run before such a backend
 * can be used.
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
	b = backend_named(name);
	return b ? b->schema : NULL;
}

/* The names that may stand in a file. */
static void
print_names(void)
{
	for (int i = 0; i < OPTIONS; i++)
		if (conf_allows(i))
			puts(options[i].name);
}

/*
 * What tests compare manual and completions with: the options, the backends, or the names
 * in files.
 */
static int
print_raw(const char *what)
{
	if (what && strcmp(what, "backends") == 0)
		site_print_raw(stdout);
	else if (what && strcmp(what, "config") == 0)
		print_names();
	else
		options_print_raw(stdout);
	return say_written();
}

int
cmd_help(char **words)
{
	const struct cmd *c;

	if (!*words || strcmp(*words, "--help") == 0 || strcmp(*words, "-h") == 0)
		return print_overview();
	if (strcmp(*words, "--raw") == 0)
		return print_raw(words[1]);
	if (schema_named(*words)) {
		fputs(schema_named(*words), stdout);
		return say_written();
	}
	c = cmd_named(*words);
	if (!c)
		return cmd_refuse(*words);
	return c->explain ? c->explain() : print_overview();
}
