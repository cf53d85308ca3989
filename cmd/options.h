/*
 * options.h - the one table of options of `dlock run`.
 *
 * The parser, the environment, the help text, and (through `dlock help --raw`)
 * the tests that compare manual and completions with it all read this table.
 *
 * Options end at `--` or at the first word that is none.  Without -k that word is
 * the key, and further options may come between it and a `--`.  Nothing may be
 * abbreviated; nothing but -k and -O may be given twice.  A flag beats its
 * variable; an empty variable counts as unset.
 */
#ifndef DLOCK_OPTIONS_H
#define DLOCK_OPTIONS_H

#include "plan.h"

#include <stdio.h>

struct option {
	const char *name;
	char letter;	 /* 0: none */
	const char *arg; /* what to call the value; NULL: takes none */
	const char *env;
	/* Takes `value` into the plan; otherwise says in `fault` what would be right. */
	bool (*set)(struct plan *, const char *value, struct fault *);
	const char *help; /* one or two lines of at most 50 columns */
};

extern const struct option options[]; /* NULL-ended */

enum parsed { PARSED_PLAN, PARSED_HELP, PARSED_WRONG };

/*
 * Reads the words after `run` and the environment into *plan.  PARSED_WRONG:
 * *fault names option, value and what is allowed.  The plan points into argv
 * and the environment.  Passwords in argv are overwritten, so that ps(1) does
 * not show them for long; the plan keeps a copy.
 */
enum parsed options_parse(struct plan *plan, char **words, struct fault *fault);

/*
 * Variables that look like dlock's but mean nothing to it, most likely for a
 * typing error: their names and what was meant, fit to be shown, as far as there
 * is room.  False: there are none.
 */
bool options_stray(char *out, size_t size);
/* Does this URL hold a password?  NULL: no. */
bool options_has_password(const char *url);

void options_print_help(FILE *);
void options_print_raw(FILE *); /* NAME LETTER ARG ENV, tab-separated, "-" for none */

#endif
