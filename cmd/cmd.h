/*
 * cmd.h - one row of the table of subcommands.
 *
 * Help, dispatch and "no such subcommand" all read the table in main.c.
 */
#ifndef DLOCK_CMD_H
#define DLOCK_CMD_H

struct cmd {
	const char *name;
	const char *synopsis; /* what follows the name */
	const char *help;     /* one line */
	int (*run)(char **words); /* the words after the name, NULL-ended; returns the exit status */
};

extern const struct cmd cmds[]; /* NULL-ended */

int cmd_run(char **words);
int cmd_help(char **words);
int cmd_version(char **words);

#endif
