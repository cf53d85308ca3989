/* cmd.c - the table of subcommands, and which was meant by a word that is none. */
#include "cmd.h"

#include "nearest.h"
#include "plan.h"
#include "say.h"
#include "status.h"
#include "text.h"

#include <string.h>

const struct cmd cmds[] = {
    {"run", "run a command under a lock", cmd_run, cmd_run_explain},
    {"status", "tell who holds a lock, and who waits", cmd_status, cmd_status_explain},
    {"ls", "list all locks, one a line", cmd_ls, cmd_ls_explain},
    {"wait", "wait until a lock is free, without taking it", cmd_wait, cmd_wait_explain},
    {"break", "take a lock away from who holds it", cmd_break, cmd_break_explain},
    {"freeze", "let nobody take a lock", cmd_freeze, cmd_freeze_explain},
    {"thaw", "end a freeze", cmd_thaw, cmd_thaw_explain},
    {"hold", "hold a lock for a script that goes on by itself", cmd_hold,
	cmd_hold_explain},
    {"release", "give back what hold has taken", cmd_release, cmd_release_explain},
    {"config", "tell every setting and where it comes from", cmd_config,
	cmd_config_explain},
    {"help", "explain dlock or a subcommand", cmd_help, NULL},
    {"version", "tell the version and the backends built in", cmd_version, NULL},
    {0},
};

enum { CMDS = sizeof cmds / sizeof *cmds - 1 };

const struct cmd *
cmd_named(const char *name)
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
	static const struct synonym synonyms[] = {{"exec", "run"}, {"lock", "run"},
	    {"with", "run"}, {"usage", "help"}, {"list", "ls"}, {"top", "ls"},
	    {"who", "status"}, {"show", "status"}, {NULL, NULL}};
	const char *known[CMDS + 1] = {0};

	name += strspn(name, "-");
	for (int i = 0; i < CMDS; i++)
		known[i] = cmds[i].name;
	return nearest_meant(name, strlen(name), synonyms, known);
}

int
cmd_refuse(const char *name)
{
	const char *meant = meant_by(name);
	char clean[200];

	text_clean(clean, sizeof clean, name, strlen(name));
	if (*name == '-' && !meant)
		say_last(
		    "'%s' comes before a subcommand: say dlock run %s ... (dlock help lists them)",
		    clean, clean);
	else
		say_last("there is no subcommand '%s'%s%s%s (dlock help lists them)",
		    clean, meant ? ": did you mean dlock " : "", meant ? meant : "",
		    meant ? "?" : "");
	return STATUS_USAGE;
}

int
cmd_wrong(const struct plan *p, const struct fault *f)
{
	char clean[sizeof f->text + 60];

	say_last("%s", text_clean(clean, sizeof clean, f->text, strlen(f->text)));
	return p->status;
}
