/*
 * cmd.h - the table of subcommands.
 *
 * Dispatch, help and "no such subcommand" all read it.  A new subcommand is a
 * file of its own, a row in cmd.c, and its functions here.
 */
#ifndef DLOCK_CMD_H
#define DLOCK_CMD_H

struct cmd {
	const char *name;
	const char *help; /* one line */
	/* the words after the name, NULL-ended; returns the exit status */
	int (*run)(char **words);
	/* what `dlock help NAME` says; returns the exit status; NULL: the overview */
	int (*explain)(void);
};

extern const struct cmd cmds[]; /* ended by one without a name */

/* The subcommand of this name, or NULL. */
const struct cmd *cmd_named(const char *name);

/*
 * Says that there is none of this name, and which may have been meant; returns the exit
 * status.
 */
int cmd_refuse(const char *name);

/* Says what is wrong with a plan (PARSED_WRONG); returns the exit status. */
struct plan;
struct fault;
int cmd_wrong(const struct plan *, const struct fault *);

int cmd_run(char **words);
int cmd_run_explain(void);
int cmd_status(char **words);
int cmd_status_explain(void);
int cmd_ls(char **words);
int cmd_ls_explain(void);
int cmd_wait(char **words);
int cmd_wait_explain(void);
int cmd_break(char **words);
int cmd_break_explain(void);
int cmd_freeze(char **words);
int cmd_freeze_explain(void);
int cmd_thaw(char **words);
int cmd_thaw_explain(void);
int cmd_hold(char **words);
int cmd_hold_explain(void);
int cmd_release(char **words);
int cmd_release_explain(void);
int cmd_config(char **words);
int cmd_config_explain(void);
int cmd_help(char **words);
int cmd_version(char **words);

#endif
