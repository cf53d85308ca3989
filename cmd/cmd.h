/*
 * cmd.h - a subcommand: a file of its own, which exports one of these, and a row in main.c.
 */
#ifndef DLOCK_CMD_H
#define DLOCK_CMD_H

#include "plan.h"

struct cmd {
	const char *name, *help; /* help: one line */
	unsigned bit;            /* CMD_: which options it has */
	/* `dlock help NAME` prints both, and the options between them */
	const char *usage, *notes;
	/* returns the exit status */
	int (*run)(struct plan *);
	/* instead, for one that has no options: the words behind its name, NULL-ended */
	int (*run_words)(char **words);
};

extern const struct cmd cmd_run, cmd_status, cmd_ls, cmd_wait, cmd_break, cmd_freeze,
    cmd_thaw, cmd_hold, cmd_release, cmd_config;

#endif
