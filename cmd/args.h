/*
 * args.h - the words after a subcommand's name become a struct params.
 *
 * Options end at `--` or at the first word that is no option.  Nothing may be abbreviated.  Only
 * the options that the table marks may be given twice.  `dlock run` has a key and a command
 * behind its options: without -k the first word is the key, and further options may come between
 * it and a `--`.  Other subcommands have operands, which may stand between the options.
 */
#ifndef DLOCK_ARGS_H
#define DLOCK_ARGS_H

#include "params.h"

/*
 * Reads the words after the subcommand `cmd`, a CMD_ bit, the environment and the
 * configuration files into *params, once in the life of a process.  RC_DONE: help is asked
 * for; RC_USAGE, or RC_CONFIG where a file is wrong: *fault names option, value and what is
 * allowed.  The parameters point into argv, the environment and what was read of files.
 * Passwords in argv are overwritten, so that ps(1) does not show them for long; the parameters
 * keep a copy.
 */
enum rc args_read(struct params *, unsigned cmd, char **argv, struct fault *);

/* Is `word` one of `words`? */
bool args_have(char **words, const char *word);

#endif
