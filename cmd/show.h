/*
 * show.h - shows what a look has found: as JSON, or as lines for people.  In a sentence: held.h.
 */
#ifndef DLOCK_SHOW_H
#define DLOCK_SHOW_H

#include "screen.h"
#include "view.h"

/*
 * One object on one line; `brief`: with the number of the waiters, not their list.  `time`: of
 * the line, by our clock; EPOCH_NONE: it is not said.
 */
void show_json(
    FILE *, const struct view *, const struct store *, bool brief, int64_t time);

/* In a look at jobs: what is remembered of a key, or of one of its IDs; likewise. */
void show_job(FILE *, const struct view *, const struct store *);

/* The deed of a subcommand to a key. */
struct steered {
	const char *action, *key; /* "break" */
	int status;
	const struct backend *backend;
	const struct store *store; /* NULL: it could not be opened */
	const struct view *view;   /* the key before a break or thaw; NULL: not seen */
	const struct record *by;   /* whose deed it is, and why */
};

/* The object of the key, with what was done and what came of it. */
void show_steered(FILE *, const struct steered *);

/* Some lines: who has it, since when and why, who waits, who has frozen it. */
void show_text(FILE *, const struct view *, const struct store *, const struct screen *);

/* The bytes that switch to the colour of its state. */
const char *show_colour(const struct screen *, const struct view *);

/*
 * A number that changes when what is shown does; the passing of time does not count.  0: no
 * memory.
 */
uint64_t show_facts(const struct view *, const struct store *, bool brief);

#endif
