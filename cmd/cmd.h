/*
 * cmd.h - what a subcommand consists of.  Its file exports a struct cmd; main.c has a table of
 * them.
 */
#ifndef DLOCK_CMD_H
#define DLOCK_CMD_H

#include "params.h"

struct cmd {
	const char *help; /* one line */
	unsigned bit;     /* CMD_: its name, and which options it has */
	/* `dlock help NAME` prints usage, then the options, then notes */
	const char *usage, *notes;
	/* Runs it and returns the exit status.  NULL: help, whose words are no options. */
	int (*run)(struct params *);
	/*
	 * Called where the words or a file were refused, after the user was told why.  It says
	 * what this subcommand adds to that, and returns the exit status.  NULL: it adds nothing.
	 */
	int (*refuse)(struct params *, enum rc, const struct fault *);
};

extern const struct cmd cmd_run, cmd_status, cmd_ls, cmd_wait, cmd_break, cmd_freeze,
    cmd_thaw, cmd_forget, cmd_hold, cmd_release, cmd_config, cmd_doctor;

#endif
