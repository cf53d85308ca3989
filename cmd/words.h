/*
 * words.h - the command line of a subcommand, cut into options and what is left:
 * of `dlock run` a key and a command, of others operands.
 *
 * Options end at `--` or at the first word that is none.  Without -k that word is
 * the key, and further options may come between it and a `--`.  Nothing may be
 * abbreviated; nothing but what the table says may be given twice.
 *
 * What may be given twice takes effect at once; all else is only noted.
 */
#ifndef DLOCK_WORDS_H
#define DLOCK_WORDS_H

#include "sources.h"

struct words {
	unsigned cmd;        /* CMD_: whose options are known */
	char **next;         /* what has not been read yet, NULL-ended */
	struct plan *plan;   /* where options take effect that may be given twice */
	struct source *said; /* where all options are noted */
	bool help;           /* -h or --help was among them */
};

/*
 * Reads options, up to the first word that is none, or past a `--`.  RC_USAGE: the fault
 * says what is wrong.
 */
enum rc words_read_options(struct words *, struct fault *);

/*
 * Reads all words: options wherever they stand (up to a `--`), and between them operands,
 * each given to `take`.  RC_USAGE: as above, or what `take` has against one.
 */
enum rc words_read_all(struct words *,
    enum rc (*take)(struct plan *, const char *operand, struct fault *), struct fault *);

/* Reads one word as the key, and options behind it where a `--` ends them. */
enum rc words_read_key(struct words *, struct fault *);

#endif
