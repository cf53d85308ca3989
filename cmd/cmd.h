/*
 * cmd.h - a subcommand, which its file exports and main.c has in a table.
 */
#ifndef DLOCK_CMD_H
#define DLOCK_CMD_H

#include "params.h"

struct cmd {
	const char *help; /* one line */
	unsigned bit;     /* CMD_: its name, and which options it has */
	/* `dlock help NAME` prints both, and the options between them */
	const char *usage, *notes;
	/* returns the exit status; NULL: of help, whose words are no options */
	int (*run)(struct params *);
	/*
	 * Its words, or a file, could not be used, and the user has been told: says what this
	 * subcommand adds to that, and returns the exit status.  NULL: it adds nothing.
	 */
	int (*refuse)(struct params *, enum rc, const struct fault *);
};

extern const struct cmd cmd_run, cmd_status, cmd_ls, cmd_wait, cmd_break, cmd_freeze,
    cmd_thaw, cmd_forget, cmd_hold, cmd_release, cmd_config, cmd_doctor;

#endif
