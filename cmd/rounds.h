/*
 * rounds.h - looks once, or with --watch again and again.
 *
 * On a terminal each round is a picture that is drawn anew; elsewhere it is lines that tell
 * what has changed.
 */
#ifndef DLOCK_ROUNDS_H
#define DLOCK_ROUNDS_H

#include "look.h"
#include "screen.h"

/* What is shown: a subcommand's own struct begins with it. */
struct rounds {
	struct looking looking;
	struct screen screen; /* open */
	const char *what;     /* "list": what cannot be done when a look fails */
	const char *key;      /* of which key; NULL: of all */
	/*
	 * Looks, and shows what there is, to stdout or to a picture, in which a failed look
	 * is told as well; or what has changed (`to` NULL).
	 */
	enum rc (*show)(struct rounds *, FILE *to, struct fault *);
};

/* Returns the exit status.  Rounds end with a signal, or where the very first look fails. */
int rounds_run(struct rounds *, const struct plan *);

/* In a picture: the look has failed. */
void rounds_tell_failure(FILE *, const struct fault *);

#endif
