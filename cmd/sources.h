/*
 * sources.h - where the values of options come from, and which of them counts.
 *
 * An ordered list, the strongest first: the command line, then the environment.
 * The first source that has an option gives its value; the first one that has a
 * member of a group (which server, how long to wait) owns that group, and what
 * weaker ones say of its other members does not count.
 *
 * An empty variable is as good as none, so that `DLOCK_WAIT= dlock run` resets it.
 */
#ifndef DLOCK_SOURCES_H
#define DLOCK_SOURCES_H

#include "options.h"

enum source_kind { SOURCE_WORDS, SOURCE_ENVIRONMENT, SOURCES };

struct source {
	enum source_kind kind;
	const char *value[OPTIONS]; /* "1" for a flag; NULL: not said */
};

struct sources {
	unsigned cmd; /* CMD_: only options that it knows have values */
	struct source list[SOURCES];
};

/* All that can be read at once; the words are noted by whoever reads them. */
void sources_init(struct sources *, unsigned cmd);

/* The source whose value of option i counts, or NULL. */
const struct source *sources_of(const struct sources *, int i);

/* The option as its source calls it, for errors: "--ttl", "DLOCK_TTL". */
const char *sources_call(const struct source *, int i, char *out, size_t size);

/*
 * Takes all values that count into the plan, but those that took effect as they
 * were read.  RC_USAGE: the fault names source, option and value.
 */
enum rc sources_apply(const struct sources *, struct plan *, struct fault *);

/* A variable that is set and not empty, or NULL. */
const char *sources_variable(const char *name);

/* Are we below another dlock? */
bool sources_nested(void);

#endif
