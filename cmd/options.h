/*
 * options.h - the one table of options, of all subcommands.
 *
 * The command line, the environment, the files and the help text read this table.  So do the
 * tests, by `dlock help --raw`, which compare manual and completions with it.  args.h says how
 * options are written, said.h which of several values counts.
 */
#ifndef DLOCK_OPTIONS_H
#define DLOCK_OPTIONS_H

#include "params.h"
#include "text.h"

#include <stdio.h>

/* The rows, in the order in which they are shown and take effect. */
enum {
	OPT_KEY,
	OPT_CONFIG,
	OPT_PROFILE,
	OPT_BACKEND, /* the options before it say which files are read, and for which keys */
	OPT_URL,
	OPT_OPTION,
	OPT_SHARED,
	OPT_EXCLUSIVE,
	OPT_LIMIT,
	OPT_NONBLOCK,
	OPT_WAIT,
	OPT_CONFLICT,
	OPT_UNLESS_FROZEN,
	OPT_NEWEST,
	OPT_TTL,
	OPT_GRACE,
	OPT_SIGNAL,
	OPT_MIN_HOLD,
	OPT_MAX_RUN,
	OPT_KILL_AFTER,
	OPT_WAIT_TREE,
	OPT_ONCE,
	OPT_ONCE_PER,
	OPT_AT_OFFSET,
	OPT_COOLDOWN,
	OPT_NO_RETRY,
	OPT_SKIPPED,
	OPT_REMEMBER,
	OPT_COMMAND,
	OPT_WHO,
	OPT_WHY,
	OPT_SHOW_ARGUMENTS,
	OPT_STATUS_FD,
	OPT_METRICS,
	OPT_LOG,
	OPT_TOKEN,
	OPT_FORCE,
	OPT_FOR,
	OPT_UNTIL,
	OPT_PID,
	OPT_WITH_PARENT,
	OPT_SHELL,
	OPT_YES,
	OPT_JOBS,
	OPT_DONE_WITHIN,
	OPT_JSON,
	OPT_NOHEADINGS,
	OPT_OUTPUT,
	OPT_FORMAT,
	OPT_HELD_OVER,
	OPT_WATCH,
	OPT_QUIET,
	OPT_VERBOSE,
	OPTIONS,
};

/* Options of one group answer one question together: see said.h. */
enum group {
	GROUP_NONE,
	GROUP_SERVER, /* which one */
	/* of each group from here on, one origin may say only one option */
	GROUP_WAIT,   /* how long */
	GROUP_KIND,   /* which kind of lock */
	GROUP_JOB,    /* which job it is */
	GROUP_LENGTH, /* until when it is frozen */
};

/* The help of an option for some subcommands. */
struct wording {
	unsigned cmds; /* CMD_ bits; 0: the end */
	const char *help;
};

struct option {
	const char *name;
	char letter;      /* 0: none */
	const char *arg;  /* what to call the value; NULL: takes none */
	const char *env;  /* NULL: none, since it is for one occasion */
	const char *help; /* one or two lines of at most 50 columns */
	unsigned cmds;    /* CMD_ bits: which subcommands know it */
	/* the help for subcommands to which the option means something else; or NULL */
	const struct wording *instead;
	enum group group;
	bool occasional; /* has a variable, but no place in a file; see conf_allows() */
	bool repeats;    /* may be given more than once */
	/* its value where none is given; then only = can give one.  NULL: it needs a value */
	const char *bare;

	/* Takes `value` into the parameters; RC_USAGE: the fault says what would be right. */
	enum rc (*set)(
	    struct params *, const struct option *, const char *value, struct fault *);
	/* for setters that many rows share: the offset in struct params */
	size_t at;
	int64_t min, max; /* and what it may be: nanoseconds, bytes, or just a number */
};

extern const struct option options[]; /* OPTIONS of them, and one without a name */

/*
 * The default of option i, which the parameters have where nobody has said it: "30s", "no", "-".
 * Returns out, or a constant.
 */
const char *options_default(const struct params *, int i, char *out, size_t size);

/* The name of a subcommand, by its CMD_ bit. */
const char *options_cmd(unsigned cmd);

/* The option of this name, n bytes long, that subcommand `cmd` knows; -1: none. */
int options_named(unsigned cmd, const char *name, size_t n);

/* "file, redis, zk, pg", with `last` before the last one. */
enum { OPTIONS_BACKENDS = 16 };
struct brief options_backends(const char *last);

/*
 * Takes the value of option i into the parameters.  RC_USAGE: it is wrong, and the fault is what
 * follows the option's name in a sentence, " 'value': why", without a password.
 */
enum rc options_take(struct params *, int i, const char *value, struct fault *);

/* RC_USAGE: this descriptor is not open for writing. */
enum rc options_check_fd(int fd, struct fault *);

/* Checks a value that stands in a file.  RC_CONFIG: options_take() would not take it. */
enum rc options_check(int i, const char *value, struct fault *);

/*
 * Guesses which option was meant by a word that is none: ": did you mean --ttl?".  `before`
 * stands before the name there.  One letter means the only name that begins with it and has no
 * letter of its own.  "": no guess.
 */
struct brief options_hint(unsigned cmd, const char *before, const char *word, size_t n);
/* The same of what other programs call an option of ours, and nothing that is only similar. */
struct brief options_synonym(
    unsigned cmd, const char *before, const char *word, size_t n);

void options_print_help(FILE *, unsigned cmd);
/* Prints NAME LETTER ARG ENV SUBCOMMANDS ("run,hold"), tab-separated, "-" for none. */
void options_print_raw(FILE *);

#endif
