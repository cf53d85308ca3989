/*
 * cmd.h - a subcommand, which its file exports and main.c has in a table, and how its words
 * become a plan.
 */
#ifndef DLOCK_CMD_H
#define DLOCK_CMD_H

#include "plan.h"

struct cmd {
	const char *help; /* one line */
	unsigned bit;     /* CMD_: its name, and which options it has */
	/* `dlock help NAME` prints both, and the options between them */
	const char *usage, *notes;
	/* returns the exit status; NULL: of help, whose words are no options */
	int (*run)(struct plan *);
	/*
	 * What it has to say where its words, or a file, could not be used, which has been said;
	 * returns the exit status.  NULL: nothing.
	 */
	int (*refuse)(struct plan *, enum rc, const struct fault *);
};

extern const struct cmd cmd_run, cmd_status, cmd_ls, cmd_wait, cmd_break, cmd_freeze,
    cmd_thaw, cmd_forget, cmd_hold, cmd_release, cmd_config, cmd_doctor;

/*
 * ---- args.c: the words after a subcommand's name become a plan ----
 *
 * Options end at `--` or at the first word that is none; nothing may be abbreviated, and
 * nothing but what the table says may be given twice.  What is left is of `dlock run` a key
 * and a command: without -k that word is the key, and further options may come between it
 * and a `--`.  Of other subcommands it is operands, which may stand between the options.
 */

/*
 * Reads the words after the subcommand `cmd`, a CMD_ bit, the environment and the
 * configuration files into *plan, once in the life of a process.  RC_DONE: help is asked
 * for; RC_USAGE, or RC_CONFIG where a file is wrong: *fault names option, value and what is
 * allowed.  The plan points into argv, the environment and what was read of files.
 * Passwords in argv are overwritten, so that ps(1) does not show them for long; the plan
 * keeps a copy.
 */
enum rc args_read(struct plan *, unsigned cmd, char **argv, struct fault *);

/* Does this one stand among the words? */
bool args_have(char **words, const char *word);

#endif
