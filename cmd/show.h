/*
 * show.h - shows what a look has found: as JSON, or as lines for people.  held.h has the
 * sentence.
 */
#ifndef DLOCK_SHOW_H
#define DLOCK_SHOW_H

#include "screen.h"
#include "view.h"

/*
 * Prints one object on one line.  `brief`: it has the number of the waiters, not their list.
 * `time`: the line says this time of our clock; EPOCH_NONE: it says none.
 */
void show_json(
    FILE *, const struct view *, const struct store *, bool brief, int64_t time);

/*
 * Prints what a look at jobs has found of a key, or of one of its IDs, as one object on one line.
 */
void show_job(FILE *, const struct view *, const struct store *);

/* One key after break, freeze, thaw or forget. */
struct steered {
	const char *action, *key; /* "break" */
	int status;
	const struct backend *backend;
	const struct store *store; /* NULL: it could not be opened */
	const struct view *view;   /* the key before a break or thaw; NULL: not seen */
	const struct record *by;   /* whose deed it is, and why */
};

/* Prints the object of the key, with the action and its result. */
void show_steered(FILE *, const struct steered *);

/* Prints some lines: who has the lock, since when and why, who waits, who has frozen it. */
void show_text(FILE *, const struct view *, const struct store *, const struct screen *);

/* The bytes that switch to the colour of the view's state. */
const char *show_colour(const struct screen *, const struct view *);

/*
 * Makes a number that changes when something else than time changes in what is shown.  0: no
 * memory.
 */
uint64_t show_facts(const struct view *, const struct store *, bool brief);

#endif
