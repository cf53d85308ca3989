/*
 * conf.h - the configuration files: which are read, whether they can be trusted, and
 * which of their sections count.  dlock.conf(5) tells users.
 */
#ifndef DLOCK_CONF_H
#define DLOCK_CONF_H

#include "sources.h"

enum { CONF_BYTES = 65536 };

/*
 * Adds what files say to the sources, for a run of these keys (none: no [key] section
 * counts); which files and which profile, the sources there are say already.  Once in
 * the life of a process: values point into memory of this module.  RC_CONFIG: a file
 * cannot be read, trusted or understood; RC_USAGE: there is no such profile.
 */
enum rc conf_read(
    struct sources *, const char *const *keys, size_t nkeys, struct fault *);

/* What one text says, for conf_read() and for tests. */
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

/* RC_CONFIG: it cannot be understood. */
enum rc conf_take(struct sources *, struct conf_text *, struct fault *);

/* May an option stand in a file? */
bool conf_allows(int option);

#endif
