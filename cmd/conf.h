/*
 * conf.h - the configuration files: which are read, whether they can be trusted, what their
 * lines say, and which of their sections count.
 *
 * dlock.conf(5) describes the files.  Every value is checked, also those that do not count for
 * this run.  The values that count go into the list of said.h.
 */
#ifndef DLOCK_CONF_H
#define DLOCK_CONF_H

#include "said.h"

enum { CONF_BYTES = 65536, CONF_FILES = 2, CONF_SHOWN_BYTES = 200 };

/* A file that was looked for. */
struct conf_file {
	char shown[CONF_SHOWN_BYTES];
	bool there;
	bool is_secret; /* nobody else can read it, see trusted_check() */
};

/*
 * Reads the files and adds to the list what they say for a run of these keys; without keys no
 * [key] section counts.  The parameters must have the keys, the profile and --config already.  It
 * is called once in the life of a process, since values point into memory of this module.
 * RC_CONFIG: a file cannot be read, trusted or understood; RC_USAGE: there is no such profile.
 */
enum rc conf_read(struct said_list *, const struct params *, struct fault *);

/* The files that conf_read() has looked for, *n of them. */
const struct conf_file *conf_files(size_t *n);

/* May an option stand in a file? */
bool conf_allows(int option);

/* ---- one text: for conf_read(), and for tests ---- */

struct conf_text {
	char *text; /* n bytes, and room for one more; written over */
	size_t n;
	const char *shown;   /* the file's name */
	bool user;           /* it counts as the user's */
	const char *profile; /* that is wanted; NULL: none */
	const char *const *keys;
	size_t nkeys;
	/* results */
	bool found;     /* it has that profile */
	char meant[40]; /* or one that may be meant; "": no guess */
	int secret;     /* the line of a password; 0: there is none */
};

/* Adds what the text says to the list.  RC_CONFIG: it cannot be understood. */
enum rc conf_take(struct said_list *, struct conf_text *, struct fault *);

/* One line that is neither empty nor a comment. */
struct conf_line {
	int number;          /* from 1 on */
	const char *section; /* what stands between the brackets; "": none so far */
	const char *name;    /* NULL: the section begins here */
	const char *value;
};

/*
 * Cuts a text into such lines and hands each to `take`, until that returns another rc than RC_OK.
 * The text has n bytes and room for one more; it is written over, since the line's texts are
 * pieces of it.  Returns the rc of `take`, or RC_CONFIG for a line that cannot be read: then
 * *number is that line's number, and the fault says what is wrong with it.
 */
enum rc conf_cut(char *text, size_t n,
    enum rc (*take)(void *ctx, const struct conf_line *, struct fault *), void *ctx,
    int *number, struct fault *);

#endif
